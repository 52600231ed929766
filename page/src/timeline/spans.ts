/** What a timeline shows: spans of revisions in order, each one write or a count of some. */
import { hello } from "../link/link";
import type { ObjectRef } from "../state/refs";
import { actorKey, isCount } from "../writes/writes";
import type { LogEntry, Part } from "../writes/writes";

export interface NamedObject {
  group: string;
  resource: string;
  namespace: string;
  name: string;
  kind?: string;
}

export interface TimelineWrite {
  revision: number;
  lane: string;
  verb: string;
  part: Part;
  objects: readonly NamedObject[];
  reconcile: string;
  /** What happened, in one sentence; empty if only the names are known. */
  sentence: string;
}

export interface Span {
  first: number;
  last: number;
  /** Milliseconds since the epoch; 0 if they are not known. */
  begin: number;
  end: number;
  total: number;
  lanes: Readonly<Record<string, number>>;
  /** The write, if it is a single one. */
  write: TimelineWrite | null;
}

/** A part of the timeline that comes from one place; `from` and `to` are the revisions that it has all writes of. */
export interface Source {
  from: number;
  to: number;
  spans: readonly Span[];
}

/** An entry of the feed `timeline`. */
export interface TimelineEntry {
  revision: number;
  at?: number;
  lane: string;
  verb?: string;
  objects: NamedObject[];
  reconcile?: string;
}

/** A bucket of the feed `timeline`. */
export interface Bucket {
  first: number;
  last: number;
  begin?: number;
  end?: number;
  writes: Record<string, number>;
}

/** The lane of a name of the server: that of this user is "you". */
export function laneOf(name: string): string {
  const user = hello.peek()?.user ?? "";
  return user && (name === user || name.startsWith(`${user} (`)) ? "you" : name;
}

/** What a verb changes, as far as it says so. */
function partOf(verb: string): Part {
  if (verb === "create") return "created";
  if (verb.startsWith("delete")) return "deleted";
  return verb.includes("/status") ? "status" : "spec";
}

export function spanOfLog(entry: LogEntry): Span | null {
  if (isCount(entry)) {
    const lanes: Record<string, number> = {};
    for (const [name, count] of Object.entries(entry.counts)) lanes[laneOf(name)] = (lanes[laneOf(name)] ?? 0) + count;
    return { first: entry.revision, last: entry.revision, begin: 0, end: 0, total: entry.writes, lanes, write: null };
  }
  const parts = entry.objects.map((one) => one.part);
  const part = parts.find((one) => one !== "heartbeat") ?? "heartbeat";
  if (part === "heartbeat") return null;
  const { revision, verb, objects, sentence, reconcile = "" } = entry;
  return single({ revision, lane: actorKey(entry), verb, part, objects, reconcile, sentence }, entry.at);
}

export function spanOfEntry(entry: TimelineEntry): Span {
  const { revision, verb = "", objects, reconcile = "" } = entry;
  const write = { revision, lane: laneOf(entry.lane), verb, part: partOf(verb), objects, reconcile, sentence: "" };
  return single(write, entry.at ?? 0);
}

export function spanOfBucket(bucket: Bucket): Span {
  const lanes: Record<string, number> = {};
  let total = 0;
  for (const [name, count] of Object.entries(bucket.writes)) {
    lanes[laneOf(name)] = (lanes[laneOf(name)] ?? 0) + count;
    total += count;
  }
  return { first: bucket.first, last: bucket.last, begin: bucket.begin ?? 0, end: bucket.end ?? 0, total, lanes, write: null };
}

function single(write: TimelineWrite, at: number): Span {
  return { first: write.revision, last: write.revision, begin: at, end: at, total: 1, lanes: { [write.lane]: 1 }, write };
}

/** Join sources; where two overlap, the later one in the list counts. Spans without writes are left out. */
export function joinSources(sources: readonly Source[]): Span[] {
  let joined: Span[] = [];
  for (const source of sources) {
    const outside = joined.filter((span) => span.last < source.from || span.first > source.to);
    joined = [...outside, ...source.spans.filter((span) => span.total > 0)];
  }
  return joined.sort((a, b) => a.first - b.first);
}

/** The number of the last span that is not after a revision; -1 if there is none. */
export function spanAt(spans: readonly Span[], revision: number): number {
  let low = 0;
  let high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle]!.first <= revision) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

export function concernsObject(span: Span, ref: ObjectRef): boolean {
  return (
    span.write?.objects.some(
      (one) => one.name === ref.name && one.resource === ref.resource && one.group === ref.group && one.namespace === ref.namespace,
    ) ?? false
  );
}
