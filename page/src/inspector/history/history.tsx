/** The changes of an object: who changed what, when. Two versions can be compared, and a change undone. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { ask, useFeed } from "../../link/hooks";
import { ApiError } from "../../link/protocol";
import type { Status } from "../../link/protocol";
import { at, logical, setMoment } from "../../state/place";
import { refKey } from "../../state/refs";
import type { ObjectRef } from "../../state/refs";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { Failure, Loading, Notice } from "../../ui/notice";
import { visible } from "../../ui/text";
import { Ago } from "../../ui/time";
import { toastError } from "../../ui/toast";
import { history as words } from "../../words/history";
import { concerns, isCount, useWrites, withYou } from "../../writes/writes";
import { diffLines, linesOf, shortened } from "./diff";
import type { DiffLine } from "./diff";
import { UndoDialog } from "./undo";
import "./history.css";

interface Change {
  revision: number;
  kind: "created" | "updated" | "deleted" | "known";
  text: string;
  cause?: { at?: number; reason?: string };
  /** The author as people know it. */
  actor?: string;
  /** Whether nothing but the observed state has changed. */
  statusOnly?: boolean;
}

interface Page {
  oldest: { revision: number; at: number };
  changes: Change[];
  next: number;
}

const LIMIT = 50;
const NONE: ReadonlySet<string> = new Set();

export default function HistoryTab({ target }: { target: ObjectRef }) {
  const [changes, setChanges] = useState<Change[] | null>(null);
  const [next, setNext] = useState(0);
  const [oldest, setOldest] = useState<Page["oldest"] | null>(null);
  const [error, setError] = useState<Status | null>(null);
  const [withStatus, setWithStatus] = useState(false);
  const [chosen, setChosen] = useState<number[]>([]);
  const [undoing, setUndoing] = useState<number | null>(null);
  const moment = at.value;
  const key = `${logical.value} ${moment} ${refKey(target)}`;
  const latest = useLatestWrite(target);

  useEffect(() => {
    let current = true;
    readPage(target, moment === null ? 0 : moment + 1).then(
      (page) => {
        if (!current) return;
        setChanges(page.changes);
        setNext(page.next);
        setOldest(page.oldest);
        setError(null);
      },
      (failed: unknown) => {
        if (current) setError(failed instanceof ApiError ? failed.status : { message: String(failed) });
      },
    );
    return () => {
      current = false;
    };
  }, [key, latest]);
  useEffect(() => setChosen([]), [refKey(target)]);

  if (error) {
    const unknown = error.code === 404 && error.details?.name !== undefined;
    return unknown ? <Notice title={words.none} small /> : <Failure error={error} feature={words.feature} />;
  }
  if (!changes) return <Loading />;
  const folded = changes.filter((one) => one.statusOnly).length;
  const shown = withStatus ? changes : changes.filter((one) => !one.statusOnly);
  const older = async () => {
    try {
      const page = await readPage(target, next);
      setChanges([...changes, ...page.changes]);
      setNext(page.next);
    } catch (failed) {
      toastError(failed);
    }
  };
  const choose = (revision: number, checked: boolean) => {
    setChosen(checked ? [...chosen.slice(-1), revision] : chosen.filter((one) => one !== revision));
  };
  return (
    <div class="history-tab">
      {chosen.length === 2 ? (
        <Difference target={target} from={Math.min(...chosen)} to={Math.max(...chosen)} close={() => setChosen([])} />
      ) : (
        <p class="faint">{words.compareHint}</p>
      )}
      {folded > 0 ? (
        <Button small aria-pressed={withStatus} onClick={() => setWithStatus(!withStatus)}>
          {withStatus ? words.hideStatus : words.status(folded)}
        </Button>
      ) : null}
      <ol class="history-list" aria-label={words.list}>
        {shown.map((change) => (
          <Entry
            key={change.revision}
            change={change}
            chosen={chosen.includes(change.revision)}
            choose={(checked) => choose(change.revision, checked)}
            undo={() => setUndoing(change.revision)}
          />
        ))}
      </ol>
      {next ? (
        <Button onClick={() => void older()}>{words.older}</Button>
      ) : oldest?.at ? (
        <p class="faint">{words.begins(new Date(oldest.at).toLocaleString())}</p>
      ) : null}
      {undoing !== null ? <UndoDialog revision={undoing} close={() => setUndoing(null)} /> : null}
    </div>
  );
}

