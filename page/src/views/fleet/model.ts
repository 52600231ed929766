/**
 * The state of the fleet in the browser: a byte for each slot, and counts for each node. No object for a Pod.
 *
 * The messages and frames are those of `src/setpoint/web/feeds/fleet.py` and `src/setpoint/web/fleet/frames.py`.
 */
import { signal } from "@preact/signals";
import { NODE_MISSING, STATES, STATE_MASK } from "./states";

export interface FleetNode {
  name: string;
  zone: string;
  state: number;
  cordoned: boolean;
  /** Pods of the node for which there is no slot. */
  extra: number;
}

export interface FoundPod {
  index: number;
  /** As `namespace/name`. */
  name: string;
  node: string;
  state: number;
}

type NodeRow = [name: string, zone: string, state: number, cordoned: boolean, extra: number];

interface LayoutMessage {
  type: "layout";
  layout: number;
  stride: number;
  of: number;
  from: number;
  nodes: NodeRow[];
}

export type FleetMessage =
  | LayoutMessage
  | { type: "nodes"; layout: number; nodes: [position: number, state: number, cordoned: boolean, extra: number][] }
  | { type: "loading"; pods: number; of?: number }
  | { type: "tray"; count: number; pods: [name: string, why: string][] }
  | { type: "found"; query: string; count: number; pods: [number, string, string, number][] }
  | { type: "names"; layout: number; nodes: [position: number, names: (string | null)[]][] }
  | { type: "pod"; layout?: number; index: number | null; name: string | null; node?: string | null; state?: number };

const HEAD_OF_ALL = 16;
const HEAD_OF_CHANGES = 12;
const ALL = 0;

export class FleetModel {
  layout = 0;
  stride = 128;
  nodes: FleetNode[] = [];
  slots: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  /** Pods by state of each node: `counts[position * STATES + state]`. */
  counts = new Uint16Array(0);
  /** Pods by state of all nodes. */
  readonly totals = new Uint32Array(STATES);
  /** One more than the highest slot that has had a Pod in this layout. */
  used = 0;
  /** Positions of nodes that have changed since the picture was drawn; null: all. */
  dirty: Set<number> | null = null;
  /** Called after each change of the picture. */
  onChange: () => void = () => {};
  /** Called when the names of the Pods of a node may have changed; null: of all. */
  onRenamed: (position: number | null) => void = () => {};

  /** Grow when texts must be written again: at most ten times a second. */
  readonly revision = signal(0);
  /** Grows with each layout. */
  readonly layouts = signal(0);
  readonly loading = signal<{ pods: number; of: number } | null>({ pods: 0, of: 0 });
  readonly tray = signal<{ count: number; pods: [name: string, why: string][] }>({ count: 0, pods: [] });
  readonly found = signal<{ query: string; count: number; pods: FoundPod[] } | null>(null);

  private coming: LayoutMessage | null = null;

  /** Apply a message. Returns false for one that is an answer to a question. */
  receive(message: FleetMessage): boolean {
    switch (message.type) {
      case "layout":
        if (message.from === 0 || !this.coming) this.coming = { ...message, nodes: [] };
        this.coming.nodes.push(...message.nodes);
        return true;
      case "nodes":
        if (message.layout !== this.layout) return true;
        for (const [position, state, cordoned, extra] of message.nodes) {
          const node = this.nodes[position];
          if (!node) continue;
          Object.assign(node, { state, cordoned, extra });
          this.touch(position);
        }
        break;
      case "loading":
        this.loading.value = message.of === undefined ? null : { pods: message.pods, of: message.of };
        return true;
      case "tray":
        this.tray.value = { count: message.count, pods: message.pods };
        return true;
      case "found":
        this.found.value = message.query.trim()
          ? {
              query: message.query,
              count: message.count,
              pods: message.pods.map(([index, name, node, state]) => ({ index, name, node, state })),
            }
          : null;
        return true;
      default:
        return false;
    }
    this.changed();
    return true;
  }

  /** Apply a binary frame. Frames must be applied one after the other: await each. */
  async receiveBytes(frame: Uint8Array): Promise<void> {
    const head = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
    const layout = head.getUint32(4, true);
    if (frame[0] === ALL) {
      const slots = await inflate(frame.subarray(HEAD_OF_ALL), head.getUint32(8, true) * head.getUint32(12, true));
      if (this.coming?.layout === layout && this.coming.nodes.length === this.coming.of) this.begin(this.coming);
      if (layout === this.layout) this.replace(slots);
    } else if (layout === this.layout) {
      this.change(head);
    }
    this.changed();
  }

  private begin(coming: LayoutMessage): void {
    this.coming = null;
    this.layout = coming.layout;
    this.stride = coming.stride;
    this.nodes = coming.nodes.map(([name, zone, state, cordoned, extra]) => ({ name, zone, state, cordoned, extra }));
    this.used = 0;
    this.layouts.value += 1;
  }

  private replace(slots: Uint8Array<ArrayBuffer>): void {
    this.slots = slots;
    const { stride } = this;
    const counts = new Uint16Array(this.nodes.length * STATES);
    this.totals.fill(0);
    let used = this.used;
    for (let node = 0, index = 0; node < this.nodes.length; node++) {
      for (let slot = 0; slot < stride; slot++, index++) {
        const state = slots[index]! & STATE_MASK;
        if (state === 0) continue;
        counts[node * STATES + state]!++;
        this.totals[state]!++;
        if (slot >= used) used = slot + 1;
      }
    }
    this.counts = counts;
    this.used = used;
    this.dirty = null;
    this.onRenamed(null);
  }

  private change(head: DataView): void {
    const { slots, counts, totals, stride } = this;
    const count = head.getUint32(8, true);
    const values = HEAD_OF_CHANGES + 4 * count;
    for (let i = 0; i < count; i++) {
      const index = head.getUint32(HEAD_OF_CHANGES + 4 * i, true);
      if (index >= slots.length) continue;
      const value = head.getUint8(values + i);
      const before = slots[index]! & STATE_MASK;
      const after = value & STATE_MASK;
      const node = Math.floor(index / stride);
      slots[index] = value;
      if (before !== after) {
        if (before) {
          counts[node * STATES + before]!--;
          totals[before]!--;
        }
        if (after) {
          counts[node * STATES + after]!++;
          totals[after]!++;
          this.used = Math.max(this.used, index - node * stride + 1);
        }
      }
      this.touch(node);
      this.onRenamed(node);
    }
  }

  /** The number of Pods of a node, without those that have no slot. */
  podsOf(position: number): number {
    let sum = 0;
    for (let state = 1; state < STATES; state++) sum += this.counts[position * STATES + state] ?? 0;
    return sum;
  }

  get pods(): number {
    return this.totals.reduce((sum, count) => sum + count, 0);
  }

  /** Nodes that are not only names in Pods. */
  get realNodes(): number {
    return this.nodes.reduce((sum, node) => sum + (node.state === NODE_MISSING ? 0 : 1), 0);
  }

  private touch(position: number): void {
    this.dirty?.add(position);
  }

  private timer = 0;

  private changed(): void {
    this.onChange();
    if (this.timer) return;
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      this.revision.value += 1;
    }, 100);
  }
}

async function inflate(packed: Uint8Array, length: number): Promise<Uint8Array<ArrayBuffer>> {
  const stream = new Blob([packed as Uint8Array<ArrayBuffer>]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const found = new Uint8Array(await new Response(stream).arrayBuffer());
  if (found.length !== length) throw new Error("the picture of the fleet is incomplete");
  return found;
}
