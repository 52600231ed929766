/** The cells of a loop: its queue, what it works on, what waits. */
import type { ComponentChildren } from "preact";
import { select } from "../../state/selection";
import { Button } from "../../ui/button";
import { visible } from "../../ui/text";
import { loops as words } from "../../words/loops";
import { refOfKey } from "./board";
import type { Loop } from "./board";
import { Sparkline } from "./sparkline";
import { countdown } from "./ticking";

/** Lines of a cell. Rows keep their height, so that nothing moves away under the pointer. */
const LINES = 2;
const ERRORS = 12;

/** A key of a queue; if its object is known, a button that selects it. */
export function Key({ loop, name }: { loop: Loop; name: string }) {
  const ref = refOfKey(loop, name);
  const shown = visible(name);
  if (!ref) {
    return (
      <span class="loops-key" title={shown}>
        {shown}
      </span>
    );
  }
  return (
    <button type="button" class="loops-key link" title={shown} onClick={() => select(ref)}>
      {shown}
    </button>
  );
}

/** The first entries, and how many more there are; at most two lines. */
function Lines({ count, children }: { count: number; children: ComponentChildren[] }) {
  const shown = count > LINES ? LINES - 1 : LINES;
  return (
    <ul class={count === 1 ? "loops-keys single" : "loops-keys"}>
      {children.slice(0, shown)}
      {count > shown ? <li class="faint">{words.more(count - Math.min(shown, children.length))}</li> : null}
    </ul>
  );
}

export function QueueCell({ loop, tick }: { loop: Loop; tick: number }) {
  return (
    <div class="loops-queue">
      <div class="loops-depth">
        <Sparkline name={loop.name} tick={tick} paused={loop.mode === "paused"} />
        <span class="number" data-depth={loop.depth}>
          {loop.depth}
        </span>
      </div>
      {loop.depth > 0 ? (
        <Lines count={loop.depth}>
          {loop.queued.map((one) => (
            <li key={one.key}>
              <Key loop={loop} name={one.key} />
              {one.changes > 1 ? (
                <span class="badge waiting" title={words.timesHint(visible(one.key), one.changes)}>
                  {words.times(one.changes)}
                </span>
              ) : null}
            </li>
          ))}
        </Lines>
      ) : null}
    </div>
  );
}

export function WorkingCell({ loop, now }: { loop: Loop; now: number }) {
  if (loop.working.length === 0) return <span class="faint loops-none">–</span>;
  return (
    <Lines count={loop.working.length}>
      {loop.working.map((one) => (
        <li key={one.key}>
          <Key loop={loop} name={one.key} /> <span class="number faint">{words.since(countdown(now - one.since))}</span>
        </li>
      ))}
    </Lines>
  );
}

/** A timer: how much of the wait has passed, as a pie, and the rest as text. */
function Timer({ due, now }: { due: number; now: number }) {
  const left = due - now;
  const part = Math.min(1, Math.max(0, left / 60_000));
  const angle = 2 * Math.PI * (1 - part);
  const x = 8 + 7 * Math.sin(angle);
  const y = 8 - 7 * Math.cos(angle);
  return (
    <span class="loops-timer">
      <svg viewBox="0 0 16 16" aria-hidden="true">
        <circle cx="8" cy="8" r="7" />
        {part > 0 && part < 1 ? <path d={`M8 8V1A7 7 0 ${angle > Math.PI ? 1 : 0} 1 ${x.toFixed(2)} ${y.toFixed(2)}Z`} /> : null}
      </svg>
      <span class="number">{left <= 0 ? words.due : countdown(left)}</span>
    </span>
  );
}

export function WaitsCell({ loop, now }: { loop: Loop; now: number }) {
  const waits = loop.delayedCount + loop.waitingCount;
  if (waits === 0) return <span class="faint loops-none">–</span>;
  return (
    <Lines count={waits}>
      {[
        ...loop.delayed.map((one) => (
          <li key={`delayed ${one.key}`} data-delayed={one.key}>
            <Key loop={loop} name={one.key} /> <Timer due={one.due} now={now} />
            {one.failures > 0 ? <span class="faint">({words.failures(one.failures)})</span> : null}
          </li>
        )),
        ...loop.waiting.map((one) => (
          <li key={`waiting ${one.key}`}>
            <Key loop={loop} name={one.key} />{" "}
            <span class="faint">
              {one.gated ? words.gated : words.fitsNowhere} ({words.attempts(one.attempts)})
            </span>
          </li>
        )),
      ]}
    </Lines>
  );
}

/** The errors of keys that wait, one line each, with a button that tries again now. */
export function Errors({ loops, step }: { loops: readonly Loop[]; step(loop: string, key: string): void }) {
  const found = loops.flatMap((loop) => [
    ...loop.delayed.filter((one) => one.error).map((one) => ({ loop, key: one.key, message: one.error })),
    ...loop.waiting.filter((one) => one.message).map((one) => ({ loop, key: one.key, message: one.message })),
  ]);
  if (found.length === 0) return null;
  return (
    <section class="loops-errors" aria-label={words.errors}>
      <h3>{words.errors}</h3>
      <ul>
        {found.slice(0, ERRORS).map(({ loop, key, message }) => (
          <li key={`${loop.name} ${key}`}>
            <span>
              {loop.name}, <strong>{visible(key)}</strong>: {visible(message)}
            </span>
            <span class="loops-actions">
              <Why loop={loop} name={key} />
              <Button small writes onClick={() => step(loop.name, key)} aria-label={words.stepKey(visible(key))}>
                {words.step}
              </Button>
            </span>
          </li>
        ))}
        {found.length > ERRORS ? <li class="faint">{words.more(found.length - ERRORS)}</li> : null}
      </ul>
    </section>
  );
}

export function Why({ loop, name }: { loop: Loop; name: string }) {
  const ref = refOfKey(loop, name);
  if (!ref) return null;
  return (
    <Button small look="plain" aria-label={words.whyOf(visible(name))} onClick={() => select(ref, { tab: "why" })}>
      {words.why}
    </Button>
  );
}
