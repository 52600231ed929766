/** The graph: actors, the API server and boxes as elements, edges and dots on a canvas behind them. */
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { drawStats } from "../../state/draw-stats";
import { sameObject } from "../../state/refs";
import { navigate } from "../../router";
import { select, selected } from "../../state/selection";
import { refOf } from "../../state/kinds";
import { motion, theme } from "../../state/settings";
import { PHASES } from "../../ui/phase";
import { visible } from "../../ui/text";
import { chain as words } from "../../words/chain";
import { actorKey, isCount, writtenKey } from "../../writes/writes";
import type { LogEntry, Role } from "../../writes/writes";
import { arrange, BOX_HEIGHT } from "./layout";
import type { Layout, Place } from "./layout";
import { boxKind, boxLabel, boxName } from "./model";
import type { Box, Graph } from "./model";
import { paint, readColours } from "./painter";
import { Travel } from "./travel";
import type { Flash } from "./travel";

const MOST_ACTORS = 14;

interface StageProps {
  graph: Graph;
  log: readonly LogEntry[];
  /** Grows with the log, which is the same list. */
  revision: number;
  /** Whether the log is complete, so that new entries are new writes. */
  following: boolean;
  slower: number;
  /** Changes to arrange everything anew. */
  tidy: number;
}

export function ChainStage(props: StageProps) {
  const { graph, slower } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const kept = useRef<{ layout: Layout; tidy: number } | null>(null);
  const travel = useRef<Travel | null>(null);
  const [lit, setLit] = useState<string | null>(null);
  const [flashes, setFlashes] = useState<ReadonlyMap<string, Flash>>(new Map());
  const [passing, setPassing] = useState(0);
  const [width, setWidth] = useState(900);
  const stats = useMemo(() => drawStats("chain"), []);
  const actors = useActors(graph, props.log);
  const layout = useMemo(() => {
    const before = kept.current?.tidy === props.tidy ? kept.current.layout : null;
    const made = arrange(graph, [...actors.keys()], before, width);
    kept.current = { layout: made, tidy: props.tidy };
    return made;
  }, [graph, actors, props.tidy, width]);
  const moves = motion.value;
  const colours = useMemo(readColours, [theme.value]);
  const current = useRef({ graph, layout, slower, moves, lit, colours });
  current.current = { graph, layout, slower, moves, lit, colours };
  const frame = useRef(0);

  const draw = () => {
    frame.current = 0;
    const now = performance.now();
    const state = current.current;
    const journey = (travel.current ??= new Travel());
    const busy = journey.advance(state, now, state.moves, state.slower);
    const [element, box] = [canvas.current, scroller.current];
    const context = element?.getContext("2d");
    if (element && box && context) {
      const began = performance.now();
      const view = { left: box.scrollLeft, top: box.scrollTop, width: box.clientWidth, height: box.clientHeight };
      resize(element, view.width, view.height);
      paint(context, state, journey, view, state.colours, state.lit, now, state.slower);
      stats.add(performance.now() - began);
    }
    setFlashes((before) => (sameFlashes(before, journey.flashes) ? before : new Map(journey.flashes)));
    setPassing(journey.passing?.revision ?? 0);
    stats.moved = journey.drawn;
    if (busy) request();
  };
  const request = () => {
    if (!frame.current) frame.current = requestAnimationFrame(draw);
  };

  useLayoutEffect(() => {
    (travel.current ??= new Travel()).remember(layout);
    request();
  }, [layout, lit, colours]);
  const started = useRef(false);
  useEffect(() => {
    if (!props.following) {
      started.current = false; // what happens until the log is complete again is the past then
      return;
    }
    const journey = (travel.current ??= new Travel());
    if (!started.current) {
      started.current = true;
      journey.begin(props.log);
    } else if (journey.take(props.log, performance.now(), slower)) {
      request();
    }
  }, [props.revision, props.following]);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) return;
    const measure = () => {
      setWidth(box.clientWidth);
      request();
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box);
    return () => {
      observer.disconnect();
      cancelAnimationFrame(frame.current);
      frame.current = 0;
    };
  }, []);

  const target = selected.value;
  const chosen = target && writtenKey(target);
  const isShown = chosen !== null && graph.boxes.has(chosen);
  useEffect(() => {
    // An object that was selected elsewhere is in sight, also when the inspector has taken its part of the width.
    if (isShown) scroller.current?.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [chosen, isShown, width]);

  return (
    <div class="chain-stage">
      <canvas class="chain-canvas" ref={canvas} aria-hidden="true" />
      <div class="chain-scroll" ref={scroller} onScroll={request}>
        <div class="chain-content" style={{ width: `${layout.width}px`, height: `${layout.height}px` }}>
          <Actors actors={actors} layout={layout} />
          <div class="chain-bar" style={{ left: `${layout.bar - 8}px` }} aria-hidden="true">
            <span class="chain-bar-label">{words.apiServer}</span>
            {passing ? <span class="chain-bar-revision">{words.revision(passing)}</span> : null}
          </div>
          <Boxes graph={graph} layout={layout} flashes={flashes} light={setLit} />
        </div>
      </div>
    </div>
  );
}

