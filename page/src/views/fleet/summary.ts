/** What is shown of a node whose Pods are too small to be drawn: its usual state, and its worst. */
import type { FleetModel } from "./model";
import { SELECTED, SEVERITY, STATES } from "./states";

/** The look of a node: 0 for a cordoned one that is ready, else its state. */
export function lookOf(model: FleetModel, position: number): number {
  const node = model.nodes[position];
  if (!node) return 1;
  return node.state === 1 && node.cordoned ? 0 : node.state;
}

/** Write four bytes: look, most frequent state, worst state, whether a Pod of the node matches the search. */
export function summarize(model: FleetModel, position: number, searching: boolean, out: Uint8Array, at: number): void {
  const { counts } = model;
  let usual = 0;
  let worst = 0;
  let most = 0;
  for (let state = 1; state < STATES; state++) {
    const count = counts[position * STATES + state]!;
    if (count === 0) continue;
    if (count > most) {
      most = count;
      usual = state;
    }
    if (SEVERITY[state]! > SEVERITY[worst]!) worst = state;
  }
  out[at] = lookOf(model, position);
  out[at + 1] = usual;
  out[at + 2] = worst;
  out[at + 3] = searching && anySelected(model, position) ? 1 : 0;
}

function anySelected(model: FleetModel, position: number): boolean {
  const { slots, stride } = model;
  for (let index = position * stride; index < (position + 1) * stride; index++) {
    if (slots[index]! & SELECTED) return true;
  }
  return false;
}
