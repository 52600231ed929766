/** Names of zones, nodes and Pods above the picture, where they are large enough, and rings around single cells. */
import { visible } from "../../ui/text";
import { fleet as words } from "../../words/fleet";
import { cellsOf } from "./geometry";
import type { Camera, Plan } from "./geometry";
import type { FleetModel } from "./model";
import { STATE_MASK } from "./states";

const MOST = 300;
const NODE_WIDTH = 44;
const NODE_HEIGHT = 13;
/** The size of a cell from which on it has the name of its Pod. */
const POD_SIZE = 64;
const ASK_AGAIN = 300;
const SMALLEST_RING = 9;

/** Pixels of a letter and of a line, and what the borders of a cell and its state take of it; as in `fleet.css`. */
const LETTER = 6.9;
const LINE = 13.75;
const BESIDE = { state: 38, name: 16 };
const ABOVE_NAME = 9 + LINE + 5 + 8;

/** The name of a state if there is space for it: the mark in the cell says the same. */
export function stateText(label: string, size: number): string {
  return BESIDE.state + label.length * LETTER <= size ? label : "";
}

/** The name of a Pod in a cell. Of a name that is too long, the end stays: it tells the Pods of a set apart. */
export function podText(name: string, size: number): string {
  const wide = Math.floor((size - BESIDE.name) / LETTER);
  const high = Math.floor((size - ABOVE_NAME) / LINE);
  if (linesOf(name, wide) <= high) return name;
  const last = name.slice(name.lastIndexOf("-") + 1).slice(-wide + 1);
  if (high < 2) return `…${last}`;
  // Hyphens without a break: the begin may not take more lines than it has.
  const begin = name.slice(0, (high - 1) * wide - 2).replaceAll("-", "\u2011");
  return `${begin}…\n-${last}`;
}

/** The number of lines of a text that is broken behind hyphens where possible. */
function linesOf(text: string, wide: number): number {
  let lines = 1;
  let used = 0;
  for (const word of text.split(/(?<=-)/)) {
    if (used > 0 && used + word.length > wide) [lines, used] = [lines + 1, 0];
    lines += Math.ceil(word.length / wide) - 1;
    used = used + word.length > wide ? word.length % wide || wide : used + word.length;
  }
  return lines;
}

interface Label {
  kind: string;
  x: number;
  y: number;
  width: number;
  height: number;
  text: string;
  more: string;
}

export class Labels {
  private readonly layer: HTMLElement;
  private readonly pool: HTMLElement[] = [];
  private readonly rings = new Map<string, { element: HTMLElement; index: number | null }>();
  /** Names of Pods by position of the node and slot. */
  private readonly names = new Map<number, readonly (string | null)[]>();
  private readonly stale = new Set<number>();
  private asked = 0;
  private timer = 0;
  private wanted: number[] = [];
  private again: (() => void) | null = null;

  constructor(
    host: HTMLElement,
    private readonly model: FleetModel,
    private readonly ask: (positions: number[]) => void,
  ) {
    this.layer = document.createElement("div");
    this.layer.className = "fleet-labels";
    this.layer.setAttribute("aria-hidden", "true");
    host.append(this.layer);
    for (const name of ["selected", "cursor"]) {
      const element = document.createElement("div");
      element.className = `fleet-ring ${name}`;
      element.hidden = true;
      this.layer.append(element);
      this.rings.set(name, { element, index: null });
    }
    model.onRenamed = (position) => {
      if (position === null) this.names.clear();
      else if (this.names.has(position)) this.stale.add(position);
    };
  }

  dispose(): void {
    window.clearTimeout(this.timer);
    this.model.onRenamed = () => {};
    this.layer.remove();
  }

  /** Show a ring around the cell of an index; null: none. */
  ring(name: "selected" | "cursor", index: number | null): void {
    const ring = this.rings.get(name)!;
    ring.index = index;
    this.again?.();
  }

  /** The name of the Pod at an index, if it is known already. */
  nameAt(index: number): string | null {
    const position = Math.floor(index / this.model.stride);
    if (this.stale.has(position)) return null;
    return this.names.get(position)?.[index % this.model.stride] ?? null;
  }

  receiveNames(layout: number, nodes: readonly [position: number, names: readonly (string | null)[]][]): void {
    if (layout !== this.model.layout) return;
    for (const [position, names] of nodes) {
      this.names.set(position, names);
      this.stale.delete(position);
    }
    this.again?.();
  }

  /** Put the labels in their places. `dirty`: nodes whose Pods have changed; null: everything. */
  update(plan: Plan, camera: Camera, width: number, height: number, dirty: ReadonlySet<number> | null): void {
    this.again = () => this.place(plan, camera, width, height);
    if (dirty && camera.scale < POD_SIZE) return;
    this.place(plan, camera, width, height);
  }

  private place(plan: Plan, camera: Camera, width: number, height: number): void {
    const labels = [...this.zoneLabels(plan, camera, height), ...this.boxLabels(plan, camera, width, height)];
    labels.forEach((label, i) => {
      let element = this.pool[i];
      if (!element) {
        element = document.createElement("div");
        element.append(document.createElement("b"), document.createElement("span"));
        this.layer.append(element);
        this.pool.push(element);
      }
      write(element, label);
    });
    for (const element of this.pool.slice(labels.length)) element.hidden = true;
    for (const { element, index } of this.rings.values()) this.placeRing(element, index, plan, camera);
  }

