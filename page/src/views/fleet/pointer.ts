/** Pan, zoom, pinch, hover and click on the picture. */
import type { Place } from "./geometry";
import type { Stage } from "./stage";

export interface PointerEvents {
  /** The pointer is above something, or nothing. */
  hover(place: Place | null, x: number, y: number): void;
  click(place: Place): void;
}

const CLICK_DISTANCE = 4;
const WHEEL = 0.0016;

export function followPointer(host: HTMLElement, stage: Stage, events: PointerEvents): () => void {
  const pointers = new Map<number, { x: number; y: number }>();
  let moved = 0;
  const point = (event: PointerEvent | WheelEvent | MouseEvent) => {
    const box = host.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    host.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, point(event));
    moved = pointers.size > 1 ? CLICK_DISTANCE : 0;
  };

  const move = (event: PointerEvent) => {
    const at = point(event);
    const before = pointers.get(event.pointerId);
    if (!before) {
      events.hover(stage.placeAt(at.x, at.y), at.x, at.y);
      return;
    }
    if (pointers.size === 1) {
      moved += Math.hypot(at.x - before.x, at.y - before.y);
      if (moved >= CLICK_DISTANCE) {
        events.hover(null, at.x, at.y);
        stage.pan(at.x - before.x, at.y - before.y);
      }
    } else {
      const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, one]) => one);
      if (other) {
        const distance = (one: { x: number; y: number }) => Math.max(10, Math.hypot(one.x - other.x, one.y - other.y));
        stage.zoom(distance(at) / distance(before), (at.x + other.x) / 2, (at.y + other.y) / 2);
        stage.pan((at.x - before.x) / 2, (at.y - before.y) / 2);
      }
    }
    pointers.set(event.pointerId, at);
  };

  const up = (event: PointerEvent) => {
    if (!pointers.delete(event.pointerId) || event.type !== "pointerup") return;
    if (moved >= CLICK_DISTANCE) return;
    const at = point(event);
    const place = stage.placeAt(at.x, at.y);
    if (place) events.click(place);
  };

  const wheel = (event: WheelEvent) => {
    event.preventDefault();
    const at = point(event);
    const pixels = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1);
    // A pinch on a touchpad is a wheel with Ctrl, and finer.
    stage.zoom(Math.exp(-pixels * WHEEL * (event.ctrlKey ? 6 : 1)), at.x, at.y);
    events.hover(stage.placeAt(at.x, at.y), at.x, at.y);
  };

  const leave = (event: PointerEvent) => {
    if (!pointers.has(event.pointerId)) events.hover(null, 0, 0);
  };

  host.addEventListener("pointerdown", down);
  host.addEventListener("pointermove", move);
  host.addEventListener("pointerup", up);
  host.addEventListener("pointercancel", up);
  host.addEventListener("pointerleave", leave);
  host.addEventListener("wheel", wheel, { passive: false });
  return () => {
    host.removeEventListener("pointerdown", down);
    host.removeEventListener("pointermove", move);
    host.removeEventListener("pointerup", up);
    host.removeEventListener("pointercancel", up);
    host.removeEventListener("pointerleave", leave);
    host.removeEventListener("wheel", wheel);
  };
}
