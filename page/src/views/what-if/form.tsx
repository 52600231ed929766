/** What should change, from when, and how long time passes. */
import { useEffect, useState } from "preact/hooks";
import { ask } from "../../link/hooks";
import { at, logical, namespace } from "../../state/place";
import { collectionPath, shortName } from "../../state/refs";
import type { ObjectRef } from "../../state/refs";
import { selected } from "../../state/selection";
import { Button } from "../../ui/button";
import { visible } from "../../ui/text";
import { toastError } from "../../ui/toast";
import { whatIf as words } from "../../words/what-if";
import { FaultFields } from "./faults";
import { KINDS, changeOf, choice, faultPlans } from "./model";
import type { ChangeType, Wanted, WantedFault } from "./model";

export interface Question {
  changes: Record<string, unknown>[];
  until: number | "settled";
  at: string;
  fork: string;
  /** Fault plans by component. */
  faults: Record<string, string>;
}

const MOST = 200;
/** Minutes of the longest prediction: a year. */
const MOST_MINUTES = 525_600;
const TYPES = Object.keys(words.changes) as ChangeType[];

interface Listed {
  /** Null if there are none. */
  items: { metadata: { name: string; namespace?: string } }[] | null;
}

/** The nodes, and the objects of the namespace that a change may be about. */
function useChoices(): { nodes: string[]; refs: ObjectRef[] } {
  const [choices, setChoices] = useState<{ nodes: string[]; refs: ObjectRef[] }>({ nodes: [], refs: [] });
  const where = namespace.value;
  const moment = at.value;
  useEffect(() => {
    let current = true;
    const accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    const query = { limit: MOST };
    const read = async () => {
      const nodes = await ask<Listed>("GET", "/api/v1/nodes", { query, accept });
      const lists = await Promise.all(KINDS.map((kind) => ask<Listed>("GET", collectionPath(kind, where), { query, accept })));
      const refs = KINDS.flatMap((kind, index) =>
        (lists[index]!.items ?? []).map((item) => ({
          group: kind.group,
          version: kind.version,
          resource: kind.resource,
          kind: kind.kind,
          namespace: item.metadata.namespace ?? "",
          name: item.metadata.name,
        })),
      );
      if (current) setChoices({ nodes: (nodes.items ?? []).map((one) => one.metadata.name), refs });
    };
    read().catch(toastError);
    return () => void (current = false);
  }, [where, moment, logical.value]);
  return choices;
}

function initial(): Wanted {
  const target = selected.peek();
  const object = target ? choice(target) : "";
  const type: ChangeType = target && target.resource !== "nodes" ? (target.kind === "Deployment" ? "scale" : "delete") : "stop";
  return { type, node: target?.resource === "nodes" ? target.name : "", object, replicas: "", image: "", yaml: "" };
}

/** The seconds of a text with minutes; null if it is not a number of minutes that a prediction can have. */
function secondsOf(minutes: string): number | null {
  const found = Number(minutes);
  return minutes.trim() && found > 0 && found <= MOST_MINUTES ? found * 60 : null;
}

