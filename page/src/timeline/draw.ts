/** Draws the lanes, marks, gaps and times of a timeline on a canvas. */
import type { ObjectRef } from "../state/refs";
import { colour } from "../state/settings";
import { shortDuration } from "../ui/time";
import { centre, SINGLE, spanAtX } from "./axis";
import type { Axis } from "./axis";
import { laneIndex } from "./lanes";
import { concernsObject } from "./spans";
import type { Span } from "./spans";

export interface Picture {
  width: number;
  height: number;
  axis: Axis;
  spans: readonly Span[];
  /** The place of the axis at the left edge. */
  from: number;
  lanes: readonly string[];
  laneHeight: number;
  /** The span whose state is shown; null for now. */
  current: number | null;
  hover: number | null;
  /** Chosen spans, first and last. */
  range: readonly [number, number] | null;
  selected: ObjectRef | null;
}

/** The height of the row with the times. */
export const TIMES = 18;
const BIN = 3;
const TICK_EVERY = 96;
/** The part that gives a bar of several writes its colour, the last of those that they have. */
const BY_WEIGHT = ["", "status", "metadata", "created", "spec", "deleted"];

export interface Ink {
  text: string;
  soft: string;
  line: string;
  lane: string;
  surface: string;
  accent: string;
  range: string;
  parts: Record<string, string>;
  font: string;
}

/** The colours in use. Read `theme.value` beside it. */
export function readInk(): Ink {
  return {
    text: colour("--text"),
    soft: colour("--text-faint"),
    line: colour("--line"),
    lane: colour("--sunken"),
    surface: colour("--surface"),
    accent: colour("--accent"),
    range: colour("--accent-soft"),
    parts: {
      created: colour("--part-spec"),
      spec: colour("--part-spec"),
      metadata: colour("--part-meta"),
      status: colour("--part-status"),
      deleted: colour("--part-deletion"),
    },
    font: `11px ${colour("--font")}`,
  };
}

export function draw(to: CanvasRenderingContext2D, picture: Picture, ink: Ink): void {
  const { width, height, axis, spans, from } = picture;
  to.clearRect(0, 0, width, height);
  to.font = ink.font;
  const first = Math.max(0, spanAtX(axis, from - 60));
  const last = Math.min(spans.length - 1, spanAtX(axis, from + width) + 1);
  drawRange(to, picture, ink);
  drawLanes(to, picture, ink);
  drawGaps(to, picture, ink);
  if (axis.mode === "revision" ? axis.scale >= SINGLE : last - first < width / SINGLE) drawMarks(to, picture, ink, first, last);
  else drawBins(to, picture, ink, first, last);
  drawTimes(to, picture, ink, first, last);
  drawCursor(to, picture, ink);
}

function drawRange(to: CanvasRenderingContext2D, { range, axis, from, height, spans }: Picture, ink: Ink): void {
  if (!range) return;
  const left = centre(axis, spans, range[0]) - from;
  const right = centre(axis, spans, range[1]) - from;
  to.fillStyle = ink.range;
  to.fillRect(left, 0, Math.max(2, right - left), height - TIMES);
  to.fillStyle = ink.accent;
  to.fillRect(left, 0, 2, height - TIMES);
  to.fillRect(right, 0, 2, height - TIMES);
}

function drawLanes(to: CanvasRenderingContext2D, { lanes, laneHeight, width, height }: Picture, ink: Ink): void {
  to.fillStyle = ink.line;
  lanes.forEach((_, i) => to.fillRect(0, Math.round((i + 0.5) * laneHeight), width, 1));
  to.fillRect(0, height - TIMES, width, 1);
}

function drawGaps(to: CanvasRenderingContext2D, { axis, from, width, height, lanes, laneHeight }: Picture, ink: Ink): void {
  to.textAlign = "center";
  to.textBaseline = "middle";
  for (const gap of axis.gaps) {
    const x = gap.x - from;
    if (x + gap.width < 0 || x > width) continue;
    to.fillStyle = ink.surface;
    to.fillRect(x + 4, 0, gap.width - 8, lanes.length * laneHeight);
    to.fillStyle = ink.soft;
    to.fillText(`· ${shortDuration(gap.duration)} ·`, x + gap.width / 2, height - TIMES / 2);
    for (let y = 3; y < lanes.length * laneHeight; y += 6) to.fillRect(x + gap.width / 2, y, 1, 2);
  }
}

function drawMarks(to: CanvasRenderingContext2D, picture: Picture, ink: Ink, first: number, last: number): void {
  const { spans, axis, from, lanes, laneHeight, hover, selected } = picture;
  const index = laneIndex(lanes);
  const size = Math.min(4.5, Math.max(2.5, axis.mode === "time" ? 4 : axis.scale / 2 - 0.5));
  for (let i = first; i <= last; i++) {
    const span = spans[i]!;
    const x = centre(axis, spans, i) - from;
    if (!span.write) {
      drawCounts(to, picture, ink, span, x, index);
      continue;
    }
    const y = (index(span.write.lane) + 0.5) * laneHeight;
    drawMark(to, span.write.part, x, y, i === hover ? size + 1.5 : size, ink);
    if (selected && concernsObject(span, selected)) {
      to.strokeStyle = ink.text;
      to.lineWidth = 1.25;
      to.beginPath();
      to.arc(x, y, size + 3, 0, 2 * Math.PI);
      to.stroke();
    }
  }
}

