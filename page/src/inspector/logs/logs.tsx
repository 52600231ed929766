/** The tab with logs: of a Pod, or of all Pods that the object selects, coloured by Pod. */
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { ApiError } from "../../link/protocol";
import type { Status } from "../../link/protocol";
import { cluster } from "../../state/place";
import { refKey } from "../../state/refs";
import { Button } from "../../ui/button";
import { Failure, Loading, Notice } from "../../ui/notice";
import { visible } from "../../ui/text";
import { logs as words } from "../../words/logs";
import type { TabProps } from "../catalog";
import { selectorOf } from "./selector";
import { LogStream } from "./stream";
import type { LogLine } from "./stream";
import "./logs.css";

const LINE_HEIGHT = 18;
const COLOURS = 8;

export default function Logs({ target }: TabProps) {
  const stream = useSignal<LogStream | null>(null);
  const error = useSignal<Status | null>(null);
  const empty = useSignal(false);
  const follow = useSignal(true);
  const previous = useSignal(false);
  const container = useSignal("");
  const containers = useSignal<readonly string[]>([]);
  const search = useSignal("");
  const prefix = cluster.value;
  const isPod = target.kind === "Pod" && !target.group;

  useEffect(() => {
    let opened: LogStream | null = null;
    let gone = false;
    const args = { namespace: target.namespace, container: container.value, follow: follow.value && !previous.value, previous: previous.value, tail: 1000 };
    const open = (which: object) => {
      if (gone) return;
      opened = new LogStream({ ...args, ...which }, prefix);
      stream.value = opened;
    };
    error.value = null;
    if (isPod) open({ pod: target.name });
    else {
      selectorOf(target).then(
        (selector) => (selector ? open({ selector }) : (empty.value = true)),
        (problem: unknown) => (error.value = problem instanceof ApiError ? problem.status : { message: String(problem) }),
      );
    }
    return () => {
      gone = true;
      opened?.close();
    };
  }, [refKey(target), prefix, follow.value, previous.value, container.value]);

  const revision = stream.value?.revision.value ?? 0;
  // The names stay in the list when one of them is chosen.
  useEffect(() => {
    const names = [...new Set([...containers.peek(), ...(stream.value?.sources ?? []).map((each) => each.container)])];
    if (names.length !== containers.peek().length) containers.value = names;
  }, [revision]);
  const sought = search.value.toLowerCase();

  if (error.value) return <Failure error={error.value} feature={words.title} />;
  if (empty.value) return <Notice title={words.noPods} small />;
  const current = stream.value;
  if (!current) return <Loading />;
  const found = sought ? current.lines.filter((line) => line.text.toLowerCase().includes(sought)) : current.lines;
  return (
    <div class="logs">
      <div class="logs-bar">
        <label>
          <input type="checkbox" checked={follow.value && !previous.value} onChange={(event) => (follow.value = event.currentTarget.checked)} /> {words.follow}
        </label>
        <label title={words.previousHint}>
          <input type="checkbox" checked={previous.value} onChange={(event) => (previous.value = event.currentTarget.checked)} /> {words.previous}
        </label>
        {containers.value.length > 1 ? (
          <label>
            {words.container}{" "}
            <select class="field" value={container.value} onChange={(event) => (container.value = event.currentTarget.value)}>
              <option value="">{words.all}</option>
              {containers.value.map((name) => (
                <option key={name} value={name}>
                  {visible(name)}
                </option>
              ))}
            </select>
          </label>
        ) : null}
        <input
          type="search"
          class="field logs-search"
          aria-label={words.search}
          placeholder={words.search}
          value={search.value}
          onInput={(event) => (search.value = event.currentTarget.value)}
        />
        {sought ? (
          <span class="faint" role="status">
            {words.searchCount(found.length, current.lines.length)}
          </span>
        ) : null}
      </div>
      <Lines stream={current} lines={found} sought={sought} />
      {current.more ? <p class="faint">{words.more(current.more)}</p> : null}
      {current.notes.map((note, index) => (
        <p key={index} class="faint logs-note">
          {visible(note)}
        </p>
      ))}
    </div>
  );
}

/** The lines in sight. The end is kept in sight unless the user scrolls up. */
function Lines({ stream, lines, sought }: { stream: LogStream; lines: readonly LogLine[]; sought: string }) {
  void stream.revision.value; // the same array grows
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const height = useSignal(300);
  const atEnd = useSignal(true);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => (height.value = element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (box.current && atEnd.peek()) box.current.scrollTop = box.current.scrollHeight;
  });
  const several = stream.sources.length > 1;
  const first = Math.max(Math.floor(top.value / LINE_HEIGHT) - 10, 0);
  const last = Math.min(Math.ceil((top.value + height.value) / LINE_HEIGHT) + 10, lines.length);
  return (
    <div class="logs-frame">
      <div
        class="logs-box"
        ref={box}
        tabIndex={0}
        role="group"
        aria-label={words.lines}
        onScroll={(event) => {
          const element = event.currentTarget;
          top.value = element.scrollTop;
          atEnd.value = element.scrollTop + element.clientHeight >= element.scrollHeight - LINE_HEIGHT;
        }}
      >
        {lines.length === 0 ? <p class="faint logs-none">{stream.done ? words.none : words.noneYet}</p> : null}
        <div class="logs-all" style={{ height: `${lines.length * LINE_HEIGHT}px` }}>
          <div class="logs-shown" style={{ transform: `translateY(${first * LINE_HEIGHT}px)` }}>
            {lines.slice(first, last).map((line, index) => (
              <div key={first + index} class="logs-line">
                {several ? <span class={`logs-source series-${line.source % COLOURS}`}>{visible(stream.name(line.source))}</span> : null}
                <Marked text={visible(line.text)} sought={sought} />
              </div>
            ))}
          </div>
        </div>
      </div>
      {atEnd.value ? null : (
        <Button
          small
          class="logs-end"
          onClick={() => {
            if (box.current) box.current.scrollTop = box.current.scrollHeight;
          }}
        >
          {words.toEnd}
        </Button>
      )}
    </div>
  );
}

function Marked({ text, sought }: { text: string; sought: string }) {
  const at = sought ? text.toLowerCase().indexOf(sought) : -1;
  if (at < 0) return <>{text}</>;
  return (
    <>
      {text.slice(0, at)}
      <mark>{text.slice(at, at + sought.length)}</mark>
      {text.slice(at + sought.length)}
    </>
  );
}
