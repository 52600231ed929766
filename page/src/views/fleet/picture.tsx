/** The picture with its tooltip, keys and buttons. */
import { effect, signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { announce } from "../../a11y/live";
import { selected } from "../../state/selection";
import { theme } from "../../state/settings";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { visible } from "../../ui/text";
import { fleet as words } from "../../words/fleet";
import type { FleetConnection } from "./connection";
import { moveCursor } from "./cursor";
import { cellsOf } from "./geometry";
import type { Camera, Place } from "./geometry";
import { colourSet, forcedColours } from "./palette";
import { followPointer } from "./pointer";
import { Stage } from "./stage";
import { STATE_MASK } from "./states";
import { Swatch } from "./swatch";

const HOVER_DELAY = 60;

export interface PictureProps {
  connection: FleetConnection;
  /** `gl` or `2d` force a painter. */
  renderer: string;
  searching: boolean;
  openPod(name: string): void;
  openNode(name: string): void;
}

interface Tip {
  x: number;
  y: number;
  right: boolean;
  below: boolean;
  title: string;
  text: string;
  state: number;
}

interface Zoom {
  zoom(factor: number): void;
  fit(): void;
}

const zoomButtons = signal<Zoom | null>(null);

/** The buttons for the picture. They stand beside it: above it they would hide Pods. */
export function ZoomButtons() {
  // Also before there is a picture, so that nothing moves when it comes.
  const target = zoomButtons.value;
  return (
    <div class="fleet-zoom" role="group" aria-label={words.zoom}>
      <Button small aria-label={words.zoomIn} title={words.zoomIn} onClick={() => target?.zoom(1.5)}>
        <Icon name="plus" />
      </Button>
      <Button small aria-label={words.zoomOut} title={words.zoomOut} onClick={() => target?.zoom(1 / 1.5)}>
        <Icon name="minus" />
      </Button>
      <Button small aria-label={words.fit} title={words.fit} onClick={() => target?.fit()}>
        <Icon name="fit" />
      </Button>
    </div>
  );
}

export function Picture({ connection, renderer, searching, openPod, openNode }: PictureProps) {
  const host = useRef<HTMLDivElement>(null);
  const stage = useRef<Stage | null>(null);
  const cursor = useRef<number | null>(null);
  /** Where the picture of another moment was looked at; null: as a whole. */
  const lastCamera = useRef<Camera | null>(null);
  const [tip, setTip] = useState<Tip | null>(null);
  const [painter, setPainter] = useState<"gl" | "2d">("2d");
  const { model } = connection;

  /** What a place is called: now, or when the server has answered. */
  const describe = async (place: Place): Promise<{ title: string; text: string; state: number } | null> => {
    const node = model.nodes[place.position];
    if (!node) return null;
    const index = place.position * model.stride + place.slot;
    const state = place.slot < 0 ? 0 : (model.slots[index] ?? 0) & STATE_MASK;
    if (!state) {
      const condition = [words.nodeStates[node.state] ?? "", node.cordoned ? words.cordoned : ""].filter(Boolean).join(", ");
      const extra = node.extra ? ` · ${words.extra(node.extra)}` : "";
      return { title: visible(node.name), text: words.nodeTip(node.zone, condition, model.podsOf(place.position)) + extra, state: 0 };
    }
    const known = stage.current?.labels.nameAt(index);
    const name = known ?? (await connection.pick(index))?.name;
    if (!name) return null;
    return { title: visible(name), text: words.podTip(visible(node.name), words.states[state]?.label ?? ""), state };
  };

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const made = new Stage(element, model, { wantNames: (positions) => connection.askNames(positions) }, renderer);
    if (lastCamera.current) made.camera = lastCamera.current;
    stage.current = made;
    zoomButtons.value = { zoom: (factor) => made.zoom(factor), fit: () => made.fit() };
    setPainter(made.painter.kind);
    const unlisten = connection.onNames((message) => made.labels.receiveNames(message.layout, message.nodes));
    let timer = 0;
    let asked = 0;
    const hover = (place: Place | null, x: number, y: number) => {
      window.clearTimeout(timer);
      const mine = ++asked;
      if (!place) {
        setTip(null);
        return;
      }
      timer = window.setTimeout(() => {
        void describe(place).then((found) => {
          if (mine !== asked) return;
          const { clientWidth, clientHeight } = element;
          setTip(found && { ...found, x, y, right: x > clientWidth / 2, below: y > clientHeight * 0.7 });
        });
      }, HOVER_DELAY);
    };
    const click = (place: Place) => {
      const index = place.position * model.stride + place.slot;
      if (place.slot >= 0 && (model.slots[index] ?? 0) & STATE_MASK) {
        cursor.current = index;
        made.labels.ring("cursor", null);
        void connection.pick(index).then((answer) => answer?.name && openPod(answer.name));
      } else {
        const node = model.nodes[place.position];
        if (node) openNode(node.name);
      }
    };
    const stopPointer = followPointer(element, made, { hover, click });
    // The selected Pod has a ring, wherever it is after a change of the layout.
    const stopSelected = effect(() => {
      void model.layouts.value;
      const ref = selected.value;
      if (ref?.resource !== "pods" || ref.group !== "") {
        made.labels.ring("selected", null);
        return;
      }
      void connection.locate(`${ref.namespace}/${ref.name}`).then((answer) => made.labels.ring("selected", answer?.index ?? null));
    });
    return () => {
      window.clearTimeout(timer);
      stopPointer();
      stopSelected();
      unlisten();
      zoomButtons.value = null;
      lastCamera.current = made.isFitted ? null : made.camera;
      stage.current = null;
      made.dispose();
    };
  }, [connection, renderer]);

  // After the document has the classes and attributes that the colours depend on.
  useLayoutEffect(() => stage.current?.recolour(), [theme.value, colourSet.value, forcedColours.value]);
  useEffect(() => stage.current?.setSearching(searching), [searching, connection, renderer]);

  const press = (event: KeyboardEvent) => {
    const made = stage.current;
    if (!made || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+" || event.key === "=") made.zoom(1.5);
    else if (event.key === "-") made.zoom(1 / 1.5);
    else if (event.key === "0") made.fit();
    else if ((event.key === "Enter" || event.key === " ") && cursor.current !== null) {
      void connection.pick(cursor.current).then((answer) => answer?.name && openPod(answer.name));
    } else {
      const next = moveCursor(model, made.plan, cursor.current, event.key);
      if (next === null) return;
      cursor.current = next;
      made.labels.ring("cursor", next);
      const position = Math.floor(next / model.stride);
      const slot = next % model.stride;
      const corner = cellsOf(made.plan, position);
      made.reveal(corner.x + (slot % made.plan.columns), corner.y + Math.floor(slot / made.plan.columns), 1, 1);
      void describe({ position, slot }).then((found) => {
        if (found && cursor.current === next) announce(`${found.title}, ${found.text}`);
      });
    }
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div class="fleet-picture">
      <div
        class="fleet-host"
        ref={host}
        role="application"
        tabIndex={0}
        aria-label={words.canvas}
        aria-describedby="fleet-help"
        data-painter={painter}
        onKeyDown={press}
        onBlur={() => stage.current?.labels.ring("cursor", null)}
      />
      <p id="fleet-help" class="visually-hidden">
        {words.canvasHelp}
      </p>
      {tip ? (
        <div
          class={`fleet-tip${tip.right ? " right" : ""}${tip.below ? " below" : ""}`}
          style={{ transform: `translate(${tip.x}px, ${tip.y}px)` }}
          aria-hidden="true"
        >
          <div>
            <strong>{tip.title}</strong>
            <span>
              {tip.state ? <Swatch state={tip.state} /> : null}
              {tip.text}
            </span>
          </div>
        </div>
      ) : null}
    </div>
  );
}
