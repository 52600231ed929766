/** The window: which part of the axis is shown. Strip and view share it. */
import { signal } from "@preact/signals";
import { stored } from "../state/settings";
import { makeAxis, scaleFor } from "./axis";
import type { Axis, AxisMode } from "./axis";
import type { Span } from "./spans";
import { spanAt } from "./spans";

const FIRST_WRITES = 150;
const MOST_SCALE = 40;

export const mode = stored<AxisMode>("timeline.axis", "revision");
/** Pixels for a write or a second; 0: not chosen yet, so that the latest writes fill the window; EVERYTHING: all do. */
export const scale = signal(0);
const EVERYTHING = -1;
/** The revision at the right edge; null: the newest, whatever it is. */
export const anchor = signal<number | null>(null);

export function setMode(next: AxisMode): void {
  mode.value = next;
  scale.value = 0;
}

export interface Window {
  axis: Axis;
  /** The place of the axis at the left edge. */
  from: number;
}

/** The space to the right of the newest write. */
const MARGIN = 14;

export function makeWindow(spans: readonly Span[], width: number): Window {
  const count = scale.value === EVERYTHING ? Infinity : FIRST_WRITES;
  const chosen = scale.value > 0 ? scale.value : scaleFor(spans, mode.value, width, count);
  const axis = makeAxis(spans, mode.value, chosen);
  const edge = anchor.value === null ? axis.length : (axis.starts[spanAt(spans, anchor.value) + 1] ?? axis.length);
  return { axis, from: Math.min(edge, axis.length) + MARGIN - width };
}

/** Show the part of the axis whose left edge is at `from`. */
export function scrollTo(spans: readonly Span[], { axis }: Window, from: number, width: number): void {
  const right = from + width - MARGIN;
  if (right >= axis.length - 2) {
    anchor.value = null;
    return;
  }
  const least = Math.min(axis.length, width - MARGIN);
  let i = spans.length - 1;
  const place = Math.max(least, right);
  for (let low = 0, high = axis.starts.length - 1; low <= high; ) {
    const middle = (low + high) >> 1;
    if (axis.starts[middle]! <= place) {
      i = middle - 1;
      low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  anchor.value = spans[Math.max(0, i)]?.last ?? null;
}

/** Zoom so that what is at a pixel stays there. */
export function zoomWindow(spans: readonly Span[], window: Window, width: number, factor: number, px: number): void {
  const least = scaleFor(spans, window.axis.mode, width, Infinity) * 0.9;
  const next = Math.min(window.axis.mode === "time" ? 400 : MOST_SCALE, Math.max(Math.min(least, window.axis.scale), window.axis.scale * factor));
  if (next === window.axis.scale) return;
  // The place below the pixel, as a span and a share of it.
  const place = window.from + px;
  let i = 0;
  while (i < spans.length - 1 && window.axis.starts[i + 1]! <= place) i += 1;
  const axis = makeAxis(spans, window.axis.mode, next);
  const inside = place - window.axis.starts[i]!;
  const moved = axis.starts[i]! + (place < 0 ? place : Math.min(inside * (next / window.axis.scale), (axis.starts[i + 1] ?? 0) - axis.starts[i]!));
  scale.value = next;
  scrollTo(spans, { axis, from: 0 }, moved - px, width);
}

/** Show everything that is known, also what is read later. */
export function fitWindow(): void {
  scale.value = EVERYTHING;
  anchor.value = null;
}
