/** What the timeline knows: the latest writes as they happen, and older ones as far as the window reaches. */
import { signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { request, useFeed } from "../link/hooks";
import { connections, hello } from "../link/link";
import type { Status } from "../link/protocol";
import { logical } from "../state/place";
import { now } from "../ui/time";
import type { LogEntry } from "../writes/writes";
import { joinSources, spanOfBucket, spanOfEntry, spanOfLog } from "./spans";
import type { Bucket, Source, Span, TimelineEntry } from "./spans";

export interface Moment {
  revision: number;
  at: number;
}

export interface TimelineData {
  spans: readonly Span[];
  /** The oldest moment that the server keeps; null until it has answered. */
  oldest: Moment | null;
  /** The newest revision that is known. */
  newest: number;
  error: Status | null;
  synced: boolean;
  /** Whether older writes are being read. */
  reading: boolean;
}

/** Revisions before the first write of the tail that are read at once. */
const RECENT = 3_000;
const OLDER_BUCKETS = 600;
const MOST_TAIL = 10_000;
const EXTENT_EVERY = 30_000;
const NO_ARGS = {};

/** Whether the window reaches back before the recent writes. */
export const wantOlder = signal(false);
/** Revisions that the window shows as counts, and that would fit as single writes; null: none. */
export const wantDetail = signal<{ from: number; to: number } | null>(null);

/** The writes that came since the page was opened, and some before. Longer than the log of the feed. */
class Tail {
  spans: Span[] = [];
  /** The revision from which on all writes are known; 0 until that is known. */
  edge = 0;
  newest = 0;
  version = 0;

  add(log: readonly LogEntry[], synced: boolean): void {
    if (!synced) return;
    if (!this.edge) this.edge = log[0]?.revision ?? 0;
    for (const entry of log) {
      if (entry.revision <= this.newest) continue;
      this.newest = entry.revision;
      const span = spanOfLog(entry);
      if (!span) continue;
      // A count has no time of its own; the write before it has one.
      if (!span.begin) span.begin = span.end = this.spans.at(-1)?.end ?? 0;
      this.spans.push(span);
    }
    if (this.spans.length > MOST_TAIL) {
      this.spans = this.spans.slice(-MOST_TAIL);
      this.edge = this.spans[0]!.first;
    }
    this.version += 1;
  }
}

const tails = new Map<string, Tail>();

function tailOf(key: string): Tail {
  let found = tails.get(key);
  if (!found) {
    tails.clear();
    found = new Tail();
    tails.set(key, found);
  }
  return found;
}

interface TimelineRange {
  oldest: Moment;
  newest: Moment;
}

const extent = signal<{ key: string; range: TimelineRange } | null>(null);

function useExtent(key: string, prefix: string, enabled: boolean): TimelineRange | null {
  const tick = Math.floor(now.value / EXTENT_EVERY);
  useEffect(() => {
    if (!enabled) return;
    // The last second is enough: the answer has the oldest and the newest moment in any case.
    const query = { from: "-1s", buckets: 1 };
    const set = (range: TimelineRange) => (extent.value = { key, range });
    const get = (options: object) => request<TimelineRange>("GET", "/setpoint/v1/timeline", { query: options as typeof query, prefix });
    void get(query)
      .then((reply) => (reply.status < 400 ? reply : get({ buckets: 1 })))
      .then((reply) => reply.status < 400 && set(reply.body), () => undefined);
  }, [key, tick, enabled]);
  return extent.value?.key === key ? extent.value.range : null;
}

interface RangeItem {
  from: Moment;
  to: Moment;
  counted: boolean;
}

/** The writes of a range, one by one or counted; null: of none. */
function useRange(range: { from: number; to: number; buckets: number } | null, prefix: string): { source: Source | null; reading: boolean } {
  const feed = useFeed<RangeItem | Bucket | { gaps: unknown }, TimelineEntry>("timeline", range, prefix);
  const source = useMemo(() => {
    if (!range || !feed.synced || feed.error) return null;
    const covered = feed.items.get("range") as RangeItem | undefined;
    if (!covered) return null;
    const buckets = [...feed.items].filter(([key]) => key !== "range" && key !== "gaps").map(([, item]) => item as Bucket);
    const spans = covered.counted ? buckets.map(spanOfBucket) : feed.log.map(spanOfEntry);
    return { from: range.from, to: range.to, spans };
  }, [feed.revision, feed.synced, range?.from, range?.to]);
  return { source, reading: range !== null && !feed.synced };
}

export function useTimeline(): TimelineData {
  const prefix = logical.value;
  const key = `${prefix} ${connections.value}`;
  const tail = tailOf(key);
  const offered = hello.value?.feeds.includes("writes") ?? true;
  const writes = useFeed<unknown, LogEntry>("writes", offered ? NO_ARGS : null, prefix);
  useMemo(() => tail.add(writes.log, writes.synced && !writes.error), [writes.revision, writes.synced, tail]);
  const range = useExtent(key, prefix, writes.synced && !writes.error);
  const newest = Math.max(tail.newest, range?.newest.revision ?? 0);
  const oldest = range?.oldest ?? null;
  // The begin of the tail does not change once it is known, so neither do the ranges before it.
  const edge = tail.edge || range?.newest.revision || 0;
  const begin = useMemo(() => (oldest && edge ? Math.max(oldest.revision, edge - RECENT) : 0), [key, edge, oldest !== null]);
  const recent = useRange(begin && begin < edge ? { from: begin, to: edge - 1, buckets: OLDER_BUCKETS } : null, prefix);
  const older = useRange(
    wantOlder.value && oldest && begin > oldest.revision ? { from: oldest.revision, to: begin - 1, buckets: OLDER_BUCKETS } : null,
    prefix,
  );
  const detail = useRange(wantDetail.value ? { ...wantDetail.value, buckets: OLDER_BUCKETS } : null, prefix);
  const sources = [older.source, recent.source, detail.source];
  const spans = useMemo(
    () => joinSources([...sources.filter((one) => one !== null), { from: edge, to: Infinity, spans: tail.spans }]),
    [...sources, tail, tail.version, edge],
  );
  return {
    spans,
    oldest,
    newest,
    error: offered ? writes.error : { code: 404 },
    synced: writes.synced,
    reading: recent.reading || older.reading || detail.reading,
  };
}

/** The spans that the mounted timeline shows, for the keys and buttons that step through them. */
export const shownSpans = signal<readonly Span[]>([]);
export const newestRevision = signal(0);
