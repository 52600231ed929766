/** The keyboard map: keys and sequences such as `g o`. The help dialog lists what is bound at the moment. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { stored } from "../state/settings";

export interface Binding {
  /** `?`, `/`, `g o`, `Ctrl+s`, `Shift+ArrowLeft`: keys as in KeyboardEvent.key, a sequence separated by a blank. */
  keys: string;
  label: string;
  /** The heading in the help dialog. */
  group?: string;
  /** Return false to let the key pass. */
  run(event: KeyboardEvent): void | false;
  /** Also while the focus is in a text field. */
  inFields?: boolean;
  /** Whether the key has an effect at the moment; without it, always. Keys without effect are not listed in the help. */
  applies?(): boolean;
}

const SEQUENCE_TIME = 1_500;

/** Whether keys without Ctrl or Alt act. People who use speech input turn this off. */
export const singleKeys = stored("keys.single", true);

/** Bindings in force; later ones win. */
export const bindings = signal<readonly Binding[]>([]);

let prefix = "";
let prefixTimer = 0;

export function bindKeys(added: readonly Binding[]): () => void {
  bindings.value = [...bindings.peek(), ...added];
  return () => {
    bindings.value = bindings.peek().filter((one) => !added.includes(one));
  };
}

/** Bind keys while the component is mounted. `added` is read once for each value of `inputs`. */
export function useKeys(added: () => readonly Binding[], inputs: readonly unknown[]): void {
  useEffect(() => bindKeys(added()), inputs as unknown[]);
}

function chord(event: KeyboardEvent): string {
  let key = event.key;
  const printable = key.length === 1;
  if (printable && (event.ctrlKey || event.metaKey || event.altKey)) key = key.toLowerCase();
  return (
    (event.ctrlKey || event.metaKey ? "Ctrl+" : "") +
    (event.altKey ? "Alt+" : "") +
    (event.shiftKey && !printable ? "Shift+" : "") +
    key
  );
}

function isSingle(keys: string): boolean {
  return keys !== "Escape" && !/^(?:Ctrl|Alt)\+/.test(keys);
}

function inField(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || /^(?:INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.closest("[data-own-keys]") !== null;
}

function press(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing || /^(?:Control|Shift|Alt|Meta)$/.test(event.key)) return;
  const field = inField(event.target);
  const modal = document.querySelector("dialog[open]") !== null;
  const pressed = chord(event);
  const attempts = prefix ? [`${prefix} ${pressed}`, pressed] : [pressed];
  prefix = "";
  window.clearTimeout(prefixTimer);
  const usable = bindings
    .peek()
    .filter((one) => (!field || one.inFields) && !modal && (singleKeys.peek() || !isSingle(one.keys)) && (one.applies?.() ?? true));
  for (const attempt of attempts) {
    for (const binding of usable.toReversed()) {
      if (binding.keys !== attempt) continue;
      if (binding.run(event) === false) continue;
      event.preventDefault();
      return;
    }
    if (usable.some((one) => one.keys.startsWith(`${attempt} `))) {
      prefix = attempt;
      prefixTimer = window.setTimeout(() => (prefix = ""), SEQUENCE_TIME);
      return;
    }
  }
}

export function startKeyboard(): void {
  window.addEventListener("keydown", press);
}