export function ChangeForm(props: { busy: boolean; fork: string; ask(question: Question): void }) {
  const choices = useChoices();
  const [wanted, setWanted] = useState(initial);
  const [until, setUntil] = useState("settled");
  const [minutes, setMinutes] = useState("6");
  const [from, setFrom] = useState("");
  const [faults, setFaults] = useState<WantedFault[]>([]);
  const set = (change: Partial<Wanted>) => setWanted((before) => ({ ...before, ...change }));
  const target = selected.value;
  const refs = target && !choices.refs.some((one) => choice(one) === choice(target)) ? [target, ...choices.refs] : choices.refs;
  const changes = changeOf(wanted, refs);
  const start = from === "fork" && !props.fork ? "" : from;
  const time = until === "settled" ? "settled" : until === "minutes" ? secondsOf(minutes) : Number(until);
  const plans = faultPlans(faults);
  const lacking = !changes ? words.missing : time === null ? words.missingTime : plans ? null : words.missingFault;
  const submit = () => {
    if (!changes || time === null || !plans || props.busy) return;
    props.ask({
      changes,
      until: time,
      at: start === "" && at.peek() !== null ? String(at.peek()) : "",
      fork: start === "fork" ? props.fork : "",
      faults: plans,
    });
  };
  return (
    <form
      class="whatif-form"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <div class="whatif-field">
          <label for="whatif-change">{words.change}</label>
        <select id="whatif-change" class="field" value={wanted.type} onChange={(event) => set({ type: event.currentTarget.value as ChangeType })}>
          {TYPES.map((type) => (
            <option key={type} value={type}>
              {words.changes[type]}
            </option>
          ))}
        </select>
      </div>
      <ChangeFields wanted={wanted} set={set} nodes={choices.nodes} refs={refs} />
      <div class="whatif-field">
          <label for="whatif-until">{words.until}</label>
        <select id="whatif-until" class="field" value={until} onChange={(event) => setUntil(event.currentTarget.value)}>
          {["settled", "300", "3600", "minutes"].map((value) => (
            <option key={value} value={value}>
              {words.untilChoices[value]}
            </option>
          ))}
        </select>
      </div>
      {until === "minutes" ? (
        <div class="whatif-field">
          <label for="whatif-minutes">{words.minutes}</label>
          <input id="whatif-minutes" class="field" type="number" min={1} max={MOST_MINUTES} value={minutes} onInput={(event) => setMinutes(event.currentTarget.value)} />
        </div>
      ) : null}
      <div class="whatif-field">
          <label for="whatif-from">{words.from}</label>
        <select id="whatif-from" class="field" value={start} onChange={(event) => setFrom(event.currentTarget.value)}>
          <option value="">{at.value === null ? words.fromNow : words.fromMoment(String(at.value))}</option>
          {props.fork ? <option value="fork">{words.fromFork(props.fork)}</option> : null}
        </select>
      </div>
      <FaultFields faults={faults} set={setFaults} nodes={choices.nodes} />
      <Button type="submit" look="primary" disabled={lacking ?? (props.busy ? words.running : null)} onClick={() => undefined}>
        {props.busy ? words.running : words.run}
      </Button>
    </form>
  );
}

function ChangeFields(props: { wanted: Wanted; set(change: Partial<Wanted>): void; nodes: string[]; refs: readonly ObjectRef[] }) {
  const { wanted, set } = props;
  switch (wanted.type) {
    case "none":
      return null;
    case "stop":
    case "drain":
      return (
        <div class="whatif-field">
          <label for="whatif-node">{words.node}</label>
          <select id="whatif-node" class="field" value={wanted.node} onChange={(event) => set({ node: event.currentTarget.value })}>
            <option value="">{words.choose}</option>
            {props.nodes.map((node) => (
              <option key={node} value={node}>
                {visible(node)}
              </option>
            ))}
          </select>
        </div>
      );
    case "apply":
      return (
        <div class="whatif-field wide">
          <label for="whatif-yaml">{words.yaml}</label>
          <textarea id="whatif-yaml" class="field mono" rows={8} spellcheck={false} placeholder={words.yamlHint} value={wanted.yaml} onInput={(event) => set({ yaml: event.currentTarget.value })} />
        </div>
      );
    default:
      return (
        <>
          <ObjectField {...props} />
          {wanted.type === "scale" ? (
            <div class="whatif-field">
          <label for="whatif-replicas">{words.replicas}</label>
              <input id="whatif-replicas" class="field" type="number" min={0} value={wanted.replicas} onInput={(event) => set({ replicas: event.currentTarget.value })} />
            </div>
          ) : null}
          {wanted.type === "image" ? (
            <div class="whatif-field">
          <label for="whatif-image">{words.image}</label>
              <input id="whatif-image" class="field" autocomplete="off" value={wanted.image} onInput={(event) => set({ image: event.currentTarget.value })} />
            </div>
          ) : null}
        </>
      );
  }
}

function ObjectField({ wanted, set, refs }: { wanted: Wanted; set(change: Partial<Wanted>): void; refs: readonly ObjectRef[] }) {
  const fits = (ref: ObjectRef) => {
    const kind = KINDS.find((one) => one.resource === ref.resource && one.group === ref.group);
    if (wanted.type === "delete") return true;
    return Boolean(wanted.type === "scale" ? kind?.scales : kind?.images);
  };
  return (
    <div class="whatif-field">
          <label for="whatif-object">{words.object}</label>
      <select id="whatif-object" class="field" value={wanted.object} onChange={(event) => set({ object: event.currentTarget.value })}>
        <option value="">{words.choose}</option>
        {refs.filter(fits).map((ref) => (
          <option key={choice(ref)} value={choice(ref)}>
            {visible(shortName(ref))}
            {ref.namespace && ref.namespace !== namespace.value ? ` (${visible(ref.namespace)})` : ""}
          </option>
        ))}
      </select>
    </div>
  );
}
