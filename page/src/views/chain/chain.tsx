/** The chain: from the person over the API server and the controllers to the node, with writes that travel. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useFeed } from "../../link/hooks";
import { linkTo, route, setParam } from "../../router";
import { findKind } from "../../state/kinds";
import { at, cluster, namespace } from "../../state/place";
import { kindSlug, parseKindSlug, sameObject, shortName } from "../../state/refs";
import type { ObjectRef } from "../../state/refs";
import { selected } from "../../state/selection";
import { phone } from "../../state/settings";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { Failure, Loading, Notice } from "../../ui/notice";
import { visible } from "../../ui/text";
import { chain as words } from "../../words/chain";
import { useWrites, writtenKey } from "../../writes/writes";
import { readGraph } from "./model";
import type { Graph, Item } from "./model";
import { ChainStage } from "./stage";
import { ChainTable } from "./table";
import "./chain.css";

const SPEEDS = ["1", "5", "20"] as const;

/** The object whose chain is shown, from the address: `apps.deployments/default/web`; null for everything. */
function rootOf(text: string): ObjectRef | null {
  const [slug = "", space = "", name = ""] = text.split("/").map(decodeURIComponent);
  const { group, resource } = parseKindSlug(slug);
  const kind = findKind(group, resource);
  if (!kind || !name) return null;
  return { group, version: kind.version, resource, kind: kind.kind, namespace: kind.namespaced ? space : "", name };
}

function rootText(ref: ObjectRef): string {
  return [kindSlug(ref), ref.namespace || "_", ref.name].map(encodeURIComponent).join("/");
}

export default function Chain() {
  const text = route.value.params.root ?? "";
  const root = useMemo(() => (text && text !== "*" ? rootOf(text) : null), [text, findKind("", "pods") !== null]);
  const target = selected.value;
  const args = root
    ? { group: root.group, version: root.version, resource: root.resource, namespace: root.namespace, name: root.name }
    : { namespace: namespace.value };
  const feed = useFeed<Item>("chain", args);
  const writes = useWrites();
  const graph = useMemo(() => readGraph(feed.items), [feed.revision, feed.items]);
  const [tidy, setTidy] = useState(0);
  const [slower, setSlower] = useState(1);
  const form = route.value.params.form ?? (phone.value ? "table" : "graph");

  // An object that is selected elsewhere and not in the picture becomes the root, unless everything was asked for. One
  // that is deleted does not change it.
  const key = target && writtenKey(target);
  const handled = useRef<string | null>(null);
  useEffect(() => {
    if (!feed.synced || handled.current === key) return;
    handled.current = key;
    const inside = target !== null && graph.boxes.has(writtenKey(target));
    if (target && !inside && text !== "*" && !sameObject(root, target)) setParam("root", rootText(target));
  }, [key, feed.synced]);

  return (
    <div class="chain-view">
      <div class="chain-head">
        <h2>{root ? words.title(visible(shortName(root))) : words.everything(namespace.value)}</h2>
        <div class="toolbar" role="toolbar" aria-label={words.form}>
          {root ? <Button onClick={() => setParam("root", "*")}>{words.showEverything}</Button> : null}
          {!root && target ? <Button onClick={() => setParam("root", rootText(target))}>{words.focus}</Button> : null}
          <div class="chain-forms">
            {(["graph", "table"] as const).map((one) => (
              <Button key={one} small aria-pressed={form === one} onClick={() => setParam("form", one)}>
                {words[one]}
              </Button>
            ))}
          </div>
          {form === "graph" ? (
            <>
              <Button small title={words.tidy} aria-label={words.tidy} onClick={() => setTidy(tidy + 1)}>
                <Icon name="fit" />
              </Button>
              {at.value === null && !writes.error ? (
                <label class="chain-speed">
                  <span class="visually-hidden">{words.speed}</span>
                  <select class="field" value={String(slower)} title={words.speed} onChange={(event) => setSlower(Number(event.currentTarget.value))}>
                    {SPEEDS.map((speed) => (
                      <option key={speed} value={speed}>
                        {words.speeds[speed]}
                      </option>
                    ))}
                  </select>
                </label>
              ) : null}
            </>
          ) : null}
        </div>
      </div>
      <Remarks graph={graph} refused={writes.error?.code === 403} missing={writes.error !== null} />
      {feed.error ? (
        <Failure error={feed.error} feature={words.feature} />
      ) : !feed.synced && graph.boxes.size === 0 ? (
        <Loading />
      ) : graph.boxes.size === 0 ? (
        <Empty root={root} unreadable={(graph.state?.unreadable.length ?? 0) > 0} />
      ) : form === "table" ? (
        <ChainTable graph={graph} log={writes.log} revision={writes.revision} />
      ) : (
        <ChainStage
          key={`${cluster.value} ${JSON.stringify(args)}`}
          graph={graph}
          log={writes.log}
          revision={writes.revision}
          following={writes.synced && !writes.error}
          slower={slower}
          tidy={tidy}
        />
      )}
    </div>
  );
}

function Remarks({ graph, missing, refused }: { graph: Graph; missing: boolean; refused: boolean }) {
  const texts: string[] = [];
  if (graph.state?.leftOut) texts.push(words.leftOut(graph.state.leftOut));
  if (graph.state && graph.state.unreadable.length > 0) texts.push(words.unreadable(graph.state.unreadable.join(", ")));
  if (missing) texts.push(refused ? words.hiddenWrites : words.noWrites);
  else if (at.value !== null) texts.push(words.past);
  return texts.length === 0 ? null : <p class="chain-remarks faint">{texts.join(" ")}</p>;
}

function Empty({ root, unreadable }: { root: ObjectRef | null; unreadable: boolean }) {
  if (unreadable) return <Notice title={words.forbidden} />;
  if (root) {
    return (
      <Notice title={words.gone}>
        <p>{words.goneHint}</p>
      </Notice>
    );
  }
  return (
    <Notice title={words.empty}>
      <p>{words.emptyHint}</p>
      <a class="button" href={linkTo({ view: "objects" })}>
        {words.emptyLink}
      </a>
    </Notice>
  );
}