function readPage(target: ObjectRef, before: number): Promise<Page> {
  const { group, resource, namespace, name } = target;
  return ask<Page>("GET", "/setpoint/v1/history", {
    prefix: logical.peek(),
    query: { group, resource, namespace, name, limit: LIMIT, ...(before ? { before } : {}) },
  });
}

/** The revision of the latest write to the object, so that the list follows it. */
function useLatestWrite(target: ObjectRef): number {
  const feed = useWrites();
  return useMemo(() => {
    for (let index = feed.log.length - 1; index >= 0; index -= 1) {
      const entry = feed.log[index]!;
      if (!isCount(entry) && concerns(entry, target, "", NONE)) return entry.revision;
    }
    return 0;
  }, [feed.revision, refKey(target)]);
}

function Entry(props: { change: Change; chosen: boolean; choose(checked: boolean): void; undo(): void }) {
  const { change } = props;
  const time = change.cause?.at ? new Date(change.cause.at) : null;
  const who = withYou(change.actor ?? "");
  return (
    <li class={`history-entry ${change.kind}`}>
      {change.kind === "deleted" ? (
        <span class="history-mark" />
      ) : (
        <input
          type="checkbox"
          class="history-mark"
          checked={props.chosen}
          aria-label={words.compareWith(change.revision)}
          onChange={(event) => props.choose(event.currentTarget.checked)}
        />
      )}
      <div class="history-body">
        <p>{visible(change.text)}</p>
        {change.cause?.reason ? <q class="soft">{visible(change.cause.reason)}</q> : null}
        <p class="faint history-foot">
          {who ? `${visible(words.by(who))} · ` : ""}
          <Ago time={time?.toISOString()} /> · {words.revision(change.revision)}
        </p>
        <div class="toolbar">
          <Button small look="plain" onClick={() => setMoment(change.revision, time)}>
            <Icon name="clock" />
            {words.moment}
          </Button>
          {change.kind !== "known" && !change.statusOnly ? (
            <Button small look="plain" writes onClick={props.undo}>
              {words.undo}
            </Button>
          ) : null}
        </div>
      </div>
    </li>
  );
}

function Difference({ target, from, to, close }: { target: ObjectRef; from: number; to: number; close(): void }) {
  const { group, version, resource, namespace, name } = target;
  const feed = useFeed<{ object: unknown }>("versions", { group, version, resource, namespace, name, from, to }, logical.value);
  const before = feed.items.get("from");
  const after = feed.items.get("to");
  const lines = useMemo(
    () => (before && after ? shortened(diffLines(linesOf(before.object), linesOf(after.object))) : null),
    [before, after],
  );
  return (
    <section class="card" aria-label={words.difference(from, to)}>
      <div class="history-diff-head">
        <h3>{words.difference(from, to)}</h3>
        <Button look="plain" small aria-label={words.closeDifference} onClick={close}>
          <Icon name="close" />
        </Button>
      </div>
      {feed.error ? <Failure error={feed.error} feature={words.feature} /> : !lines ? <Loading /> : lines.length === 0 ? <p>{words.same}</p> : <DiffText lines={lines} />}
    </section>
  );
}

function DiffText({ lines }: { lines: readonly (DiffLine | number)[] }) {
  return (
    <div class="history-diff" tabIndex={0} role="group">
      {lines.map((line, index) =>
        typeof line === "number" ? (
          <div key={index} class="history-skipped">
            {words.unchanged(line)}
          </div>
        ) : (
          <div key={index} class={line.sign === "+" ? "history-line added" : line.sign === "-" ? "history-line removed" : "history-line"}>
            {line.sign === " " ? null : <span class="visually-hidden">{line.sign === "+" ? words.added : words.removed} </span>}
            <span aria-hidden="true">{line.sign} </span>
            {visible(line.text)}
          </div>
        ),
      )}
    </div>
  );
}
