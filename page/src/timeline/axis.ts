/**
 * The axis of a timeline, in pixels from its begin, for one zoom.
 *
 * By revision, each write has the same width, and a time without writes is a gap of a fixed width. By time, distances are
 * times. The window is the part of the axis that is shown.
 */
import type { Span } from "./spans";

export type AxisMode = "revision" | "time";

export interface Gap {
  /** The number of the span before it. */
  after: number;
  x: number;
  width: number;
  /** Milliseconds. */
  duration: number;
}

export interface Axis {
  mode: AxisMode;
  /** The begin of each span, and the end of the last. */
  starts: Float64Array;
  gaps: Gap[];
  length: number;
  /** Pixels for a write, or for a second. */
  scale: number;
}

const LEAST_GAP = 5_000;
const GAP_WIDTH = 44;
/** Pixels for a write, from which on each has a mark of its own. */
export const SINGLE = 4;
const LEAST_WIDTH = 2;

export function makeAxis(spans: readonly Span[], mode: AxisMode, scale: number): Axis {
  return mode === "revision" ? byRevision(spans, scale) : byTime(spans, scale);
}

function byRevision(spans: readonly Span[], scale: number): Axis {
  const starts = new Float64Array(spans.length + 1);
  const gaps: Gap[] = [];
  let x = 0;
  spans.forEach((span, i) => {
    const before = spans[i - 1];
    if (before?.end && span.begin && span.begin - before.end >= LEAST_GAP) {
      gaps.push({ after: i - 1, x, width: GAP_WIDTH, duration: span.begin - before.end });
      x += GAP_WIDTH;
    }
    starts[i] = x;
    x += Math.max(span.total * scale, span.write ? 0 : LEAST_WIDTH);
  });
  starts[spans.length] = x;
  return { mode: "revision", starts, gaps, length: x, scale };
}

function byTime(spans: readonly Span[], scale: number): Axis {
  const starts = new Float64Array(spans.length + 1);
  const first = spans.find((span) => span.begin)?.begin ?? 0;
  let last = 0;
  spans.forEach((span, i) => {
    // A write whose time is not known stands where the one before does.
    if (span.begin) last = Math.max(last, ((span.begin - first) / 1_000) * scale);
    starts[i] = last;
  });
  const end = spans.at(-1)?.end ?? 0;
  starts[spans.length] = Math.max(last + 12, end ? ((end - first) / 1_000) * scale + 12 : 0);
  return { mode: "time", starts, gaps: [], length: starts[spans.length]!, scale };
}

/** The middle of a span. */
export function centre(axis: Axis, spans: readonly Span[], i: number): number {
  const start = axis.starts[i] ?? 0;
  if (axis.mode === "time") return start + (spans[i]?.write ? 0 : 1);
  return start + (Math.max((spans[i]?.total ?? 1) * axis.scale, LEAST_WIDTH) / 2);
}

/** The number of the span at a place of the axis: the last that begins before it; -1 before the first. */
export function spanAtX(axis: Axis, x: number): number {
  const { starts } = axis;
  let low = 0;
  let high = starts.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle]! <= x) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/**
 * The scale at which the last `count` writes, or all, fill a width. By revision there are fewer if gaps take so much of
 * the width that not each of them would have a mark of its own.
 */
export function scaleFor(spans: readonly Span[], mode: AxisMode, width: number, count: number): number {
  if (mode === "time") {
    const from = spans.at(-Math.min(count, spans.length))?.begin ?? 0;
    const seconds = ((spans.at(-1)?.end ?? 0) - from) / 1_000;
    return Math.min(400, (width - 40) / Math.max(1, seconds));
  }
  let total = 0;
  let gaps = 0;
  for (let i = spans.length - 1; i >= 0 && total < count; i--) {
    const [span, after] = [spans[i]!, spans[i + 1]];
    const gap = after?.begin && span.end && after.begin - span.end >= LEAST_GAP ? GAP_WIDTH : 0;
    if (count < Infinity && total > 0 && (total + span.total) * SINGLE > width - 20 - gaps - gap) break;
    total += span.total;
    gaps += gap;
  }
  return Math.min(24, Math.max(0.001, (width - Math.min(gaps, width / 2) - 20) / Math.max(1, total)));
}