  private placeRing(element: HTMLElement, index: number | null, plan: Plan, camera: Camera): void {
    const position = index === null ? -1 : Math.floor(index / this.model.stride);
    const slot = index === null ? 0 : index % this.model.stride;
    element.hidden = position < 0 || position >= plan.nodes || slot >= plan.columns * plan.rows;
    if (element.hidden) return;
    const corner = cellsOf(plan, position);
    const size = Math.max(SMALLEST_RING, camera.scale);
    const x = (corner.x + (slot % plan.columns) + 0.5 - camera.x) * camera.scale - size / 2;
    const y = (corner.y + Math.floor(slot / plan.columns) + 0.5 - camera.y) * camera.scale - size / 2;
    element.style.transform = `translate(${x}px, ${y}px)`;
    element.style.width = element.style.height = `${size}px`;
  }

  private zoneLabels(plan: Plan, camera: Camera, height: number): Label[] {
    if (plan.heading === 0) return [];
    const found: Label[] = [];
    for (const zone of plan.zones) {
      const y = (zone.top - camera.y) * camera.scale;
      const size = plan.heading * camera.scale;
      if (y + size < 0 || y > height) continue;
      found.push({
        kind: "fleet-zone",
        x: Math.max(0, (plan.gapX - camera.x) * camera.scale),
        y,
        width: 400,
        height: Math.min(size, 40),
        text: visible(zone.name || words.noZone),
        more: words.zoneNodes(zone.count),
      });
    }
    return found;
  }

  private boxLabels(plan: Plan, camera: Camera, width: number, height: number): Label[] {
    const { scale } = camera;
    const boxWidth = plan.boxWidth * scale;
    const gap = plan.gapY * scale;
    if (boxWidth < NODE_WIDTH || gap < NODE_HEIGHT) return [];
    const positions = visiblePositions(plan, camera, width, height);
    if (positions.length > MOST) return [];
    const found: Label[] = [];
    for (const position of positions) {
      const node = this.model.nodes[position];
      if (!node) continue;
      const corner = cellsOf(plan, position);
      const state = node.state === 1 ? (node.cordoned ? words.cordoned : "") : (words.nodeStates[node.state] ?? "");
      found.push({
        kind: state ? "fleet-node bad" : "fleet-node",
        x: (corner.x - camera.x) * scale,
        y: (corner.y - camera.y) * scale - Math.min(gap, 24),
        width: plan.columns * scale,
        height: Math.min(gap, 24),
        text: visible(node.name),
        more: state,
      });
    }
    if (scale >= POD_SIZE) this.podLabels(plan, camera, positions, found);
    return found.slice(0, MOST);
  }

  private podLabels(plan: Plan, camera: Camera, positions: readonly number[], found: Label[]): void {
    const { model } = this;
    const { scale } = camera;
    const missing: number[] = [];
    for (const position of positions) {
      const names = this.names.get(position);
      if (!names || this.stale.has(position)) missing.push(position);
      if (!names) continue;
      const corner = cellsOf(plan, position);
      for (let slot = 0; slot < Math.min(names.length, plan.columns * plan.rows); slot++) {
        const name = names[slot];
        const state = (model.slots[position * model.stride + slot] ?? 0) & STATE_MASK;
        if (!name || !state) continue;
        found.push({
          kind: "fleet-pod",
          x: (corner.x + (slot % plan.columns) - camera.x) * scale,
          y: (corner.y + Math.floor(slot / plan.columns) - camera.y) * scale,
          width: scale,
          height: scale,
          text: stateText(words.states[state]?.label ?? "", scale),
          more: podText(visible(name.slice(name.indexOf("/") + 1)), scale),
        });
      }
    }
    this.want(missing);
  }

  /** Ask for names, at most once in `ASK_AGAIN` milliseconds. */
  private want(positions: number[]): void {
    this.wanted = positions;
    if (positions.length === 0 || this.timer) return;
    const send = () => {
      this.timer = 0;
      if (this.wanted.length === 0) return;
      this.asked = performance.now();
      this.ask(this.wanted.slice(0, 64));
    };
    const rest = this.asked + ASK_AGAIN - performance.now();
    if (rest <= 0) send();
    else this.timer = window.setTimeout(send, rest);
  }
}

/** Nodes whose boxes are at least partly in the window. */
export function visiblePositions(plan: Plan, camera: Camera, width: number, height: number): number[] {
  const found: number[] = [];
  const first = Math.max(0, Math.floor(camera.x / plan.boxWidth));
  const last = Math.min(plan.across - 1, Math.floor((camera.x + width / camera.scale) / plan.boxWidth));
  const bottom = camera.y + height / camera.scale;
  for (const zone of plan.zones) {
    const from = Math.max(0, Math.floor((camera.y - zone.body) / plan.boxHeight));
    const to = Math.min(zone.rows - 1, Math.floor((bottom - zone.body) / plan.boxHeight));
    for (let row = from; row <= to; row++) {
      for (let column = first; column <= last; column++) {
        const position = plan.grid[(zone.firstRow + row) * plan.across + column] ?? -1;
        if (position >= 0) found.push(position);
      }
    }
  }
  return found;
}

function write(element: HTMLElement, label: Label): void {
  const [text, more] = element.children as unknown as [HTMLElement, HTMLElement];
  element.hidden = false;
  if (element.className !== label.kind) element.className = label.kind;
  if (text.textContent !== label.text) text.textContent = label.text;
  if (more.textContent !== label.more) more.textContent = label.more;
  const { style } = element;
  style.transform = `translate(${label.x}px, ${label.y}px)`;
  style.width = `${label.width}px`;
  style.height = `${label.height}px`;
}
