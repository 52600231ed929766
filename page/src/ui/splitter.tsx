import type { Signal } from "@preact/signals";
import { shell } from "../words/shell";

/** A bar that changes a size, by pointer and by arrow keys. `vertical`: the bar stands upright and changes a width. */
export function Splitter(props: { size: Signal<number>; least: number; most: number; vertical: boolean }) {
  const { size, least, most, vertical } = props;
  const set = (value: number) => (size.value = Math.round(Math.min(most, Math.max(least, value))));
  const drag = (event: PointerEvent) => {
    const bar = event.currentTarget as HTMLElement;
    bar.setPointerCapture(event.pointerId);
    const from = vertical ? event.clientX : event.clientY;
    const before = size.peek();
    const move = (moved: PointerEvent) => set(before + from - (vertical ? moved.clientX : moved.clientY));
    bar.addEventListener("pointermove", move);
    bar.addEventListener("lostpointercapture", () => bar.removeEventListener("pointermove", move), { once: true });
  };
  const press = (event: KeyboardEvent) => {
    const step = { ArrowLeft: 24, ArrowUp: 24, ArrowRight: -24, ArrowDown: -24 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    set(size.peek() + step);
  };
  return (
    <div
      class={vertical ? "splitter vertical" : "splitter"}
      role="separator"
      tabIndex={0}
      aria-orientation={vertical ? "vertical" : "horizontal"}
      aria-label={vertical ? shell.resizeInspector : shell.resizeDock}
      aria-valuenow={size.value}
      aria-valuemin={least}
      aria-valuemax={most}
      onPointerDown={drag}
      onKeyDown={press}
    />
  );
}
