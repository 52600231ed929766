/**
 * The lesson that is open. It is a part of the address (`lesson=loop`) and goes on while other views are shown; its logical
 * cluster becomes the one of the page.
 */
import { effect, signal } from "@preact/signals";
import { announce } from "../../a11y/live";
import { closePanel, isOpen, openPanel } from "../../dock/state";
import { converse } from "../../link/hooks";
import { connections } from "../../link/link";
import { CONNECTION_LOST } from "../../link/protocol";
import type { Status } from "../../link/protocol";
import { navigate, route } from "../../router";
import { logical } from "../../state/place";
import { phone } from "../../state/settings";
import { toast } from "../../ui/toast";
import { learn as words } from "../../words/learn";
import type { Block, LessonTree, Progress, Running, Verdict } from "./tree";

export interface LessonState {
  id: string;
  /** Null until the server has sent it. */
  lesson: LessonTree | null;
  cluster: string;
  images: Record<string, string>;
  /** The id of the lesson after this one; empty for the last. */
  next: string;
  progress: Progress;
  done: boolean;
  checks: Record<string, Verdict>;
  outcomes: readonly string[];
  hints: Record<string, Block[][]>;
  /** The check for which a hint is offered; empty if none is. */
  offered: string;
  running: Running | null;
  error: Status | null;
  lost: boolean;
}

const NOTHING: Progress = { checks: {}, answers: {}, right: {}, hints: {} };

export const current = signal<LessonState | null>(null);
/** The lesson file that was dropped onto the page; it is known to this tab only. */
export const dropped = signal<{ name: string; text: string } | null>(null);

let channel: { say(data: unknown): boolean; close(): void } | null = null;
let opened = "";

function update(change: Partial<LessonState>): void {
  const before = current.peek();
  if (before) current.value = { ...before, ...change };
}

/** Send a message to the lesson: an answer, a request for a hint, a fault, the operator, a reset. */
export function say(data: object): void {
  channel?.say(data);
}

interface Message extends Partial<Omit<LessonState, "lost" | "error">> {
  anew?: boolean;
  notice?: string;
}

function receive(message: Message): void {
  const state = current.peek();
  if (!state) return;
  if (message.lesson) {
    update({ ...message, lost: false, error: null });
    enterCluster(message.cluster ?? "");
  } else if (message.anew) {
    update({ checks: {}, outcomes: [] });
    toast(words.resetDone);
  } else if (message.notice) {
    toast(message.notice);
  } else if (message.progress) {
    sayWhatIsMet(state, message.progress);
    update(message);
  } else if (message.checks) {
    update({ checks: { ...state.checks, ...message.checks } });
  } else {
    update(message);
  }
}

/** A sentence for each check that was met just now. */
function sayWhatIsMet(state: LessonState, progress: Progress): void {
  if (!state.lesson || Object.keys(state.checks).length === 0) return;
  for (const id of Object.keys(progress.checks)) {
    if (id in state.progress.checks) continue;
    const text = words.met(state.checks[id]?.message ?? id);
    if (route.peek().view === "learn") announce(text);
    else toast(text);
  }
}

/** The lesson's cluster becomes the one of the page. */
export function enterCluster(cluster: string): void {
  if (logical.peek() !== cluster) {
    navigate({ kind: null, name: "", params: { cluster, at: "", ns: "default", root: "*", side: "" } }, { replace: true });
  }
}

/** Windows below this height have no room for a text, the timeline and a terminal. */
const LOW = 1_000;
let closedTimeline = false;

/**
 * Open the terminal. At once, and not when the lesson arrives: what is read then should not move. On a phone a panel covers
 * the text: there it opens with the first command.
 */
function makeRoom(): void {
  if (phone.peek()) {
    closePanel("terminal");
    return;
  }
  if (window.innerHeight < LOW && isOpen("timeline")) {
    closePanel("timeline");
    closedTimeline = true;
  }
  openPanel("terminal");
}

function open(id: string): void {
  channel?.close();
  channel = null;
  const before = current.peek();
  // After a reconnection, everything is as the learner has left it.
  if (before?.id !== id) makeRoom();
  const state: LessonState = {
    id,
    lesson: null,
    cluster: "",
    images: {},
    next: "",
    progress: NOTHING,
    done: false,
    checks: {},
    outcomes: [],
    hints: {},
    offered: "",
    running: null,
    error: null,
    lost: false,
  };
  // The text stays where it is, too.
  current.value = before?.id === id ? { ...before, checks: {}, lost: false, error: null } : state;
  const file = dropped.peek();
  const args = file && id === `dropped/${file.name}` ? file : { lesson: id };
  const mine = converse(
    "lesson",
    args,
    {
      message: (data) => channel === mine && receive(data as Message),
      end: (error) => {
        if (channel !== mine) return;
        channel = null;
        if (error?.reason === CONNECTION_LOST.reason) update({ lost: true });
        else if (error) update({ error });
      },
    },
    "",
  );
  channel = mine;
}

function close(): void {
  channel?.close();
  channel = null;
  const cluster = current.peek()?.cluster;
  current.value = null;
  if (closedTimeline) openPanel("timeline");
  closedTimeline = false;
  if (cluster && logical.peek() === cluster) navigate({ params: { cluster: "", root: "" } }, { replace: true });
}

/** Go to a lesson; an empty id goes to the list. */
export function goTo(id: string): void {
  navigate({ view: "learn", kind: null, name: "", params: { lesson: id } });
}

let started = false;

/** Follow the address from now on. */
export function startLessons(): void {
  if (started) return;
  started = true;
  effect(() => {
    const id = route.value.params.lesson ?? "";
    const connection = connections.value;
    if (connection === 0 || `${id} ${connection}` === opened) return;
    opened = `${id} ${connection}`;
    if (id) open(id);
    else close();
  });
}
