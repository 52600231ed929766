/**
 * Places boxes in columns by their rank. Boxes that were there before keep their places, as far as there is space: new
 * ones take free places beside their neighbours. It is linear in the number of boxes and edges, so it needs no worker.
 */
import { boxKind, boxName } from "./model";
import type { Graph } from "./model";

export interface Place {
  x: number;
  y: number;
}

export interface Layout {
  boxes: Map<string, Place>;
  actors: Map<string, Place>;
  /** The x of the bar of the API server. */
  bar: number;
  /** The width of a box. */
  box: number;
  /** The size of an actor. */
  actor: { width: number; height: number };
  /** Whether names of actors have two lines, so that all columns fit. */
  compact: boolean;
  width: number;
  height: number;
}

export const BOX_HEIGHT = 50;
const MOST = { box: 196, gap: 64 };
/** An actor has room for `endpointslice-controller`, the longest name of those that act on most chains. */
const SPACED = { margin: 16, actor: { width: 158, height: 30 }, bar: 22, first: 26, box: 138, gap: 28 };
/** Four columns fit beside the inspector in a window of 1,240 px, with a scrollbar. */
const COMPACT = { margin: 8, actor: { width: 104, height: 34 }, bar: 16, first: 18, box: 130, gap: 18 };
const GAP_Y = 12;
const ACTOR_GAP = 14;
const MARGIN = 16;
const STEP = BOX_HEIGHT + GAP_Y;
const SWEEPS = 4;
/** How much more a box resists to be moved if it was there before. */
const STAYS = 50;
const FREE = 0.001;
/** A column may be this many times as high as its boxes need before everything is arranged again. */
const LOOSE = 2;

/** Arrange the boxes; `available` is the width of the window, to which the columns adapt as far as they can. */
export function arrange(graph: Graph, actors: readonly string[], before: Layout | null, available: number): Layout {
  const columns = columnsOf(graph);
  const count = Math.max(1, columns.length);
  // What must be scrolled in any case need not be narrow.
  const compact = leastWidth(SPACED, count) > available && leastWidth(COMPACT, count) <= available;
  const sizes = compact ? COMPACT : SPACED;
  const actor = sizes.actor;
  const bar = sizes.margin + actor.width + sizes.bar;
  const first = bar + sizes.first;
  const [least, most] = [sizes.box + sizes.gap, MOST.box + MOST.gap];
  const unit = Math.min(most, Math.max(least, Math.floor((available - first - sizes.margin) / count)));
  const box = Math.round(Math.min(MOST.box, sizes.box + (unit - least) * 0.6));
  const gap = unit - box;
  const kept = before && isTight(columns, before) ? before : null;
  const ys = kept ? adjusted(graph, columns, kept) : fresh(graph, columns);
  const top = Math.min(...ys.values(), Infinity);
  const shift = Number.isFinite(top) ? (kept ? Math.max(0, MARGIN - top) : MARGIN - top) : 0;
  const boxes = new Map<string, Place>();
  let height = 0;
  for (const [rank, keys] of columns.entries()) {
    for (const key of keys) {
      const y = Math.round(ys.get(key)! + shift);
      boxes.set(key, { x: first + rank * unit, y });
      height = Math.max(height, y + BOX_HEIGHT);
    }
  }
  const places = new Map<string, Place>();
  actors.forEach((name, index) => {
    places.set(name, { x: sizes.margin, y: MARGIN + 24 + index * (actor.height + ACTOR_GAP) });
    height = Math.max(height, MARGIN + 24 + (index + 1) * (actor.height + ACTOR_GAP));
  });
  const width = first + count * unit - gap + sizes.margin;
  return { boxes, actors: places, bar, box, actor, compact, width, height: height + MARGIN };
}

/** The width of so many columns that are as narrow as possible. */
function leastWidth(sizes: typeof SPACED, columns: number): number {
  return 2 * sizes.margin + sizes.actor.width + sizes.bar + sizes.first + columns * (sizes.box + sizes.gap) - sizes.gap;
}

/** The keys of each column; ranks without boxes are left out. */
function columnsOf(graph: Graph): string[][] {
  const byRank = new Map<number, string[]>();
  for (const [key, box] of graph.boxes) addTo(byRank, box.rank, key);
  return [...byRank.keys()].sort((a, b) => a - b).map((rank) => byRank.get(rank)!);
}

function addTo<K>(lists: Map<K, string[]>, key: K, value: string): void {
  const known = lists.get(key);
  if (known) known.push(value);
  else lists.set(key, [value]);
}

function isTight(columns: readonly string[][], before: Layout): boolean {
  const most = Math.max(...columns.map((keys) => keys.length), 1) * STEP;
  let [top, bottom, known] = [Infinity, 0, 0];
  for (const keys of columns) {
    for (const key of keys) {
      const place = before.boxes.get(key);
      if (!place) continue;
      known += 1;
      top = Math.min(top, place.y);
      bottom = Math.max(bottom, place.y + BOX_HEIGHT);
    }
  }
  return known > 0 && bottom - top <= Math.max(LOOSE * most, 6 * STEP);
}