/** The mark of a write: colour and form say which part of the object it concerns. */
export function drawMark(to: CanvasRenderingContext2D, part: string, x: number, y: number, size: number, ink: Ink): void {
  const tint = ink.parts[part] ?? ink.soft;
  to.fillStyle = to.strokeStyle = tint;
  to.beginPath();
  if (part === "deleted") {
    to.lineWidth = 2;
    to.moveTo(x - size, y - size);
    to.lineTo(x + size, y + size);
    to.moveTo(x + size, y - size);
    to.lineTo(x - size, y + size);
    to.stroke();
  } else if (part === "status") {
    to.lineWidth = 1.5;
    to.fillStyle = ink.surface;
    to.arc(x, y, size - 0.5, 0, 2 * Math.PI);
    to.fill();
    to.stroke();
  } else if (part === "created") {
    to.arc(x, y, size, 0, 2 * Math.PI);
    to.fill();
  } else {
    to.moveTo(x, y - size - 1);
    to.lineTo(x + size + 1, y);
    to.lineTo(x, y + size + 1);
    to.lineTo(x - size - 1, y);
    to.fill();
  }
}

function drawCounts(
  to: CanvasRenderingContext2D,
  { laneHeight, axis }: Picture,
  ink: Ink,
  span: Span,
  x: number,
  index: (name: string) => number,
): void {
  const width = axis.mode === "time" ? 4 : Math.max(2, span.total * axis.scale - 2);
  to.fillStyle = ink.soft;
  for (const [name, count] of Object.entries(span.lanes)) bar(to, x - width / 2, index(name), width, count, laneHeight);
}

/** A bar in a lane, whose height grows with the logarithm of the count. */
function bar(to: CanvasRenderingContext2D, x: number, lane: number, width: number, count: number, laneHeight: number): void {
  const high = Math.max(5, Math.min(1, Math.log2(1 + count) / 7) * (laneHeight - 3));
  to.fillRect(x, (lane + 0.5) * laneHeight - high / 2, width, high);
}

function drawBins(to: CanvasRenderingContext2D, picture: Picture, ink: Ink, first: number, last: number): void {
  const { spans, axis, from, lanes, laneHeight, width } = picture;
  const index = laneIndex(lanes);
  const across = Math.ceil(width / BIN) + 1;
  const counts = new Float32Array(lanes.length * across);
  const parts = new Uint8Array(counts.length);
  for (let i = first; i <= last; i++) {
    const span = spans[i]!;
    const part = Math.max(0, BY_WEIGHT.indexOf(span.write?.part ?? ""));
    const left = (axis.starts[i]! - from) / BIN;
    const right = span.write || axis.mode === "time" ? left : left + (span.total * axis.scale) / BIN;
    const low = Math.max(0, Math.floor(left));
    const high = Math.min(across - 1, Math.floor(right));
    for (const [name, count] of Object.entries(span.lanes)) {
      const lane = index(name);
      for (let bin = low; bin <= high; bin++) {
        counts[lane * across + bin]! += count / Math.max(1, Math.floor(right) - Math.floor(left) + 1);
        parts[lane * across + bin] = Math.max(parts[lane * across + bin]!, part);
      }
    }
  }
  for (let lane = 0; lane < lanes.length; lane++) {
    for (let bin = 0; bin < across; bin++) {
      const count = counts[lane * across + bin]!;
      if (count <= 0) continue;
      to.fillStyle = ink.parts[BY_WEIGHT[parts[lane * across + bin]!]!] ?? ink.soft;
      bar(to, bin * BIN, lane, BIN - 1, count, laneHeight);
    }
  }
}

function drawTimes(to: CanvasRenderingContext2D, picture: Picture, ink: Ink, first: number, last: number): void {
  const { spans, axis, from, width, height } = picture;
  to.fillStyle = ink.soft;
  to.textAlign = "left";
  to.textBaseline = "middle";
  let next = 0;
  let before = "";
  for (let i = first; i <= last; i++) {
    const span = spans[i]!;
    const x = centre(axis, spans, i) - from;
    if (!span.begin || x < next) continue;
    const text = new Date(span.begin).toLocaleTimeString();
    if (text === before) continue;
    const right = x + 3 + to.measureText(text).width;
    if (right > width || axis.gaps.some((gap) => gap.x - from < right + 3 && gap.x - from + gap.width > x)) continue;
    before = text;
    to.fillRect(x, height - TIMES, 1, 4);
    to.fillText(text, x + 3, height - TIMES / 2);
    next = x + TICK_EVERY;
  }
}

function drawCursor(to: CanvasRenderingContext2D, { axis, spans, from, current, width, height, hover }: Picture, ink: Ink): void {
  if (hover !== null && hover !== current) {
    to.fillStyle = ink.line;
    to.fillRect(Math.round(centre(axis, spans, hover) - from), 0, 1, height - TIMES);
  }
  const x = current === null ? Math.min(width - 2, axis.length - from) : centre(axis, spans, current) - from;
  if (x < -2 || x > width + 2) return;
  to.fillStyle = current === null ? ink.parts.status! : ink.accent;
  to.fillRect(Math.round(x) - 1, 0, 2, height - TIMES + 4);
  to.beginPath();
  to.moveTo(x - 6, 0);
  to.lineTo(x + 6, 0);
  to.lineTo(x, 7);
  to.fill();
}
