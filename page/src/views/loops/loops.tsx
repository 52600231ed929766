/** The board of control loops, with a debugger: pause, step, slow motion, breakpoints. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useKeys } from "../../a11y/keyboard";
import { useFeed } from "../../link/hooks";
import { at, logical } from "../../state/place";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { Failure, Loading, Notice } from "../../ui/notice";
import { visible } from "../../ui/text";
import { loops as words } from "../../words/loops";
import { ALWAYS, boardOf, isActive } from "./board";
import type { Board, BoardItem, Component, Loop } from "./board";
import { Errors, QueueCell, WaitsCell, WorkingCell } from "./cells";
import { command } from "./commands";
import { GateBar, togglePause } from "./gate";
import { PERIOD, sample } from "./history";
import { Runs } from "./runs";
import { useClusterNow } from "./ticking";
import "./loops.css";

export default function Loops() {
  const feed = useFeed<BoardItem>("loops", {}, logical.value);
  const board = useMemo(() => boardOf(feed.items), [feed.revision, feed.items]);
  const latest = useRef(board);
  latest.current = board;
  const [tick, setTick] = useState(0);
  useEffect(() => {
    const timer = window.setInterval(() => {
      sample(latest.current.loops);
      if (!document.hidden) setTick((count) => count + 1);
    }, PERIOD);
    return () => window.clearInterval(timer);
  }, []);
  useKeys(
    () => [
      { keys: ".", label: `${words.pauseAll}, ${words.resumeAll}`, run: () => (at.peek() === null ? togglePause(latest.current.gate) : false) },
      { keys: "s", label: words.step, run: () => (at.peek() === null ? void command("step", focusedLoop()) : false) },
    ],
    [],
  );
  if (feed.error) return <Failure error={feed.error} feature={words.feature} />;
  if (!feed.synced) return <Loading />;
  if (board.loops.length === 0) {
    return (
      <Notice title={words.none}>
        <p>{words.noneHint}</p>
      </Notice>
    );
  }
  return <BoardView board={board} tick={tick} />;
}

/** The loop whose row has the focus. */
function focusedLoop(): Record<string, string> {
  const loop = document.activeElement?.closest<HTMLElement>("[data-loop]")?.dataset.loop;
  return loop ? { loop } : {};
}

function BoardView({ board, tick }: { board: Board; tick: number }) {
  const timed = board.loops.some((loop) => loop.working.length > 0 || loop.delayed.length > 0) || (board.gate?.until ?? 0) > 0;
  const now = useClusterNow(board.ahead, timed, 200);
  const shown = (loop: Loop) => isActive(loop) || ALWAYS.includes(loop.name);
  const active = board.loops.filter(shown);
  const idle = board.loops.filter((loop) => !shown(loop));
  const usual = ALWAYS.map((name) => active.find((loop) => loop.name === name) ?? name);
  const others = active.filter((loop) => !ALWAYS.includes(loop.name));
  const columns = words.columns;
  return (
    <div class="loops-view">
      <header class="loops-head">
        <h2>{words.title}</h2>
        <p class="soft">{words.about}</p>
        {at.value !== null ? <p class="loops-past">{words.nowOnly}</p> : null}
        <Components components={board.components} />
      </header>
      <GateBar board={board} now={now} />
      <div class="loops-rows">
        <table class="loops-table" aria-label={words.table}>
          <colgroup>
            <col class="name" />
            <col class="queue" />
            <col class="working" />
            <col />
            <col class="figure" />
            <col class="figure" />
            <col class="gate" />
          </colgroup>
          <thead>
            <tr>
              <th scope="col">{columns.loop}</th>
              <th scope="col">{columns.queue}</th>
              <th scope="col">{columns.working}</th>
              <th scope="col">{columns.waits}</th>
              <th scope="col" title={words.rateHint}>
                {columns.rate}
              </th>
              <th scope="col" title={words.p99Hint}>
                {columns.p99}
              </th>
              <th scope="col">{columns.gate}</th>
            </tr>
          </thead>
          {[...usual, ...others].map((one) =>
            typeof one === "string" ? <Deferred key={one} name={one} text={board.deferred.includes(one) ? words.starts : words.componentStopped} /> : <Row key={one.name} loop={one} now={now} tick={tick} />,
          )}
        </table>
        <Errors loops={board.loops} step={(loop, key) => void command("step", { loop, key })} />
        <details class="loops-idle">
          <summary>{words.idle(idle.length)}</summary>
          <p class="soft">{idle.map((loop) => loop.name).join(", ")}</p>
          <p class="soft">
            {words.deferred(board.deferred.length)}: {board.deferred.join(", ")}
          </p>
        </details>
      </div>
    </div>
  );
}