function resize(element: HTMLCanvasElement, width: number, height: number): void {
  const scale = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (element.width === wide && element.height === high) return;
  element.width = wide;
  element.height = high;
  element.style.width = `${width}px`;
  element.style.height = `${height}px`;
}

function sameFlashes(a: ReadonlyMap<string, Flash>, b: ReadonlyMap<string, Flash>): boolean {
  if (a.size !== b.size) return false;
  for (const [key, flash] of b) if (a.get(key) !== flash) return false;
  return true;
}

/** The actors of the graph, and others who have written lately. */
function useActors(graph: Graph, log: readonly LogEntry[]): ReadonlyMap<string, Role> {
  const last = useRef<{ map: ReadonlyMap<string, Role>; text: string }>({ map: new Map(), text: "" });
  const found = new Map<string, Role>();
  for (const actor of graph.actors.values()) found.set(actor.name, actor.role);
  for (const entry of log.slice(-50)) {
    if (isCount(entry) || found.size >= MOST_ACTORS) continue;
    const name = actorKey(entry);
    const here = entry.objects.some((one) => one.kind !== "Node" && graph.boxes.has(writtenKey(one)));
    if (here && !found.has(name)) found.set(name, entry.role);
  }
  // Those who came once stay: an actor that disappears between two writes would make the others jump.
  for (const [name, role] of last.current.map) {
    if (found.size < MOST_ACTORS && !found.has(name)) found.set(name, role);
  }
  const text = JSON.stringify([...found]);
  if (text !== last.current.text) last.current = { map: found, text };
  return last.current.map;
}

function Actors({ actors, layout }: { actors: ReadonlyMap<string, Role>; layout: Layout }) {
  return (
    <ul class={layout.compact ? "chain-actors compact" : "chain-actors"} aria-label={words.actors}>
      {[...actors].map(([name, role]) => {
        const place = layout.actors.get(name);
        return place ? (
          <li key={name} class={`chain-actor ${role}`} style={at(place, layout.actor)} title={visible(name)}>
            <span>{visible(name)}</span>
          </li>
        ) : null;
      })}
    </ul>
  );
}

function at(place: Place, size: { width: number; height: number }) {
  return { transform: `translate(${place.x}px, ${place.y}px)`, width: `${size.width}px`, height: `${size.height}px` };
}

function Boxes(props: { graph: Graph; layout: Layout; flashes: ReadonlyMap<string, Flash>; light(key: string | null): void }) {
  const { graph, layout } = props;
  const group = useRef<HTMLDivElement>(null);
  const [focused, setFocused] = useState<string | null>(null);
  const target = selected.value;
  const focus = useCallback((key: string) => {
    setFocused(key);
    props.light(key);
  }, []);
  // Rendered in the order of reading: column by column, from top to bottom.
  const ordered = [...graph.boxes].sort(([a], [b]) => {
    const [one, other] = [layout.boxes.get(a), layout.boxes.get(b)];
    return (one?.x ?? 0) - (other?.x ?? 0) || (one?.y ?? 0) - (other?.y ?? 0);
  });
  const inOrder = focused !== null && graph.boxes.has(focused) ? focused : (ordered[0]?.[0] ?? null);
  const move = (event: KeyboardEvent) => {
    const from = inOrder === null ? undefined : layout.boxes.get(inOrder);
    const to = from && nearest(event.key, from, layout.boxes);
    if (!to) return;
    event.preventDefault();
    event.stopPropagation();
    setFocused(to);
    group.current?.querySelector<HTMLElement>(`[data-box="${CSS.escape(to)}"]`)?.focus();
  };
  return (
    <div class="chain-boxes" role="group" aria-label={words.boxes} ref={group} onKeyDown={move}>
      {ordered.map(([key, box]) => {
        const place = layout.boxes.get(key);
        if (!place) return null;
        return (
          <BoxButton
            key={key}
            id={key}
            box={box}
            x={place.x}
            y={place.y}
            width={layout.box}
            flash={props.flashes.get(key)}
            chosen={box.type === "object" && sameObject(box.ref, target)}
            tab={key === inOrder}
            focus={focus}
            light={props.light}
          />
        );
      })}
    </div>
  );
}

