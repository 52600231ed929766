/** Draws edges and moving dots on the canvas behind the boxes. */
import { colour } from "../../state/settings";
import type { Part } from "../../writes/writes";
import { BOX_HEIGHT } from "./layout";
import type { Stage, Travel } from "./travel";

const PART_COLOURS: Record<Part, string> = {
  created: "--part-spec",
  spec: "--part-spec",
  status: "--part-status",
  metadata: "--part-meta",
  deleted: "--part-deletion",
  heartbeat: "--part-status",
};
const DASHES: Record<string, number[]> = { owns: [], scales: [6, 4], selects: [6, 4], uses: [2, 4], "runs-on": [2, 4] };

export interface Colours {
  line: string;
  strong: string;
  accent: string;
  surface: string;
  parts: Record<Part, string>;
}

export function readColours(): Colours {
  const parts = Object.fromEntries(Object.entries(PART_COLOURS).map(([part, name]) => [part, colour(name)]));
  return {
    line: colour("--line"),
    strong: colour("--line-strong"),
    accent: colour("--accent"),
    surface: colour("--surface"),
    parts: parts as Record<Part, string>,
  };
}

export interface Viewport {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Draw everything that is visible. `lit` is the box whose edges stand out. */
export function paint(
  context: CanvasRenderingContext2D,
  stage: Stage,
  travel: Travel,
  view: Viewport,
  colours: Colours,
  lit: string | null,
  now: number,
  slower: number,
): void {
  const scale = window.devicePixelRatio || 1;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, view.width, view.height);
  context.translate(-view.left, -view.top);
  edges(context, stage, view, colours, lit);
  for (const dot of travel.dots) {
    const place = travel.position(dot, stage, now, slower);
    if (!place) continue;
    context.beginPath();
    const radius = dot.ring ? 4 : dot.count > 1 ? 9 : 6;
    context.arc(place.x, place.y, radius, 0, 2 * Math.PI);
    if (dot.ring) {
      context.strokeStyle = colours.parts[dot.part];
      context.lineWidth = 1.5;
      context.stroke();
      continue;
    }
    context.fillStyle = colours.parts[dot.part];
    context.fill();
    if (dot.count > 1) {
      context.fillStyle = colours.surface;
      context.font = "600 10px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText(dot.count > 99 ? "99+" : String(dot.count), place.x, place.y);
    }
  }
}

function edges(context: CanvasRenderingContext2D, stage: Stage, view: Viewport, colours: Colours, lit: string | null): void {
  const { boxes } = stage.layout;
  for (const edge of stage.graph.edges) {
    const [from, to] = [boxes.get(edge.from), boxes.get(edge.to)];
    if (!from || !to) continue;
    const start = { x: from.x + stage.layout.box, y: from.y + BOX_HEIGHT / 2 };
    const end = { x: to.x, y: to.y + BOX_HEIGHT / 2 };
    if (Math.max(start.y, end.y) < view.top || Math.min(start.y, end.y) > view.top + view.height) continue;
    if (end.x < view.left || start.x > view.left + view.width) continue;
    const strong = lit !== null && (edge.from === lit || edge.to === lit);
    context.beginPath();
    context.setLineDash(DASHES[edge.how] ?? []);
    context.strokeStyle = strong ? colours.accent : colours.strong;
    context.lineWidth = strong ? 2 : edge.how === "owns" ? 1.25 : 1.5;
    const bend = Math.max(24, (end.x - start.x) / 2);
    context.moveTo(start.x, start.y);
    context.bezierCurveTo(start.x + bend, start.y, end.x - bend, end.y, end.x, end.y);
    context.stroke();
  }
  context.setLineDash([]);
}
