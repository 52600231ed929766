/** The panel with the terminals of the current logical cluster. */
import { signal, useComputed } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { announce } from "../../a11y/live";
import { logical } from "../../state/place";
import { phone } from "../../state/settings";
import { textForTerminal } from "../../state/terminal";
import { Button } from "../../ui/button";
import { Confirm } from "../../ui/dialog";
import { Icon } from "../../ui/icon";
import { visible } from "../../ui/text";
import { terminal as words } from "../../words/terminal";
import { TerminalSession } from "./session";
import { screenReader } from "./settings";
import "./terminal.css";

const MOST = 8;
const PHONE_KEYS: readonly (readonly [string, string, string])[] = [
  ["Tab", "\t", words.keyTab],
  ["^C", "\x03", words.keyInterrupt],
  ["↑", "\x1b[A", words.keyUp],
  ["↓", "\x1b[B", words.keyDown],
  ["|", "|", "|"],
  ["-", "-", "-"],
  ["/", "/", "/"],
];

const sessions = signal<readonly TerminalSession[]>([]);
/** The chosen terminal of each logical cluster. */
const chosen = signal<Readonly<Record<string, number>>>({});

function add(prefix: string): TerminalSession {
  const others = sessions.peek();
  const number = Math.max(0, ...others.map((each) => each.number)) + 1;
  const place = Math.max(0, ...others.filter((each) => each.prefix === prefix).map((each) => each.place)) + 1;
  const session = new TerminalSession(number, prefix, place);
  sessions.value = [...sessions.peek(), session];
  choose(session);
  return session;
}

function choose(session: TerminalSession): void {
  chosen.value = { ...chosen.peek(), [session.prefix]: session.number };
}

function close(session: TerminalSession): void {
  session.close();
  sessions.value = sessions.peek().filter((each) => each !== session);
}

export default function TerminalPanel() {
  const prefix = logical.value;
  const own = useComputed(() => sessions.value.filter((each) => each.prefix === logical.value));
  useLayoutEffect(() => {
    if (own.peek().length) return;
    // A cluster without a terminal gets one, if need be instead of the oldest one of another cluster. One less than the
    // most: the server counts the one that is closed for a moment longer.
    const oldest = sessions.peek().length < MOST - 1 ? undefined : sessions.peek()[0];
    if (oldest) close(oldest);
    add(prefix);
  }, [prefix, own.value.length]);
  const current = own.value.find((each) => each.number === chosen.value[prefix]) ?? own.value[0];
  const full = sessions.value.length >= MOST;
  return (
    <div class="terminal-panel">
      <div class="terminal-bar">
        <div class="terminal-tabs" role="tablist" aria-label={words.tabs}>
          {own.value.map((session) => (
            <button
              key={session.number}
              type="button"
              role="tab"
              class="tab"
              id={`tab-terminal-${session.number}`}
              aria-selected={session === current}
              aria-controls="panel-terminal"
              onClick={() => {
                choose(session);
                session.focus();
              }}
            >
              {session.name}
            </button>
          ))}
        </div>
        <Button small look="plain" aria-label={words.add} title={words.add} disabled={full ? words.most(MOST) : null} onClick={() => add(prefix).focus()}>
          <Icon name="plus" />
        </Button>
        {current && own.value.length > 1 ? (
          <Button small look="plain" aria-label={words.close(current.name)} title={words.close(current.name)} onClick={() => close(current)}>
            <Icon name="minus" />
          </Button>
        ) : null}
        <label class="terminal-switch">
          <input
            type="checkbox"
            checked={screenReader.value}
            onChange={(event) => {
              screenReader.value = event.currentTarget.checked;
              if (screenReader.value) announce(words.screenReaderOn);
            }}
          />
          {words.screenReader}
        </label>
      </div>
      {current ? <Shown key={current.number} session={current} /> : null}
    </div>
  );
}

function Shown({ session }: { session: TerminalSession }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!place.current) return;
    session.attach(place.current);
    session.focus();
    return () => session.detach();
  }, [session]);
  useEffect(() => session.readAloud(screenReader.value), [session, screenReader.value]);
  const text = textForTerminal.value;
  useEffect(() => {
    if (!text) return;
    session.type(text.text);
    textForTerminal.value = null;
  }, [text]);
  const lines = session.pasting.value;
  return (
    <>
      <div class="terminal-screen" ref={place} role="tabpanel" id="panel-terminal" aria-labelledby={`tab-terminal-${session.number}`} />
      {phone.value ? (
        <div class="terminal-keys" role="toolbar" aria-label={words.keys}>
          {PHONE_KEYS.map(([shown, keys, label]) => (
            <Button key={shown} small aria-label={label} onClick={() => session.press(keys)}>
              {shown}
            </Button>
          ))}
        </div>
      ) : null}
      {lines === null ? null : (
        <Confirm title={words.pasteTitle} action={words.paste} confirm={() => session.paste()} close={() => (session.pasting.value = null)}>
          <p>{words.pasteText(lines.split("\n").length)}</p>
          <pre class="terminal-pasted">{visible(lines)}</pre>
        </Confirm>
      )}
    </>
  );
}