/** A name whose end stays visible: it is what tells the Pods of a set apart. */
function BoxName({ name }: { name: string }) {
  const cut = name.length > 18 ? name.lastIndexOf("-") : -1;
  if (cut <= 0 || name.length - cut > 12) return <span class="chain-box-name">{name}</span>;
  return (
    <span class="chain-box-name split">
      <span>{name.slice(0, cut)}</span>
      <span>{name.slice(cut)}</span>
    </span>
  );
}

function nearest(key: string, from: Place, boxes: ReadonlyMap<string, Place>): string | null {
  const along = key === "ArrowRight" ? 1 : key === "ArrowLeft" ? -1 : 0;
  const across = key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0;
  if (!along && !across) return null;
  let [best, least]: [string | null, number] = [null, Infinity];
  for (const [id, place] of boxes) {
    const [x, y] = [place.x - from.x, place.y - from.y];
    if (along ? x * along <= 0 : y * across <= 0 || Math.abs(x) > 1) continue;
    const distance = along ? Math.abs(x) * 4 + Math.abs(y) : Math.abs(y);
    if (distance < least) [best, least] = [id, distance];
  }
  return best;
}

interface BoxProps {
  id: string;
  box: Box;
  x: number;
  y: number;
  width: number;
  flash: Flash | undefined;
  chosen: boolean;
  tab: boolean;
  /** The same function for all boxes and all times. */
  focus(key: string): void;
  light(key: string | null): void;
}

function openBox(box: Box): void {
  if (box.type === "object") select(box.ref);
  else if (box.type === "owner") {
    const ref = refOf({ apiVersion: box.api_version, kind: box.kind, name: box.name });
    if (ref) select(ref);
  } else {
    navigate({ view: "objects", kind: { group: box.ref.group, resource: box.ref.resource }, name: "", namespace: "" });
  }
}

/** There may be 400: one is rendered again only if something of it has changed. */
function BoxButton(props: BoxProps) {
  const { id, box, x, y, width, flash, chosen, tab } = props;
  return useMemo(() => drawnBox(props), [id, box, x, y, width, flash, chosen, tab]);
}

function drawnBox({ id, box, x, y, width, flash, chosen, tab, focus, light }: BoxProps) {
  const phase = box.type === "owner" ? "settled" : box.phase;
  const classes = ["chain-box", box.type, phase, chosen && "chosen", box.type === "object" && box.root && "root", flash && `part-${flash.part}`];
  return (
    <button
      type="button"
      data-box={id}
      class={classes.filter(Boolean).join(" ")}
      style={at({ x, y }, { width, height: BOX_HEIGHT })}
      tabIndex={tab ? 0 : -1}
      aria-label={visible(boxLabel(box))}
      aria-current={chosen ? "true" : undefined}
      title={box.type === "group" ? `${visible(boxLabel(box))}. ${words.openGroup}` : visible(boxLabel(box))}
      onClick={() => openBox(box)}
      onFocus={() => focus(id)}
      onBlur={() => light(null)}
      onPointerEnter={() => light(id)}
      onPointerLeave={() => light(null)}
    >
      <span class="chain-box-head">
        <span class="chain-box-kind">{boxKind(box)}</span>
        {box.type === "object" && box.gauge ? (
          <span class="chain-box-gauge">
            {box.gauge[0]}/{box.gauge[1]}
          </span>
        ) : null}
        {box.type === "group" ? <span class="chain-box-gauge">{words.count(box.count)}</span> : null}
        <span class={`chain-box-phase phase ${phase}`}>{PHASES[phase].shape}</span>
      </span>
      <BoxName name={visible(boxName(box))} />
      {flash ? <span class="chain-box-label">{visible(flash.label)}</span> : null}
    </button>
  );
}
