/** What holds the loops back: pause, step, slow motion, breakpoints. */
import { selected } from "../../state/selection";
import { shortName } from "../../state/refs";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { visible } from "../../ui/text";
import { loops as words } from "../../words/loops";
import type { Board, Breakpoint, Gate } from "./board";
import { shortLoop } from "./board";
import { command } from "./commands";
import { countdown } from "./ticking";

const SPEEDS = [0.5, 1, 2, 5, 10];

export function togglePause(gate: Gate | null): void {
  void command(gate && gate.mode === "paused" ? "resume" : "pause");
}

export function GateBar({ board, now }: { board: Board; now: number }) {
  const gate = board.gate;
  if (!gate) return null;
  const held = gate.until > 0;
  const paused = gate.mode === "paused";
  return (
    <section class={held ? "loops-gate held" : "loops-gate"} aria-label={words.columns.gate}>
      <div class="loops-controls">
        <Button writes look={paused ? "primary" : undefined} onClick={() => togglePause(gate)}>
          <Icon name={paused ? "play" : "pause"} /> {paused ? words.resumeAll : words.pauseAll} <kbd aria-hidden="true">.</kbd>
        </Button>
        <Button writes onClick={() => void command("step")}>
          <Icon name="step" /> {words.step} <kbd aria-hidden="true">s</kbd>
        </Button>
        <Speed gate={gate} />
        <BreakHere />
        {held && !paused ? (
          <Button writes onClick={() => void command("resume")}>
            <Icon name="play" /> {words.resumeAll}
          </Button>
        ) : null}
      </div>
      <State gate={gate} now={now} />
    </section>
  );
}

function Speed({ gate }: { gate: Gate }) {
  const value = gate.mode === "slow" ? String(gate.every) : "";
  const choices = value && !SPEEDS.includes(gate.every) ? [...SPEEDS, gate.every] : SPEEDS;
  return (
    <label class="loops-speed">
      <span>{words.slowMotion}</span>
      <select
        value={value}
        onChange={(event) => {
          const every = Number(event.currentTarget.value);
          void (every > 0 ? command("slow", { every }) : command("resume"));
        }}
      >
        <option value="">{words.slowOff}</option>
        {choices.map((every) => (
          <option key={every} value={String(every)}>
            {words.slowEach(every)}
          </option>
        ))}
      </select>
    </label>
  );
}

function BreakHere() {
  const target = selected.value;
  if (!target) {
    return (
      <Button disabled={words.breakNothing}>
        <Icon name="warning" /> {words.breakHere("…")}
      </Button>
    );
  }
  const key = target.namespace ? `${target.namespace}/${target.name}` : target.name;
  return (
    <Button writes onClick={() => void command("break", { kind: target.kind, key })}>
      <Icon name="warning" /> {words.breakHere(visible(shortName(target)))}
    </Button>
  );
}

function shown(one: Breakpoint): string {
  return visible([one.loop, one.kind, one.key].filter(Boolean).join(" "));
}

function sentence(gate: Gate): string {
  if (!gate.until) return gate.note ? "" : words.allRun;
  if (gate.stopped) return words.stopped(gate.stopped.loop, visible(gate.stopped.key));
  if (gate.mode === "paused") return words.allPaused;
  if (gate.mode === "slow") return words.allSlow(gate.every);
  if (gate.own.length > 0) return words.somePaused(gate.own.map((one) => shortLoop(one.name)).join(", "));
  return words.breakpointsSet;
}

function State({ gate, now }: { gate: Gate; now: number }) {
  return (
    <div class="loops-state">
      <p>
        <strong>{sentence(gate)}</strong> {gate.until && gate.by ? words.by(visible(gate.by)) : ""}{" "}
        {gate.until ? words.until(countdown(gate.until - now)) : ""}
      </p>
      {gate.note ? <p>{gate.note}</p> : null}
      {gate.breakpoints.length > 0 ? (
        <ul class="loops-breakpoints">
          {gate.breakpoints.map((one) => (
            <li key={one.number} class="badge waiting">
              {words.breakpoint(shown(one))}
              <Button
                small
                look="plain"
                aria-label={words.removeBreakpoint(shown(one))}
                onClick={() => void command("clear", { number: one.number })}
              >
                <Icon name="close" />
              </Button>
            </li>
          ))}
        </ul>
      ) : null}
    </div>
  );
}
