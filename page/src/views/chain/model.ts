/** The graph of the feed `chain` (`src/setpoint/web/chain/graph.py`), and its form as a tree. */
import { refOf } from "../../state/kinds";
import type { ObjectRef } from "../../state/refs";
import type { PhaseName } from "../../ui/phase";
import { chain as words } from "../../words/chain";
import { writtenKey } from "../../writes/writes";
import type { Role, Written } from "../../writes/writes";

export type How = "owns" | "selects" | "scales" | "runs-on" | "uses";

export interface ObjectBox {
  type: "object";
  ref: ObjectRef;
  rank: number;
  phase: PhaseName;
  state: string;
  note: string;
  desired: string;
  observed: string;
  created: string;
  gauge?: [number, number];
  root?: boolean;
}

export interface GroupBox {
  type: "group";
  ref: Omit<ObjectRef, "name">;
  kind: string;
  rank: number;
  count: number;
  states: Record<string, number>;
  phase: PhaseName;
  prefix: string;
  parent: string;
}

/** An owner of a kind that is not read. */
export interface OwnerBox {
  type: "owner";
  api_version: string;
  kind: string;
  name: string;
  uid: string;
  rank: number;
}

export type Box = ObjectBox | GroupBox | OwnerBox;

export interface Edge {
  type: "edge";
  from: string;
  to: string;
  how: How;
}

export interface Actor {
  type: "actor";
  name: string;
  role: Role;
}

export interface ChainState {
  type: "chain";
  leftOut: number;
  exists: boolean;
  unreadable: string[];
}

export type Item = Box | Edge | Actor | ChainState;

export interface Graph {
  boxes: Map<string, Box>;
  edges: Edge[];
  actors: Map<string, Actor>;
  state: ChainState | null;
}

export function readGraph(items: ReadonlyMap<string, Item>): Graph {
  const graph: Graph = { boxes: new Map(), edges: [], actors: new Map(), state: null };
  for (const [key, item] of items) {
    if (item.type === "edge") graph.edges.push(item);
    else if (item.type === "actor") graph.actors.set(item.name, item);
    else if (item.type === "chain") graph.state = item;
    else graph.boxes.set(key, item);
  }
  return graph;
}

/** The box in which a written object is: its own, or the group that contains it; null if it is not shown. */
export function boxOf(graph: Graph, written: Written): string | null {
  const own = writtenKey(written);
  if (graph.boxes.has(own)) return own;
  const parent = parentOf(written);
  if (parent === null) return null;
  const group = `group:${parent}:${written.group}/${written.resource}`;
  return graph.boxes.has(group) ? group : null;
}

/** The key of the controlling owner of a written object. */
export function parentOf(written: Written): string | null {
  if (!written.owner) return null;
  const ref = refOf({ ...written.owner, namespace: written.namespace });
  return ref ? writtenKey(ref) : null;
}

export function boxName(box: Box): string {
  if (box.type === "group") return words.states(box.states);
  return box.type === "owner" ? box.name : box.ref.name;
}

export function boxKind(box: Box): string {
  return box.type === "object" ? box.ref.kind : box.kind;
}

/** A sentence for screen readers. */
export function boxLabel(box: Box): string {
  if (box.type === "group") return words.group(box.kind, box.prefix, box.count, words.states(box.states));
  if (box.type === "owner") return `${box.kind} ${box.name}, ${words.owner}`;
  const gauge = box.gauge ? `, ${box.gauge[0]} of ${box.gauge[1]}` : "";
  return `${box.ref.kind} ${box.ref.name}, ${box.phase}${gauge}${box.note ? `: ${box.note}` : ""}`;
}

export interface TreeRow {
  key: string;
  box: Box;
  level: number;
  /** Whether rows below belong to it. */
  parent: boolean;
  /** How it is related to the row above it in the tree; null at the top. */
  how: How | null;
}

/** The graph as rows of a tree: owners before what they own; what is related otherwise stands at the top level. */
export function treeRows(graph: Graph, collapsed: ReadonlySet<string>): TreeRow[] {
  const children = new Map<string, string[]>();
  const owned = new Set<string>();
  for (const edge of graph.edges) {
    if (edge.how !== "owns" || owned.has(edge.to)) continue;
    owned.add(edge.to);
    const known = children.get(edge.from);
    if (known) known.push(edge.to);
    else children.set(edge.from, [edge.to]);
  }
  const rows: TreeRow[] = [];
  const seen = new Set<string>();
  const order = (a: string, b: string) => {
    const [one, other] = [graph.boxes.get(a)!, graph.boxes.get(b)!];
    return one.rank - other.rank || boxKind(one).localeCompare(boxKind(other)) || a.localeCompare(b);
  };
  const add = (key: string, level: number) => {
    const box = graph.boxes.get(key);
    if (!box || seen.has(key)) return;
    seen.add(key);
    const below = (children.get(key) ?? []).filter((one) => graph.boxes.has(one)).sort(order);
    rows.push({ key, box, level, parent: below.length > 0, how: level > 1 ? "owns" : null });
    if (!collapsed.has(key)) for (const one of below) add(one, level + 1);
    else for (const one of below) hide(one);
  };
  const hide = (key: string) => {
    seen.add(key);
    for (const one of children.get(key) ?? []) if (!seen.has(one)) hide(one);
  };
  for (const key of [...graph.boxes.keys()].filter((one) => !owned.has(one)).sort(order)) add(key, 1);
  for (const key of graph.boxes.keys()) add(key, 1); // a cycle of owners has no top
  return rows;
}
