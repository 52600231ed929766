/** The writes to the cluster, as the feed `writes` sends them (`src/setpoint/web/feeds/writes.py`). */
import { signal } from "@preact/signals";
import { useFeed } from "../link/hooks";
import type { Feed } from "../link/hooks";
import { hello } from "../link/link";
import { at } from "../state/place";
import type { ObjectRef } from "../state/refs";

export type Part = "created" | "spec" | "status" | "metadata" | "deleted" | "heartbeat";
export type Role = "you" | "person" | "controller" | "scheduler" | "kubelet" | "server";

export interface FieldChange {
  path: string[];
  old?: unknown;
  new?: unknown;
}

export interface Written extends ObjectRef {
  uid?: string;
  owner?: { apiVersion: string; kind: string; name: string; uid: string };
  part: Part;
  action: string;
  changes?: string[];
  fields?: FieldChange[];
}

export interface WriteEntry {
  revision: number;
  /** Milliseconds since the epoch; 0 if it is not known. */
  at: number;
  actor: string;
  role: Role;
  verb: string;
  objects: Written[];
  sentence: string;
  reconcile?: string;
  key?: string;
  triggers?: number[];
  reason?: string;
  besides?: string;
  /** The revision of the trigger that explains the write best. */
  because?: number;
  /** The revision of the write at the begin of the chain of triggers. */
  origin?: number;
  /** Whether the origin is a write of this user. */
  ofYou?: boolean;
}

/** Writes beyond the rate that a person can read, by their authors. */
export interface CountEntry {
  revision: number;
  counts: Record<string, number>;
  writes: number;
}

export type LogEntry = WriteEntry | CountEntry;

export function isCount(entry: LogEntry): entry is CountEntry {
  return "counts" in entry;
}

const visible = signal(!document.hidden);
document.addEventListener("visibilitychange", () => (visible.value = !document.hidden));

const NO_ARGS = {};

/** The feed of writes; no feed in the past, in a hidden tab, and on servers that have none. */
export function useWrites(): Feed<{ heartbeats?: number; events?: number }, LogEntry> {
  const offered = hello.value?.feeds.includes("writes") ?? true;
  return useFeed("writes", at.value === null && visible.value && offered ? NO_ARGS : null);
}

/** The name under which an author is shown and drawn: "you", one name for all kubelets. */
export function actorKey(entry: { actor: string; role: Role }): string {
  if (entry.role === "you") return "you";
  return entry.role === "kubelet" ? "kubelets" : entry.actor;
}

/** The key of an object in the chain and in lists of writes. */
export function writtenKey(ref: { group: string; resource: string; namespace: string; name: string }): string {
  return `${ref.group}/${ref.resource}/${ref.namespace}/${ref.name}`;
}

/** Whether a write concerns an object, what it controls, or one of the objects with these uids. */
export function concerns(entry: WriteEntry, target: ObjectRef, uid: string, uids: ReadonlySet<string>): boolean {
  const key = writtenKey(target);
  return entry.objects.some(
    (one) =>
      writtenKey(one) === key ||
      (uid !== "" && one.owner?.uid === uid) ||
      (one.uid !== undefined && uids.has(one.uid)),
  );
}

/** Replace the name of this user by "you" in a text of the server: `kubernetes-admin (kubectl)` becomes `you (kubectl)`,
    and with this page as the program just `you`. */
export function withYou(text: string): string {
  const user = hello.value?.user;
  if (!user) return text;
  const quoted = user.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return text.replace(new RegExp(`(?<![\\w:@.-])${quoted}(?= \\(|[.,;: ]|$)`, "g"), "you").replaceAll("you (setpoint-page)", "you");
}
