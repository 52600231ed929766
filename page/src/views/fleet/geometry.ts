/**
 * Where nodes and Pods are in the picture.
 *
 * The unit of the plane is the side of a Pod's cell. A node is a box of `columns` x `rows` cells with a gap to its right
 * and above it; boxes stand in a grid, which begins anew for each zone, below the zone's heading.
 */

export interface Zone {
  name: string;
  /** Position of its first node. */
  first: number;
  count: number;
  /** The top of its heading. */
  top: number;
  /** The top of its first row of boxes. */
  body: number;
  /** The number of its first row of boxes among all rows. */
  firstRow: number;
  rows: number;
}

export interface Plan {
  /** Cells of a box. */
  columns: number;
  rows: number;
  /** The distance from one box to the next. */
  boxWidth: number;
  boxHeight: number;
  /** Gaps to the left of the cells and above them, inside of the box. */
  gapX: number;
  gapY: number;
  /** Boxes in a row. */
  across: number;
  width: number;
  height: number;
  /** Height of the heading of a zone. */
  heading: number;
  zones: Zone[];
  /** Pixels for a unit, at which everything is visible. */
  fit: number;
  /** Position of the node at each place of the grid of boxes, by row; -1 if there is none. */
  grid: Int32Array<ArrayBuffer>;
  gridRows: number;
  nodes: number;
}

const LARGEST_FIT = 108;
/** From this size of a cell on, boxes have names. */
export const NAMED = 10;
const GAP_PIXELS = 12;
const NAME_PIXELS = 30;
const HEADING_PIXELS = 28;
export const LARGEST = 180;
export const MOST_ZONES = 32;

/** The cells of a box that has space for `used` Pods, nearly square. */
export function boxShape(used: number): { columns: number; rows: number } {
  const columns = Math.max(2, Math.ceil(Math.sqrt(used)));
  return { columns, rows: Math.max(2, Math.ceil(used / columns)) };
}

/** Arrange the boxes so that they are as large as possible in a window of `width` x `height` pixels. */
export function makePlan(zoneNames: readonly string[], used: number, width: number, height: number): Plan {
  const { columns, rows } = boxShape(used);
  const zones: { name: string; first: number; count: number }[] = [];
  zoneNames.forEach((name, position) => {
    const last = zones.at(-1);
    if (last && (last.name === name || zones.length === MOST_ZONES)) last.count += 1;
    else zones.push({ name, first: position, count: 1 });
  });
  const headed = zones.length > 1 || (zones[0]?.name ?? "") !== "";
  const headingPixels = headed ? HEADING_PIXELS : 0;
  const space = { width: Math.max(50, width), height: Math.max(50, height - zones.length * headingPixels) };
  // With names: the gaps are of a fixed number of pixels. Without: of one cell.
  let best = arrange(zones, space, columns, rows, GAP_PIXELS, NAME_PIXELS, 0);
  const named = best.scale >= NAMED;
  if (!named) best = arrange(zones, space, columns, rows, 0, 0, 1);
  const fit = Math.min(LARGEST_FIT, best.scale);
  const gapX = named ? GAP_PIXELS / fit : 1;
  const gapY = named ? NAME_PIXELS / fit : 1;
  const boxWidth = columns + gapX;
  const boxHeight = rows + gapY;
  const heading = headingPixels / fit;
  const across = best.across;
  let top = 0;
  let gridRows = 0;
  const placed: Zone[] = zones.map((zone) => {
    const found = { ...zone, top, body: top + heading, firstRow: gridRows, rows: Math.ceil(zone.count / across) };
    gridRows += found.rows;
    top = found.body + found.rows * boxHeight;
    return found;
  });
  const grid = new Int32Array(Math.max(1, across * gridRows)).fill(-1);
  for (const zone of placed) {
    for (let i = 0; i < zone.count; i++) grid[zone.firstRow * across + i] = zone.first + i;
  }
  return {
    columns,
    rows,
    boxWidth,
    boxHeight,
    gapX,
    gapY,
    across,
    width: across * boxWidth + gapX,
    height: top + gapX,
    heading,
    zones: placed,
    fit,
    grid,
    gridRows,
    nodes: zoneNames.length,
  };
}

