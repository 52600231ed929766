/** Short messages about what was done or failed. They are announced too. */
import { signal } from "@preact/signals";
import { announce, announceNow } from "../a11y/live";
import { shell } from "../words/shell";
import { Button } from "./button";
import { Icon } from "./icon";
import { visible } from "./text";

interface Toast {
  id: number;
  text: string;
  error: boolean;
}

const toasts = signal<readonly Toast[]>([]);
let count = 0;

export function toast(text: string, options: { error?: boolean } = {}): void {
  const id = ++count;
  const error = options.error ?? false;
  toasts.value = [...toasts.value.slice(-3), { id, text, error }];
  (error ? announceNow : announce)(text);
  if (!error) window.setTimeout(() => dismiss(id), 6_000);
}

/** Show a failure of a request; it stays until it is closed. */
export function toastError(error: unknown): void {
  toast(error instanceof Error ? error.message : String(error), { error: true });
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}

export function Toasts() {
  // A landmark without content would be in the way of screen readers.
  const landmark = toasts.value.length > 0 ? ({ role: "region", "aria-label": shell.messages } as const) : {};
  return (
    <div class="toasts" {...landmark}>
      {toasts.value.map((one) => (
        <div key={one.id} class={one.error ? "toast error" : "toast"}>
          <p>{visible(one.text)}</p>
          <Button look="plain" small aria-label={shell.close} onClick={() => dismiss(one.id)}>
            <Icon name="close" />
          </Button>
        </div>
      ))}
    </div>
  );
}
