/** The seats of a class as the board shows them. */

/** An item of the feed `class` for one seat. */
export interface Seat {
  seat: string;
  nickname: string;
  state: string;
  tabs: number;
  /** The last line typed in a terminal, and when, in seconds since the epoch; 0 if there is none. */
  command: string;
  commandAt: number;
  /** The title of the current lesson, and how many of its steps are done. */
  lesson?: string;
  done?: number;
  steps?: number;
  /** When a step was done last, in seconds since the epoch. */
  stepAt?: number;
  cluster?: string;
}

/** The item of the feed `class` about the class itself. */
export interface ClassItem {
  code: string;
  seats: number;
  taken: number;
}

/** A learner whose page is closed. */
export function isAway(seat: Seat): boolean {
  return seat.tabs === 0;
}

/** Milliseconds without a step of a lesson after which a learner counts as stuck. */
const STUCK = 180_000;

/** A learner who has done all steps of the current lesson. */
function hasFinished(seat: Seat): boolean {
  return seat.steps !== undefined && (seat.done ?? 0) >= seat.steps;
}

/** A learner at a lesson who has not done a step of it for minutes. */
export function isStuck(seat: Seat, now: number): boolean {
  return seat.stepAt !== undefined && !isAway(seat) && !hasFinished(seat) && now - seat.stepAt * 1_000 >= STUCK;
}

/** Those at a lesson come first, beginning with the one who has not done a step for the longest time: the stuck ones. Then
 * come those who have begun no lesson, those who have finished theirs, and last those who are away. */
export function sorted(seats: readonly Seat[]): Seat[] {
  const group = (seat: Seat) => (isAway(seat) ? 3 : hasFinished(seat) ? 2 : seat.stepAt === undefined ? 1 : 0);
  const since = (seat: Seat) => seat.stepAt ?? seat.commandAt;
  return [...seats].sort((a, b) => group(a) - group(b) || since(a) - since(b) || a.nickname.localeCompare(b.nickname));
}

/** The board as CSV. A cell that a spreadsheet would execute begins with an apostrophe. */
export function csv(seats: readonly Seat[]): string {
  const rows = seats.map((seat) => [
    seat.nickname,
    seat.lesson ?? "",
    String(seat.done ?? 0),
    String(seat.steps ?? 0),
    seat.command,
    seat.state,
  ]);
  return [["learner", "lesson", "done", "steps", "last command", "state"], ...rows]
    .map((row) => row.map(cell).join(","))
    .join("\r\n");
}

/** Signs with which formulas begin, also those of full width, and behind blanks and characters that are not shown; white
 * space with which a spreadsheet goes on to the next cell; `|` and `%`, which some begin commands with. */
const FORMULA = /^[\s\p{C}]*[=+\-@|%＝＋－＠]|^[\t\r\n]/u;

function cell(text: string): string {
  const safe = FORMULA.test(text) ? `'${text}` : text;
  return `"${safe.replaceAll('"', '""')}"`;
}
