/**
 * The marks of the states, so that colour is never alone: how much of its colour a state has at a point of its cell.
 *
 * The shader in `gl.ts` has the same marks; `tests/page` compares both painters. Coordinates go from 0 to 1.
 */
import { FAILING, FINISHING, PENDING, STARTING, SUCCEEDED, TERMINATING } from "./states";

/** Cells from this size on, in pixels, have marks; smaller ones are plain. */
export const MARKED = 7;
/** Cells from this size on are cards with a small mark and space for a name. */
export const CARDS = 44;
/** The side of the mark of a card, in pixels, and its distance from the corner. */
export const MARK_PIXELS = 14;
export const MARK_INSET = 8;

export function markAt(state: number, u: number, v: number): boolean {
  const edge = Math.max(Math.abs(u - 0.5), Math.abs(v - 0.5));
  switch (state) {
    case STARTING:
      return edge > 0.33 || v > 0.5;
    case FAILING:
      return Math.abs(Math.abs(u - 0.5) - Math.abs(v - 0.5)) > 0.1 || edge > 0.33;
    case FINISHING:
      return Math.abs(v - 0.5) > 0.1 || edge > 0.33;
    case PENDING:
      return edge > 0.33;
    case SUCCEEDED:
      return edge < 0.24;
    case TERMINATING:
      return edge > 0.33 || Math.abs(u + v - 1) < 0.12;
    default:
      return true;
  }
}