function neighbours(graph: Graph): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const edge of graph.edges) {
    if (!graph.boxes.has(edge.from) || !graph.boxes.has(edge.to)) continue;
    addTo(found, edge.from, edge.to);
    addTo(found, edge.to, edge.from);
  }
  return found;
}

function mean(keys: readonly string[], ys: ReadonlyMap<string, number>): number | null {
  const known = keys.map((key) => ys.get(key)).filter((y) => y !== undefined);
  return known.length === 0 ? null : known.reduce((sum, y) => sum + y, 0) / known.length;
}

/** Arrange everything anew: owners beside what they own, without crossings as far as the order of names permits. */
function fresh(graph: Graph, columns: string[][]): Map<string, number> {
  const near = neighbours(graph);
  const order = treeOrder(graph);
  const ys = new Map<string, number>();
  for (const keys of columns) {
    keys.sort((a, b) => order.get(a)! - order.get(b)!);
    keys.forEach((key, index) => ys.set(key, index * STEP));
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const ordered = sweep % 2 ? [...columns].reverse() : columns;
    for (const keys of ordered) {
      const wanted = keys.map((key) => mean(near.get(key) ?? [], ys) ?? ys.get(key)!);
      // A box without neighbours goes where the others leave space.
      const weights = keys.map((key) => (near.has(key) ? 1 : FREE));
      spread(wanted, weights).forEach((y, index) => ys.set(keys[index]!, y));
    }
  }
  return ys;
}

/** The place of each box in a walk from the left along the edges. */
function treeOrder(graph: Graph): Map<string, number> {
  const following = new Map<string, string[]>();
  for (const edge of graph.edges) addTo(following, edge.from, edge.to);
  const compare = (a: string, b: string) => {
    const [one, other] = [graph.boxes.get(a)!, graph.boxes.get(b)!];
    // A group stands below those of its siblings that have boxes of their own.
    const groups = Number(one.type === "group") - Number(other.type === "group");
    return one.rank - other.rank || groups || boxKind(one).localeCompare(boxKind(other)) || boxName(one).localeCompare(boxName(other)) || a.localeCompare(b);
  };
  const order = new Map<string, number>();
  const visit = (key: string) => {
    if (order.has(key) || !graph.boxes.has(key)) return;
    order.set(key, order.size);
    (following.get(key) ?? []).filter((one) => graph.boxes.has(one)).sort(compare).forEach(visit);
  };
  [...graph.boxes.keys()].sort(compare).forEach(visit);
  return order;
}

/** Keep the places of known boxes, and find free ones for new boxes. */
function adjusted(graph: Graph, columns: string[][], before: Layout): Map<string, number> {
  const near = neighbours(graph);
  const ys = new Map<string, number>();
  for (const [key, place] of before.boxes) if (graph.boxes.has(key)) ys.set(key, place.y);
  for (const keys of columns) {
    const known = new Set(keys.filter((key) => ys.has(key)));
    const used = [...known].map((key) => ys.get(key)!).sort((a, b) => a - b);
    for (const key of keys) {
      if (known.has(key)) continue;
      const y = freePlace(mean(near.get(key) ?? [], ys) ?? used.at(-1) ?? 0, used);
      ys.set(key, y);
      used.push(y);
      used.sort((a, b) => a - b);
    }
    keys.sort((a, b) => ys.get(a)! - ys.get(b)!);
    const weights = keys.map((key) => (known.has(key) ? STAYS : 1));
    spread(keys.map((key) => ys.get(key)!), weights).forEach((y, index) => ys.set(keys[index]!, y));
  }
  return ys;
}

/** The free place in a column that is nearest to the wanted one. */
function freePlace(wanted: number, used: readonly number[]): number {
  const candidates = [wanted, ...used.map((y) => y + STEP), ...used.map((y) => y - STEP)].filter((y) => y >= 0);
  const free = candidates.filter((y) => used.every((other) => Math.abs(other - y) >= STEP - 1));
  if (free.length === 0) return (used.at(-1) ?? 0) + STEP;
  return free.reduce((best, y) => (Math.abs(y - wanted) < Math.abs(best - wanted) ? y : best));
}

/** The places nearest to the wanted ones that keep the order and the distance: pooled means, weighted. */
function spread(wanted: readonly number[], weights: readonly number[]): number[] {
  const pools: { value: number; weight: number; count: number }[] = [];
  wanted.forEach((y, index) => {
    pools.push({ value: y - index * STEP, weight: weights[index]!, count: 1 });
    for (;;) {
      const [last, one] = [pools.at(-1)!, pools.at(-2)];
      if (!one || one.value <= last.value) break;
      const weight = one.weight + last.weight;
      pools.splice(-2, 2, { value: (one.value * one.weight + last.value * last.weight) / weight, weight, count: one.count + last.count });
    }
  });
  return pools.flatMap((pool) => Array<number>(pool.count).fill(pool.value)).map((value, index) => value + index * STEP);
}
