/** Moving between Pods by keys. */
import type { Plan } from "./geometry";
import { zoneOf } from "./geometry";
import type { FleetModel } from "./model";
import { STATE_MASK } from "./states";

/** The index of the Pod that a key leads to; null if the key is none of these, or there is no Pod. */
export function moveCursor(model: FleetModel, plan: Plan, from: number | null, key: string): number | null {
  const { slots } = model;
  const has = (index: number) => ((slots[index] ?? 0) & STATE_MASK) !== 0;
  const along = (start: number, step: 1 | -1): number | null => {
    for (let index = start; index >= 0 && index < slots.length; index += step) if (has(index)) return index;
    return null;
  };
  if (key === "Home" || (from === null && /^(Arrow|Page)/.test(key))) return along(0, 1);
  if (key === "End") return along(slots.length - 1, -1);
  if (from === null) return null;
  if (key === "ArrowRight") return along(from + 1, 1);
  if (key === "ArrowLeft") return along(from - 1, -1);
  const position = Math.floor(from / model.stride);
  const slot = from % model.stride;
  if (key === "ArrowDown" || key === "ArrowUp") {
    const step = key === "ArrowDown" ? plan.columns : -plan.columns;
    for (let next = slot + step; next >= 0 && next < model.stride; next += step) {
      if (has(position * model.stride + next)) return position * model.stride + next;
    }
    return besides(model, plan, position, key === "ArrowDown" ? 1 : -1, slot % plan.columns, key === "ArrowUp", has);
  }
  if (key === "PageDown" || key === "PageUp") {
    return besides(model, plan, position, key === "PageDown" ? 1 : -1, 0, false, has);
  }
  return null;
}

/** The Pod of the next node above or below that has one. */
function besides(
  model: FleetModel,
  plan: Plan,
  position: number,
  step: 1 | -1,
  column: number,
  fromBelow: boolean,
  has: (index: number) => boolean,
): number | null {
  const zone = zoneOf(plan, position);
  const within = position - zone.first;
  const gridColumn = within % plan.across;
  for (let row = zone.firstRow + Math.floor(within / plan.across) + step; row >= 0 && row < plan.gridRows; row += step) {
    const next = plan.grid[row * plan.across + gridColumn] ?? -1;
    if (next < 0) continue;
    const base = next * model.stride;
    const found: number[] = [];
    for (let slot = 0; slot < model.stride; slot++) if (has(base + slot)) found.push(slot);
    const inColumn = found.filter((slot) => slot % plan.columns === column);
    const chosen = inColumn.length > 0 ? inColumn : found;
    const slot = fromBelow ? chosen.at(-1) : chosen[0];
    if (slot !== undefined) return base + slot;
  }
  return null;
}
