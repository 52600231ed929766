/** The mark of a state, as in the picture. */
import { FAILING, FINISHING, PENDING, READY, STARTING, SUCCEEDED, TERMINATING } from "./states";

const FRAME = "M1 1h12v12H1z M3 3v8h8V3z";
const PATHS: Record<number, string> = {
  [READY]: "M1 1h12v12H1z",
  [STARTING]: `${FRAME} M3 7h8v4H3z`,
  [FAILING]: "M1 1h12v12H1z M5.600 7L3 4.400 4.400 3 7 5.600 9.600 3 11 4.400 8.400 7 11 9.600 9.600 11 7 8.400 4.400 11 3 9.600z",
  [FINISHING]: "M1 1h12v12H1z M3 6v2h8V6z",
  [PENDING]: FRAME,
  [SUCCEEDED]: "M4 4h6v6H4z",
  [TERMINATING]: `${FRAME} M9.300 3H11v1.700L4.700 11H3V9.300z`,
};

export function Swatch({ state }: { state: number }) {
  return (
    <svg class={`fleet-swatch s${state}`} viewBox="0 0 14 14" aria-hidden="true" focusable="false">
      <path d={PATHS[state] ?? FRAME} fill-rule="evenodd" />
    </svg>
  );
}