function Components({ components }: { components: readonly Component[] }) {
  return (
    <ul class="loops-components" aria-label={words.leader}>
      {components.map((one) => (
        <li key={one.name} class={one.state === "leads" ? "" : "off"} title={visible(one.holder)}>
          <strong>{one.name}</strong> {state(one)}
          {one.error ? `: ${visible(one.error)}` : ""}
        </li>
      ))}
    </ul>
  );
}

/** The host in the identity of a holder: `laptop` of `laptop_abd35f0f-…`. */
function host(holder: string): string {
  return holder.replace(/_[0-9a-f-]{36}$/, "");
}

function state(one: Component): string {
  if (one.state === "stopped") return words.componentStopped;
  if (one.state === "stands by") return words.standsBy(visible(host(one.holder)));
  return one.elected ? words.leads(visible(host(one.holder))) : words.leadsAlone;
}

/** A loop that does not run, because it is not needed yet or its component is stopped. */
function Deferred({ name, text }: { name: string; text: string }) {
  return (
    <tbody class="deferred">
      <tr>
        <th scope="row">{name}</th>
        <td colSpan={6} class="faint">
          {text}
        </td>
      </tr>
    </tbody>
  );
}

function Row({ loop, now, tick }: { loop: Loop; now: number; tick: number }) {
  const [open, setOpen] = useState(false);
  const columns = words.columns;
  return (
    <tbody class={loop.mode === "run" ? "" : "held"} data-loop={loop.name} data-mode={loop.mode}>
      <tr>
        <th scope="row">
          <button
            type="button"
            class="loops-name"
            aria-expanded={open}
            aria-label={words.showRuns(loop.name)}
            title={words.runs}
            onClick={() => setOpen(!open)}
          >
            <Icon name={open ? "down" : "right"} />
            {loop.name}
          </button>
        </th>
        <td data-label={columns.queue}>
          <QueueCell loop={loop} tick={tick} />
        </td>
        <td data-label={columns.working}>
          <WorkingCell loop={loop} now={now} />
        </td>
        <td data-label={columns.waits}>
          <WaitsCell loop={loop} now={now} />
        </td>
        <td class="number" data-label={columns.rate}>
          {loop.rate.toFixed(1)}
        </td>
        <td class="number" data-label={columns.p99} title={words.median(words.milliseconds(loop.p50))}>
          {loop.done > 0 ? words.milliseconds(loop.p99) : "–"}
        </td>
        <td data-label={columns.gate}>
          <span class="loops-actions">
            <Button
              small
              writes
              aria-pressed={loop.mode === "paused"}
              aria-label={words.pauseLoop(loop.name)}
              title={loop.mode === "slow" ? words.slow(loop.every) : loop.mode === "paused" ? words.paused : words.running}
              onClick={() => void command(loop.mode === "run" ? "pause" : "resume", { loop: loop.name })}
            >
              <Icon name={loop.mode === "run" ? "pause" : "play"} />
              {loop.mode === "run" ? words.pause : words.resume}
            </Button>
            <Button small writes aria-label={words.stepLoop(loop.name)} onClick={() => void command("step", { loop: loop.name })}>
              <Icon name="step" />
            </Button>
          </span>
        </td>
      </tr>
      {open ? (
        <tr class="loops-more">
          <td colSpan={7}>
            <Runs loop={loop} now={now} />
          </td>
        </tr>
      ) : null}
    </tbody>
  );
}
