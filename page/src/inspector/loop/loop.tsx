/** The loop of an object: desired, observed, drift, action, live. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { useFeed } from "../../link/hooks";
import { linkTo, setParam } from "../../router";
import { refOf } from "../../state/kinds";
import { shortName } from "../../state/refs";
import type { ObjectRef } from "../../state/refs";
import { select } from "../../state/selection";
import { Button } from "../../ui/button";
import { Failure, Loading, Notice } from "../../ui/notice";
import { Phase } from "../../ui/phase";
import type { PhaseName } from "../../ui/phase";
import { visible } from "../../ui/text";
import { Ago } from "../../ui/time";
import { loop as words } from "../../words/loop";
import { Line } from "../../writes/line";
import { concerns, isCount, useWrites } from "../../writes/writes";
import type { WriteEntry } from "../../writes/writes";
import { Gauge } from "./gauge";
import "./loop.css";

export interface LoopValue {
  desired: string[];
  observed: string[];
  drift: { text: string; wanted: string; observed: string }[];
  phase: PhaseName;
  action: string;
  gauge: { observed: number; desired: number; unit: string } | null;
}

export interface ObjectFacts {
  exists: boolean;
  ref: ObjectRef;
  uid?: string;
  created?: string;
  generation?: number;
  observed?: number | null;
  resourceVersion?: string;
  labels?: Record<string, string>;
  owners?: { apiVersion: string; kind: string; name: string }[];
  deleting?: string;
}

export interface Reason {
  sentence: string;
  evidence: string[] | "";
  until: string;
  help: string[] | "";
}

const SHOWN_WRITES = 8;

/** The arguments of the feed `object`. */
export function objectArgs(target: ObjectRef): object {
  const { group, version, resource, namespace, name } = target;
  return { group, version, resource, namespace, name };
}

export default function LoopTab({ target }: { target: ObjectRef }) {
  const feed = useFeed<unknown>("object", objectArgs(target));
  if (feed.error) return <Failure error={feed.error} feature={words.feature} />;
  const facts = feed.items.get("object") as ObjectFacts | undefined;
  if (!facts) return <Loading />;
  const value = feed.items.get("loop") as LoopValue | undefined;
  const reason = feed.items.get("reason") as Reason | undefined;
  const pods = feed.items.get("pods") as { uids: string[] } | undefined;
  return (
    <div class="loop-tab">
      {value ? (
        <LoopPanel value={value} />
      ) : (
        <Notice title={words.gone} small>
          <p>{words.goneHint}</p>
        </Notice>
      )}
      {reason && reason.sentence ? <ReasonPanel reason={reason} /> : null}
      <div class="toolbar">
        <Button onClick={() => setParam("tab", "why")}>{words.why}</Button>
        <a class="button" href={linkTo({ view: "chain", params: { root: "" } })}>
          {words.inChain}
        </a>
      </div>
      <LastWrites target={target} uid={facts.uid ?? ""} uids={pods?.uids ?? []} />
      {facts.exists ? <Facts facts={facts} target={target} /> : null}
    </div>
  );
}

export function LoopPanel({ value }: { value: LoopValue }) {
  const gauge = value.gauge;
  return (
    <section class={`loop-panel card ${value.phase}`} aria-label={words.title}>
      <div class="loop-head">
        <h3>{words.title}</h3>
        <Phase phase={value.phase} />
      </div>
      <div class="loop-body">
        {gauge ? (
          <figure class="loop-gauge">
            <Gauge observed={gauge.observed} desired={gauge.desired} phase={value.phase} />
            <figcaption>{words.gauge(gauge.observed, gauge.desired, gauge.unit)}</figcaption>
          </figure>
        ) : null}
        <dl class="loop-rows">
          <Row name={words.desired}>{list(value.desired)}</Row>
          <Row name={words.observed}>{list(value.observed)}</Row>
          <Row name={words.drift} strong={value.drift.length > 0}>
            {value.drift.length === 0 ? words.none : list(value.drift.map((one) => one.text))}
          </Row>
          <Row name={words.action}>{visible(value.action)}</Row>
        </dl>
      </div>
    </section>
  );
}

function Row({ name, strong, children }: { name: string; strong?: boolean; children: ComponentChildren }) {
  return (
    <div class={strong ? "loop-row strong" : "loop-row"}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function list(texts: readonly string[]): ComponentChildren {
  return texts.length === 1 ? visible(texts[0]!) : <ul class="loop-facts">{texts.map((text, at) => <li key={at}>{visible(text)}</li>)}</ul>;
}

function ReasonPanel({ reason }: { reason: Reason }) {
  return (
    <section class="card loop-reason" aria-label={words.reason}>
      <h3>{words.reason}</h3>
      <p>{visible(reason.sentence)}</p>
      {reason.evidence && reason.evidence.length > 0 ? (
        <ul class="loop-evidence">
          {reason.evidence.map((line, at) => (
            <li key={at}>{visible(line)}</li>
          ))}
        </ul>
      ) : null}
      {reason.until ? <p class="soft">{visible(reason.until)}</p> : null}
      {reason.help && reason.help.length > 0 ? (
        <p>
          <strong>{words.help}:</strong> {reason.help.map((one) => visible(one)).join("; ")}
        </p>
      ) : null}
    </section>
  );
}

function LastWrites({ target, uid, uids }: { target: ObjectRef; uid: string; uids: string[] }) {
  const feed = useWrites();
  const found = useMemo(() => {
    const known = new Set(uids);
    const hits: WriteEntry[] = [];
    for (let at = feed.log.length - 1; at >= 0 && hits.length < SHOWN_WRITES; at -= 1) {
      const entry = feed.log[at]!;
      if (!isCount(entry) && concerns(entry, target, uid, known)) hits.push(entry);
    }
    return hits;
  }, [feed.revision, uid, uids.join(" "), target.name, target.namespace, target.resource]);
  if (feed.error) return null;
  return (
    <section aria-label={words.last}>
      <h3>{words.last}</h3>
      {found.length === 0 ? (
        <p class="soft">{words.lastNone}</p>
      ) : (
        <ol class="loop-writes">
          {found.map((entry) => (
            <li key={entry.revision}>
              <Line entry={entry} />
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

function Facts({ facts, target }: { facts: ObjectFacts; target: ObjectRef }) {
  const labels = Object.entries(facts.labels ?? {});
  return (
    <dl class="loop-meta">
      <Row name={words.created}>
        <Ago time={facts.created} ago />
      </Row>
      {facts.generation ? <Row name={words.generation}>{words.generationText(facts.generation, facts.observed ?? null)}</Row> : null}
      {(facts.owners ?? []).map((owner) => (
        <Row key={owner.name} name={words.owner}>
          <Owner owner={{ ...owner, namespace: target.namespace }} />
        </Row>
      ))}
      {labels.length > 0 ? (
        <Row name={words.labels}>
          <span class="loop-labels">
            {labels.map(([name, value]) => (
              <code key={name}>{visible(value ? `${name}=${value}` : name)}</code>
            ))}
          </span>
        </Row>
      ) : null}
    </dl>
  );
}

function Owner({ owner }: { owner: { apiVersion: string; kind: string; name: string; namespace: string } }) {
  const ref = refOf(owner);
  const text = visible(shortName(owner));
  if (!ref) return <span>{text}</span>;
  return (
    <button type="button" class="link" onClick={() => select(ref)}>
      {text}
    </button>
  );
}
