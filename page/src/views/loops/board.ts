/** The control loops as the server describes them, and what the board makes of that. */
import type { ObjectRef } from "../../state/refs";

export interface QueuedKey {
  key: string;
  changes: number;
  since: number;
}

export interface DelayedKey {
  key: string;
  due: number;
  failures: number;
  error: string;
}

export interface WaitingPod {
  key: string;
  attempts: number;
  message: string;
  gated: boolean;
}

export interface Loop {
  name: string;
  component: string;
  mode: "run" | "paused" | "slow";
  every: number;
  kind: string;
  group: string;
  version: string;
  resource: string;
  depth: number;
  added: number;
  done: number;
  failed: number;
  rate: number;
  p50: number;
  p99: number;
  queued: QueuedKey[];
  working: { key: string; since: number }[];
  delayed: DelayedKey[];
  delayedCount: number;
  waiting: WaitingPod[];
  waitingCount: number;
}

export interface Breakpoint {
  number: number;
  loop: string;
  kind: string;
  key: string;
}

export interface Gate {
  mode: "run" | "paused" | "slow";
  every: number;
  own: { name: string; mode: string; every: number }[];
  breakpoints: Breakpoint[];
  stopped: { loop: string; key: string; breakpoint: number; at: number } | null;
  by: string;
  until: number;
  /** The note about the limit of CPU time; empty if there is none. */
  note?: string;
}

export interface Component {
  name: string;
  state: "leads" | "stands by" | "stopped";
  holder: string;
  elected: boolean;
  error: string;
}

export interface LoopRun {
  id: string;
  key: string;
  at: number;
  took: number | null;
  triggers: number[];
  trigger_count: number;
  besides: string;
  writes: number;
  reason: string;
  error: string;
}

export type BoardItem = Loop | Gate | { list: Component[] } | { list: string[] } | { ahead: number };

export interface Board {
  loops: Loop[];
  gate: Gate | null;
  components: Component[];
  deferred: string[];
  /** Milliseconds by which the time of the cluster is ahead of this machine. */
  ahead: number;
}

/** Loops that have a row before they have something to do. */
export const ALWAYS: readonly string[] = ["deployment-controller", "replicaset-controller", "kube-scheduler"];

/**
 * Loops that most people look for, first; the others follow by name. The order never changes, and those that start
 * later are below, so that rows stay in place.
 */
const FIRST: readonly string[] = [
  ...ALWAYS,
  "endpointslice-controller",
  "node-lifecycle-controller",
  "taint-eviction-controller",
  "garbage-collector-controller",
  "statefulset-controller",
  "daemonset-controller",
  "job-controller",
  "cronjob-controller",
  "horizontal-pod-autoscaler-controller",
];

function place(loop: Loop): number {
  const found = FIRST.indexOf(loop.name);
  return found < 0 ? FIRST.length : found;
}

export function boardOf(items: ReadonlyMap<string, BoardItem>): Board {
  const loops: Loop[] = [];
  for (const [key, item] of items) if (key.startsWith("loop:")) loops.push(item as Loop);
  const list = <T>(name: string) => (items.get(name) as { list: T[] } | undefined)?.list ?? [];
  return {
    loops: loops.sort((a, b) => place(a) - place(b) || a.name.localeCompare(b.name)),
    gate: (items.get("gate") as Gate | undefined) ?? null,
    components: list<Component>("components"),
    deferred: list<string>("deferred"),
    ahead: (items.get("clock") as { ahead: number } | undefined)?.ahead ?? 0,
  };
}

/** Whether a loop has something to show. */
export function isActive(loop: Loop): boolean {
  return loop.done + loop.depth + loop.delayedCount + loop.waitingCount + loop.working.length > 0 || loop.mode !== "run";
}

/** The object of a key; null if the kind of the loop is not known. */
export function refOfKey(loop: Loop, key: string): ObjectRef | null {
  if (!loop.resource || !key) return null;
  const slash = key.indexOf("/");
  const { group, version, resource, kind } = loop;
  return { group, version, resource, kind, namespace: slash < 0 ? "" : key.slice(0, slash), name: key.slice(slash + 1) };
}

/** The short name of a loop, as commands accept it. */
export function shortLoop(name: string): string {
  return name.replace(/^kube-/, "").replace(/-controller$/, "");
}