function arrange(
  zones: readonly { count: number }[],
  space: { width: number; height: number },
  columns: number,
  rows: number,
  gap: number,
  name: number,
  units: number,
): { scale: number; across: number } {
  let best = { scale: 0, across: 1 };
  const most = Math.max(1, ...zones.map((zone) => zone.count));
  for (let across = 1; across <= most; across++) {
    const down = zones.reduce((sum, zone) => sum + Math.ceil(zone.count / across), 0) || 1;
    const scale = Math.min(
      ((space.width - gap) / across - gap) / (columns + units + units / across),
      ((space.height - gap) / down - name) / (rows + units + units / down),
    );
    if (scale > best.scale) best = { scale, across };
  }
  return best.scale > 0 ? best : { scale: 0.05, across: Math.max(1, Math.round(Math.sqrt(most))) };
}

/** The place of the window on the plane. */
export interface Camera {
  /** Pixels for a unit. */
  scale: number;
  /** The point of the plane at the left upper corner of the window. */
  x: number;
  y: number;
}

export function fitCamera(plan: Plan, width: number, height: number): Camera {
  return clampCamera({ scale: plan.fit, x: 0, y: 0 }, plan, width, height);
}

/** Keep the picture in the window: centred if it is smaller, without empty margins if it is larger. */
export function clampCamera(camera: Camera, plan: Plan, width: number, height: number): Camera {
  const scale = Math.min(LARGEST, Math.max(plan.fit * 0.75, camera.scale));
  const along = (from: number, size: number, window: number) => {
    const shown = window / scale;
    return size <= shown ? (size - shown) / 2 : Math.min(size - shown, Math.max(0, from));
  };
  // A small fleet begins at the top, not in the middle.
  const y = plan.height <= height / scale ? 0 : along(camera.y, plan.height, height);
  return { scale, x: along(camera.x, plan.width, width), y };
}

/** Zoom so that the point of the plane below a pixel stays below it. */
export function zoomAt(camera: Camera, factor: number, px: number, py: number, plan: Plan, width: number, height: number): Camera {
  const scale = Math.min(LARGEST, Math.max(plan.fit * 0.75, camera.scale * factor));
  const x = camera.x + px / camera.scale - px / scale;
  const y = camera.y + py / camera.scale - py / scale;
  return clampCamera({ scale, x, y }, plan, width, height);
}

/** The zone at a height of the plane; null in headings and below the last. */
export function zoneAt(plan: Plan, y: number): Zone | null {
  for (const zone of plan.zones) {
    if (y >= zone.body && y < zone.body + zone.rows * plan.boxHeight) return zone;
  }
  return null;
}

export interface Place {
  position: number;
  /** -1: the node's own part of the box, beside the cells. */
  slot: number;
}

/** What is at a point of the plane. */
export function placeAt(plan: Plan, x: number, y: number): Place | null {
  const zone = zoneAt(plan, y);
  if (!zone || x < 0) return null;
  const column = Math.floor(x / plan.boxWidth);
  if (column >= plan.across) return null;
  const row = Math.floor((y - zone.body) / plan.boxHeight);
  const position = plan.grid[(zone.firstRow + row) * plan.across + column] ?? -1;
  if (position < 0) return null;
  const inX = x - column * plan.boxWidth - plan.gapX;
  const inY = y - zone.body - row * plan.boxHeight - plan.gapY;
  if (inX < 0 || inY < 0) return { position, slot: -1 };
  return { position, slot: Math.floor(inY) * plan.columns + Math.min(plan.columns - 1, Math.floor(inX)) };
}

/** The left upper corner of the cells of a node. */
export function cellsOf(plan: Plan, position: number): { x: number; y: number } {
  const zone = zoneOf(plan, position);
  const within = position - zone.first;
  return {
    x: (within % plan.across) * plan.boxWidth + plan.gapX,
    y: zone.body + Math.floor(within / plan.across) * plan.boxHeight + plan.gapY,
  };
}

export function zoneOf(plan: Plan, position: number): Zone {
  let found = plan.zones[0]!;
  for (const zone of plan.zones) if (zone.first <= position) found = zone;
  return found;
}
