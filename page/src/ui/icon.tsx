/** Line icons, drawn with the colour of the text. They are decoration: a label stands beside each. */
import { PATHS } from "./icon-paths";

export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name] ?? PATHS.info} />
    </svg>
  );
}
