/** The timeline as a picture: lanes, and a slider for the moment that the page shows. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { at } from "../state/place";
import { selected } from "../state/selection";
import { theme } from "../state/settings";
import { visible } from "../ui/text";
import { timeline as words } from "../words/timeline";
import { centre, spanAtX } from "./axis";
import { newestRevision, shownSpans, wantDetail, wantOlder } from "./data";
import type { TimelineData } from "./data";
import { draw, readInk, TIMES } from "./draw";
import { chooseLanes } from "./lanes";
import { dragTo, pause, settle, step, toOldest } from "./scrub";
import { spanAt } from "./spans";
import { describeSpan, revisionText, timeText } from "./text";
import { makeWindow, scrollTo, zoomWindow } from "./window";

/** The most writes that a range is shown one by one of. */
const MOST_SINGLE = 2_000;
const DETAIL_DELAY = 250;

export interface ChartProps {
  data: TimelineData;
  laneHeight: number;
  mostLanes: number;
  /** Space is kept for so many lanes. */
  leastLanes: number;
  /** Whether dragging chooses a range instead of a moment. */
  ranging: boolean;
  range: readonly [from: number, to: number] | null;
  /** A range was chosen, by two revisions. */
  choose(from: number, to: number): void;
}

export function Chart({ data, laneHeight, mostLanes, leastLanes, ranging, range, choose }: ChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(600);
  const [hover, setHover] = useState<{ i: number; x: number } | null>(null);
  const { spans } = data;
  const moment = at.value;
  const lanes = useMemo(() => chooseLanes(spans, mostLanes), [spans, mostLanes]);
  const height = Math.max(leastLanes, lanes.length) * laneHeight + TIMES;
  const window_ = makeWindow(spans, width);
  const { axis, from } = window_;
  const current = moment === null ? null : spanAt(spans, moment);

  useLayoutEffect(() => {
    shownSpans.value = spans;
    newestRevision.value = data.newest;
  }, [spans, data.newest]);

  useLayoutEffect(() => {
    const element = host.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(Math.max(100, element.clientWidth)));
    observer.observe(element);
    setWidth(Math.max(100, element.clientWidth));
    return () => observer.disconnect();
  }, []);

  const ink = useMemo(() => readInk(), [theme.value]);
  useLayoutEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context) return;
    const ratio = window.devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (element.width !== wide || element.height !== high) {
      element.width = wide;
      element.height = high;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const chosen = range ? ([spanAt(spans, range[0]), spanAt(spans, range[1])] as const) : null;
    draw(
      context,
      { width, height, axis, spans, from, lanes, laneHeight, current, hover: hover?.i ?? null, range: chosen, selected: selected.value },
      ink,
    );
  });

  // Read what the window shows and is not known yet, once it rests.
  const firstShown = Math.max(0, spanAtX(axis, from));
  const lastShown = Math.min(spans.length - 1, Math.max(0, spanAtX(axis, from + width)));
  useEffect(() => {
    const timer = window.setTimeout(() => {
      if (from < 40) wantOlder.value = true;
      const shown = spans.slice(firstShown, lastShown + 1);
      const counted = shown.some((span) => !span.write && span.first !== span.last);
      const total = shown.reduce((sum, span) => sum + span.total, 0);
      if (counted && total <= MOST_SINGLE) wantDetail.value = { from: shown[0]!.first, to: shown.at(-1)!.last };
    }, DETAIL_DELAY);
    return () => window.clearTimeout(timer);
  }, [spans, firstShown, lastShown, axis.scale]);

  const pointers = useRef(new Map<number, number>());
  const begun = useRef<number | null>(null);
  const place = (event: { clientX: number }) => event.clientX - (host.current?.getBoundingClientRect().left ?? 0);
  const spanBelow = (px: number) => Math.min(spans.length - 1, spanAtX(axis, from + px));
  const revisionBelow = (px: number): number | null => {
    if (from + px > axis.length + 2) return null;
    const span = spans[Math.max(0, spanBelow(px))];
    return span ? span.last : null;
  };
  const drag = (px: number, done: boolean) => {
    const revision = revisionBelow(px);
    if (ranging) {
      if (begun.current === null) return;
      const other = revision ?? data.newest;
      choose(Math.min(begun.current, other), Math.max(begun.current, other));
    } else if (done || revision === null) {
      settle(revision);
    } else {
      dragTo(revision);
    }
  };
  const down = (event: PointerEvent) => {
    if (event.button !== 0 || spans.length === 0) return;
    pause();
    host.current?.setPointerCapture(event.pointerId);
    const px = place(event);
    pointers.current.set(event.pointerId, px);
    begun.current = revisionBelow(px) ?? data.newest;
    if (pointers.current.size === 1) drag(px, false);
  };
  const move = (event: PointerEvent) => {
    const px = place(event);
    const before = pointers.current.get(event.pointerId);
    if (before === undefined) {
      const i = spanBelow(px);
      const near = i >= 0 && Math.abs(centre(axis, spans, i) - from - px) < Math.max(12, axis.scale);
      if ((near ? i : null) !== (hover?.i ?? null)) setHover(near ? { i, x: px } : null);
      return;
    }
    pointers.current.set(event.pointerId, px);
    if (pointers.current.size > 1) {
      const others = [...pointers.current].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
      const other = others[0] ?? px;
      zoomWindow(spans, window_, width, Math.max(10, Math.abs(px - other)) / Math.max(10, Math.abs(before - other)), (px + other) / 2);
      return;
    }
    setHover(null);
    // At the edges the window moves along.
    if (px < 0 || px > width) scrollTo(spans, window_, from + (px < 0 ? px : px - width) / 4, width);
    drag(px, false);
  };
  const up = (event: PointerEvent) => {
    if (!pointers.current.delete(event.pointerId)) return;
    if (pointers.current.size === 0) drag(place(event), true);
    begun.current = null;
  };

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        scrollTo(spans, window_, from + (event.deltaX || event.deltaY) * lines, width);
      } else {
        zoomWindow(spans, window_, width, Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.002)), place(event));
      }
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  });

  const press = (event: KeyboardEvent) => {
    if (event.altKey || event.metaKey) return;
    const direction = event.key === "ArrowRight" || event.key === "ArrowUp" ? 1 : event.key === "ArrowLeft" || event.key === "ArrowDown" ? -1 : 0;
    if (direction) {
      pause();
      step(direction, event.ctrlKey ? "reconcile" : event.shiftKey ? "object" : "write");
    } else if (event.key === "Home") toOldest();
    else if (event.key === "End") settle(null);
    else if (event.key === "PageUp" || event.key === "PageDown") {
      for (let i = 0; i < 10; i++) step(event.key === "PageUp" ? -1 : 1);
    } else if (event.key === "+" || event.key === "=") zoomWindow(spans, window_, width, 1.6, width / 2);
    else if (event.key === "-") zoomWindow(spans, window_, width, 1 / 1.6, width / 2);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  // The cursor stays in the window when keys or the play move it out.
  useEffect(() => {
    if (current === null || current < 0 || pointers.current.size > 0) return;
    const x = centre(axis, spans, current) - from;
    if (x < 0 || x > width - 8) scrollTo(spans, window_, from + x - width * (x < 0 ? 0.25 : 0.75), width);
  }, [current]);

  const shown = spans[current ?? spans.length - 1];
  const revision = moment ?? data.newest;
  const valueText =
    moment === null
      ? words.nowRevision(revisionText(revision))
      : [words.moment(timeText(shown?.end ?? 0), revisionText(revision)), shown ? describeSpan(shown) : ""].filter(Boolean).join(". ");
  const tip = hover ? spans[hover.i] : undefined;

  return (
    <div class="timeline-chart">
      <ul class="timeline-lanes" style={{ paddingBottom: `${TIMES}px` }} aria-hidden="true">
        {lanes.map((name) => (
          <li key={name} title={visible(name)} style={{ height: `${laneHeight}px`, lineHeight: `${laneHeight}px` }}>
            {visible(name)}
          </li>
        ))}
      </ul>
      <div
        class={ranging ? "timeline-track ranging" : "timeline-track"}
        ref={host}
        role="slider"
        tabIndex={0}
        aria-label={words.slider}
        aria-valuemin={spans[0]?.first ?? 0}
        aria-valuemax={data.newest}
        aria-valuenow={revision}
        aria-valuetext={valueText}
        aria-describedby="timeline-help"
        style={{ height: `${height}px` }}
        onKeyDown={press}
        onPointerDown={down}
        onPointerMove={move}
        onPointerUp={up}
        onPointerCancel={up}
        onPointerLeave={() => setHover(null)}
      >
        <canvas ref={canvas} style={{ width: `${width}px`, height: `${height}px` }} aria-hidden="true" />
        {tip ? (
          <div class={hover!.x > width / 2 ? "timeline-tip right" : "timeline-tip"} style={{ left: `${hover!.x}px` }} aria-hidden="true">
            <strong>{tip.write ? visible(tip.write.lane) : words.counted(tip.total)}</strong>
            <span>{describeSpan(tip)}</span>
            <span class="faint">
              {timeText(tip.end)} · {words.revision(revisionText(tip.last))}
            </span>
          </div>
        ) : null}
      </div>
      <p id="timeline-help" class="visually-hidden">
        {words.sliderHelp}
      </p>
    </div>
  );
}
