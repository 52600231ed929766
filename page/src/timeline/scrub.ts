/** Going through time: dragging, stepping, playing. */
import { effect, signal } from "@preact/signals";
import { announce } from "../a11y/live";
import { at, setMoment } from "../state/place";
import type { ObjectRef } from "../state/refs";
import { selected } from "../state/selection";
import { stored } from "../state/settings";
import { timeline as words } from "../words/timeline";
import { shownSpans } from "./data";
import { concernsObject, spanAt } from "./spans";
import type { Span } from "./spans";

const INTERVAL = 50;
export const SPEEDS = [0.25, 1, 4, 20] as const;
const SHORTEST = 60;
const LONGEST = 1_000;

export const playing = signal(false);
export const speed = stored<number>("timeline.speed", 1);

let wanted: { revision: number; time: Date | null } | null = null;
let timer = 0;
let last = 0;

function timeOf(span: Span | undefined): Date | null {
  return span?.end ? new Date(span.end) : null;
}

/** Show a moment while it is dragged: at most 20 times a second. `settle` must follow. */
export function dragTo(revision: number): void {
  wanted = { revision, time: timeOf(spanOf(revision)) };
  if (timer) return;
  const go = () => {
    timer = 0;
    if (!wanted) return;
    last = performance.now();
    setMoment(wanted.revision, wanted.time, true);
  };
  const rest = last + INTERVAL - performance.now();
  if (rest <= 0) go();
  else timer = window.setTimeout(go, rest);
}

/** Show the moment that was dragged to last, and write it into the address; null: go back to now. */
export function settle(revision: number | null): void {
  window.clearTimeout(timer);
  timer = 0;
  wanted = null;
  setMoment(revision, revision === null ? null : timeOf(spanOf(revision)));
}

function spanOf(revision: number): Span | undefined {
  const spans = shownSpans.peek();
  return spans[spanAt(spans, revision)];
}

/** The number of the span whose state the page shows. */
export function currentSpan(): number {
  const spans = shownSpans.peek();
  const revision = at.peek();
  return revision === null ? spans.length - 1 : spanAt(spans, revision);
}

export type StepKind = "write" | "object" | "reconcile";

/** Step forward or back. Beyond the last write is now. Returns false if there is nothing to step to. */
export function step(direction: 1 | -1, kind: StepKind = "write"): boolean {
  const spans = shownSpans.peek();
  const ref = selected.peek();
  if (kind === "object" && !ref) {
    announce(words.noObject);
    return false;
  }
  const from = currentSpan();
  const next = find(spans, from, direction, kind, ref);
  if (next >= spans.length || (next === spans.length - 1 && direction === 1 && kind === "write")) {
    if (at.peek() === null) return false;
    settle(null);
    return true;
  }
  const span = spans[next];
  if (!span) {
    announce(words.noMore);
    return false;
  }
  settle(span.last);
  return true;
}

function find(spans: readonly Span[], from: number, direction: 1 | -1, kind: StepKind, ref: ObjectRef | null): number {
  if (kind === "object" && ref) {
    let i = from + direction;
    while (i >= 0 && i < spans.length && !concernsObject(spans[i]!, ref)) i += direction;
    return i;
  }
  if (kind === "reconcile") {
    const of = (i: number) => spans[i]?.write?.reconcile || `write ${i}`;
    const own = of(from);
    let i = from + direction;
    while (i >= 0 && i < spans.length && of(i) === own) i += direction;
    if (direction === 1) while (i + 1 < spans.length && of(i + 1) === of(i)) i += 1;
    return i;
  }
  return from + direction;
}

/** Go to the oldest write that is known. */
export function toOldest(): void {
  const first = shownSpans.peek()[0];
  if (first) settle(first.first);
}

let playTimer = 0;

/** Play from the shown moment on, or from the begin of what is known if the page shows now. Time between writes is kept,
 * as far as it is neither too short to see nor longer than a second. */
export function play(): void {
  const spans = shownSpans.peek();
  if (spans.length === 0) return;
  if (at.peek() === null) settle(spans[0]!.last);
  playing.value = true;
  const next = () => {
    const all = shownSpans.peek();
    const current = currentSpan();
    const following = all[current + 1];
    if (!playing.peek()) return;
    if (!following) {
      pause();
      settle(null);
      return;
    }
    const between = following.begin && all[current]?.end ? following.begin - all[current]!.end : LONGEST;
    const wait = Math.min(LONGEST, Math.max(SHORTEST, between)) / speed.peek();
    playTimer = window.setTimeout(() => {
      if (!playing.peek()) return;
      setMoment(following.last, timeOf(following), true);
      next();
    }, Math.max(INTERVAL, wait));
  };
  next();
}

export function pause(): void {
  if (!playing.peek()) return;
  playing.value = false;
  window.clearTimeout(playTimer);
  const revision = at.peek();
  if (revision !== null) settle(revision);
}

// Going back to now by any way ends the play.
effect(() => {
  if (at.value === null && playing.peek()) {
    playing.value = false;
    window.clearTimeout(playTimer);
  }
});
