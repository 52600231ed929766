import type { ComponentChildren, JSX } from "preact";
import { readOnly } from "../state/place";

type Native = Omit<JSX.IntrinsicElements["button"], "class" | "disabled" | "label">;

export interface ButtonProps extends Native {
  /** plain: without a border. */
  look?: "primary" | "danger" | "danger primary" | "plain";
  small?: boolean;
  class?: string;
  /** Why the button cannot be used now. It stays focusable, so that the reason can be read. */
  disabled?: string | boolean | null;
  /** The button changes the cluster: it is disabled while the page shows the past. */
  writes?: boolean;
  children?: ComponentChildren;
}

export function Button({ look, small, writes, disabled, children, onClick, title, class: extra, ...rest }: ButtonProps) {
  const reason = (writes ? readOnly.value : null) ?? (disabled === true ? "Not possible now." : disabled || null);
  return (
    <button
      type="button"
      {...rest}
      class={["button", look, small && "small", extra].filter(Boolean).join(" ")}
      aria-disabled={reason ? "true" : undefined}
      title={reason ?? title}
      onClick={reason ? undefined : onClick}
    >
      {children}
    </button>
  );
}
