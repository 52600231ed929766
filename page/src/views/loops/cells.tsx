/** The cells of a loop: its queue, what it works on, what waits. */
import { select } from "../../state/selection";
import { Button } from "../../ui/button";
import { visible } from "../../ui/text";
import { loops as words } from "../../words/loops";
import { refOfKey } from "./board";
import type { Loop } from "./board";
import { Sparkline } from "./sparkline";
import { countdown } from "./ticking";

const SHOWN = 3;

/** A key of a queue; if its object is known, a button that selects it. */
export function Key({ loop, name }: { loop: Loop; name: string }) {
  const ref = refOfKey(loop, name);
  if (!ref) return <span class="loops-key">{visible(name)}</span>;
  return (
    <button type="button" class="loops-key link" onClick={() => select(ref)}>
      {visible(name)}
    </button>
  );
}

function More({ count }: { count: number }) {
  return count > 0 ? <li class="faint">{words.more(count)}</li> : null;
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
        <ul class="loops-keys">
          {loop.queued.slice(0, SHOWN).map((one) => (
            <li key={one.key}>
              <Key loop={loop} name={one.key} />
              {one.changes > 1 ? (
                <span class="badge waiting" title={words.timesHint(one.key, one.changes)}>
                  {words.times(one.changes)}
                </span>
              ) : null}
            </li>
          ))}
          <More count={loop.depth - Math.min(SHOWN, loop.queued.length)} />
        </ul>
      ) : null}
    </div>
  );
}

export function WorkingCell({ loop, now }: { loop: Loop; now: number }) {
  if (loop.working.length === 0) return <span class="faint loops-none">–</span>;
  return (
    <ul class="loops-keys">
      {loop.working.slice(0, SHOWN).map((one) => (
        <li key={one.key}>
          <Key loop={loop} name={one.key} /> <span class="number faint">{words.since(countdown(now - one.since))}</span>
        </li>
      ))}
      <More count={loop.working.length - SHOWN} />
    </ul>
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
  const shown = Math.min(SHOWN, loop.delayed.length) + Math.min(SHOWN, loop.waiting.length);
  return (
    <ul class="loops-keys">
      {loop.delayed.slice(0, SHOWN).map((one) => (
        <li key={`delayed ${one.key}`} data-delayed={one.key}>
          <Key loop={loop} name={one.key} /> <Timer due={one.due} now={now} />
          {one.failures > 0 ? <span class="faint">({words.failures(one.failures)})</span> : null}
        </li>
      ))}
      {loop.waiting.slice(0, SHOWN).map((one) => (
        <li key={`waiting ${one.key}`}>
          <Key loop={loop} name={one.key} />{" "}
          <span class="faint">
            {one.gated ? words.gated : words.fitsNowhere} ({words.attempts(one.attempts)})
          </span>
        </li>
      ))}
      <More count={waits - shown} />
    </ul>
  );
}

/** The errors of keys that wait, one line each, with a button that tries again now. */
export function Errors({ loop, step }: { loop: Loop; step(key: string): void }) {
  const failed = loop.delayed.filter((one) => one.error).slice(0, SHOWN);
  const waiting = loop.waiting.filter((one) => one.message).slice(0, SHOWN);
  return (
    <ul class="loops-errors">
      {[...failed.map((one) => [one.key, one.error] as const), ...waiting.map((one) => [one.key, one.message] as const)].map(
        ([key, message]) => (
          <li key={key}>
            <span>
              <strong>{visible(key)}</strong>: {visible(message)}
            </span>
            <span class="loops-actions">
              <Why loop={loop} name={key} />
              <Button small writes onClick={() => step(key)} aria-label={words.stepKey(visible(key))}>
                {words.step}
              </Button>
            </span>
          </li>
        ),
      )}
    </ul>
  );
}

export function hasErrors(loop: Loop): boolean {
  return loop.delayed.some((one) => one.error) || loop.waiting.some((one) => one.message);
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
