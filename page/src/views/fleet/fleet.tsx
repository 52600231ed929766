/** The fleet: all nodes and Pods of the cluster in one picture, and the same as a table. */
import { effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { announce } from "../../a11y/live";
import { useKeys } from "../../a11y/keyboard";
import { route, setParam } from "../../router";
import { cluster, settledCluster } from "../../state/place";
import { select } from "../../state/selection";
import { phone } from "../../state/settings";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { Failure, Loading, Notice } from "../../ui/notice";
import { visible } from "../../ui/text";
import { fleet as words } from "../../words/fleet";
import { FleetConnection } from "./connection";
import { colourSet } from "./palette";
import type { ColourSet } from "./palette";
import { Picture, ZoomButtons } from "./picture";
import { POD_STATES } from "./states";
import { Swatch } from "./swatch";
import { FleetTable } from "./table";
import "./fleet.css";

const SEARCH_DELAY = 200;

function openPod(name: string): void {
  const slash = name.indexOf("/");
  select({ group: "", version: "v1", resource: "pods", kind: "Pod", namespace: name.slice(0, slash), name: name.slice(slash + 1) });
}

function openNode(name: string): void {
  select({ group: "", version: "v1", resource: "nodes", kind: "Node", namespace: "", name });
}

/** Fleets with more Pods do not follow each movement of the moment. */
const MOST_DRAGGED = 2_000;

export default function Fleet() {
  const [connection, setConnection] = useState<FleetConnection | null>(null);
  const shown = useRef<FleetConnection | null>(null);
  const many = (connection?.model.pods ?? 0) > MOST_DRAGGED;
  const prefix = many ? settledCluster.value : cluster.value;
  useEffect(() => {
    const made = new FleetConnection("", prefix);
    const show = () => {
      const before = shown.current;
      shown.current = made;
      setConnection(made);
      before?.close();
    };
    // The picture of one moment stays until that of another is complete.
    const stop = effect(() => {
      const { layouts, loading } = made.model;
      const complete = (layouts.value > 0 && loading.value === null) || made.error.value !== null;
      if (shown.current !== made && (complete || shown.current === null)) show();
    });
    return () => {
      stop();
      if (shown.current !== made) made.close();
    };
  }, [prefix]);
  useEffect(
    () => () => {
      shown.current?.close();
      shown.current = null;
    },
    [],
  );
  if (!connection) return <Loading />;
  return <Connected connection={connection} />;
}

function Connected({ connection }: { connection: FleetConnection }) {
  const { model } = connection;
  const { params } = route.value;
  const asTable = params.form === "table";
  const query = params.find ?? "";
  const [typed, setTyped] = useState(query);
  const [showTray, setShowTray] = useState(false);

  useEffect(() => {
    const timer = window.setTimeout(() => setParam("find", typed), SEARCH_DELAY);
    return () => window.clearTimeout(timer);
  }, [typed]);
  useEffect(() => {
    setTyped(query);
    connection.search(query);
  }, [query, connection]);
  useKeys(() => [{ keys: "p", label: words.keyTable, run: () => setParam("form", route.peek().params.form === "table" ? "" : "table") }], []);

  const found = model.found.value;
  useEffect(() => {
    if (found) announce(words.found(found.count));
  }, [found?.query, found?.count]);

  void model.revision.value;
  const layouts = model.layouts.value;
  const loading = model.loading.value;
  const tray = model.tray.value;
  const error = connection.error.value;
  if (error) return <Failure error={error} feature={words.feature} />;

  return (
    <div class={`fleet ${colourSet.value}`}>
      <div class="fleet-bar">
        <div class="fleet-search" role="search">
          <Icon name="search" />
          <input
            class="field"
            type="search"
            aria-label={words.search}
            placeholder={words.searchHint}
            maxLength={200}
            value={typed}
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
        </div>
        <div class="fleet-switch" role="group" aria-label={words.form}>
          <Button small aria-pressed={!asTable} onClick={() => setParam("form", "")}>
            {words.picture}
          </Button>
          <Button small aria-pressed={asTable} onClick={() => setParam("form", "table")}>
            {words.table}
          </Button>
        </div>
        <label class="fleet-colours">
          <span class={phone.value ? "visually-hidden" : "soft"}>{words.colours}</span>
          <select class="field" value={colourSet.value} onChange={(event) => (colourSet.value = event.currentTarget.value as ColourSet)}>
            <option value="standard">{words.coloursStandard}</option>
            <option value="safe">{words.coloursSafe}</option>
          </select>
        </label>
        {asTable ? null : <ZoomButtons />}
        <p class="fleet-total soft" aria-live="off">
          {loading ? words.loading(loading.pods, loading.of) : words.total(model.pods + tray.count, model.nodes.length)}
        </p>
      </div>
      <Legend connection={connection} query={query} choose={setTyped} tray={tray.count} showTray={showTray} toggleTray={() => setShowTray(!showTray)} />
      {connection.isLost.value ? <p class="fleet-note">{words.lost}</p> : null}
      <div class="fleet-main">
        {layouts === 0 ? (
          <Loading />
        ) : model.nodes.length === 0 && !loading ? (
          <Notice title={words.empty}>
            <p>{words.emptyHint}</p>
          </Notice>
        ) : asTable ? (
          <FleetTable connection={connection} openPod={openPod} openNode={openNode} />
        ) : (
          <Picture
            connection={connection}
            renderer={params.renderer ?? ""}
            searching={found !== null}
            openPod={openPod}
            openNode={openNode}
          />
        )}
        {found ? <Found connection={connection} clear={() => setTyped("")} /> : null}
        {showTray && tray.count > 0 ? <Tray connection={connection} close={() => setShowTray(false)} /> : null}
      </div>
    </div>
  );
}

function Legend(props: {
  connection: FleetConnection;
  query: string;
  choose(query: string): void;
  tray: number;
  showTray: boolean;
  toggleTray(): void;
}) {
  const { totals } = props.connection.model;
  return (
    <div class="fleet-legend" role="group" aria-label={words.legend}>
      {POD_STATES.map((one) => {
        const chosen = props.query.trim() === one.word;
        return (
          <Button
            key={one.state}
            small
            look="plain"
            title={one.hint}
            aria-pressed={chosen}
            disabled={!totals[one.state] && !chosen ? words.none(one.label) : null}
            onClick={() => props.choose(chosen ? "" : one.word)}
          >
            <Swatch state={one.state} />
            <span>{one.label}</span>
            <span class="number fleet-count">{(totals[one.state] ?? 0).toLocaleString("en")}</span>
          </Button>
        );
      })}
      {props.tray > 0 ? (
        <Button small aria-expanded={props.showTray} onClick={props.toggleTray}>
          <Icon name="warning" />
          {words.unbound(props.tray)}
        </Button>
      ) : null}
    </div>
  );
}

function Found({ connection, clear }: { connection: FleetConnection; clear(): void }) {
  const found = connection.model.found.value;
  if (!found) return null;
  return (
    <aside class="fleet-side" aria-label={words.foundList}>
      <header>
        <h2>{words.found(found.count)}</h2>
        <Button small look="plain" aria-label={words.clearSearch} onClick={clear}>
          <Icon name="close" />
        </Button>
      </header>
      <ul class="fleet-found">
        {found.pods.map((pod) => (
          <li key={pod.name}>
            <button type="button" onClick={() => openPod(pod.name)}>
              <Swatch state={pod.state} />
              <span class="fleet-found-name">{visible(pod.name)}</span>
              <span class="faint">
                {visible(pod.node)} · {words.states[pod.state]?.label}
              </span>
            </button>
          </li>
        ))}
      </ul>
      {found.count > found.pods.length ? <p class="faint">{words.foundMore(found.pods.length)}</p> : null}
    </aside>
  );
}

function Tray({ connection, close }: { connection: FleetConnection; close(): void }) {
  const tray = connection.model.tray.value;
  const rest = tray.count - tray.pods.length;
  return (
    <aside class="fleet-side" aria-label={words.unboundTitle}>
      <header>
        <h2>{words.unboundTitle}</h2>
        <Button small look="plain" aria-label={words.closeTray} onClick={close}>
          <Icon name="close" />
        </Button>
      </header>
      <ul class="fleet-found">
        {tray.pods.map(([name, why]) => (
          <li key={name}>
            <button type="button" onClick={() => openPod(name)}>
              <Swatch state={5} />
              <span class="fleet-found-name">{visible(name)}</span>
              <span class="faint">{visible(why) || words.noReason}</span>
            </button>
          </li>
        ))}
      </ul>
      {rest > 0 ? (
        <Button small onClick={() => connection.askTray(Math.min(1_000, tray.pods.length + 200))}>
          {words.more(rest)}
        </Button>
      ) : null}
    </aside>
  );
}
