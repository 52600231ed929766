/** How views use the link: feeds as state, conversations, requests. */
import { signal } from "@preact/signals";
import type { Signal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { cluster } from "../state/place";
import { call, open } from "./link";
import { ApiError } from "./protocol";
import type { Reply, Status } from "./protocol";

export interface Feed<T, L = unknown> {
  /** Items by key, in the order in which they came. The same Map for the life of the feed: compare `revision`. */
  readonly items: ReadonlyMap<string, T>;
  /** The latest entries, oldest first; at most LOG_LENGTH. */
  readonly log: readonly L[];
  /** How many log entries were left out because this tab was too slow. */
  readonly skipped: number;
  /** Whether the state is complete; until then "nothing there" means "not loaded yet". */
  readonly synced: boolean;
  readonly error: Status | null;
  /** Grows with each change. */
  readonly revision: number;
}

const LOG_LENGTH = 2_000;
const LINGER = 2_000;
/** Items above which components render ten times a second at most. */
const MANY = 500;
const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 30_000;
/** Complete feeds of past moments that are kept: the past does not change. */
const KEYFRAMES = 64;

class SharedFeed {
  readonly revision = signal(0);
  items = new Map<string, unknown>();
  log: unknown[] = [];
  skipped = 0;
  synced = false;
  error: Status | null = null;
  users = 0;
  private fresh: { items: Map<string, unknown>; log: unknown[] } | null = null;
  private frame = 0;
  private timer = 0;
  private channel: { close(): void };
  private failures = 0;
  private retry = 0;
  readonly isPast: boolean;

  constructor(
    readonly key: string,
    private readonly name: string,
    private readonly prefix: string,
    private readonly args: object,
  ) {
    this.isPast = prefix.includes("/at/");
    this.channel = this.begin();
  }

  private begin(): { close(): void } {
    return open(
      this.name,
      this.prefix,
      this.args,
      {
        opened: (again) => {
          // The old state stays visible until the new one is complete.
          this.fresh = again || this.synced ? { items: new Map(), log: [] } : null;
        },
        update: (update) => {
          const items = this.fresh?.items ?? this.items;
          for (const key of update.removed ?? []) items.delete(key);
          for (const [key, item] of Object.entries(update.set ?? {})) items.set(key, item);
          const log = this.fresh?.log ?? this.log;
          if (update.log) {
            log.push(...update.log);
            if (log.length > LOG_LENGTH) log.splice(0, log.length - LOG_LENGTH);
          }
          this.skipped += update.skipped ?? 0;
          if (update.synced) this.finish();
          this.changed();
        },
        end: (error) => {
          if (error && isTransient(error)) {
            this.fresh = null;
            const pause = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** Math.min(this.failures, 5));
            this.failures += 1;
            this.retry = window.setTimeout(() => (this.channel = this.begin()), pause);
          } else {
            this.finish();
          }
          this.synced = true;
          this.error = error;
          this.changed();
        },
      },
      true,
    );
  }

  private finish(): void {
    this.synced = true;
    this.failures = 0;
    this.error = null;
    if (!this.fresh) return;
    this.items = this.fresh.items;
    this.log = this.fresh.log;
    this.fresh = null;
  }

  /** Tell components once per frame, or ten times a second if there are many items. A hidden tab has no frames, so a timer stands in. */
  private changed(): void {
    if (this.frame || this.timer) return;
    const many = this.synced && this.items.size > MANY;
    const tell = () => {
      cancelAnimationFrame(this.frame);
      window.clearTimeout(this.timer);
      this.frame = this.timer = 0;
      this.revision.value += 1;
    };
    if (!many) this.frame = requestAnimationFrame(tell);
    this.timer = window.setTimeout(tell, many ? 100 : 250);
  }

  close(): void {
    cancelAnimationFrame(this.frame);
    window.clearTimeout(this.timer);
    window.clearTimeout(this.retry);
    this.channel.close();
  }
}

/** Whether a feed that ended with this error is worth another attempt: the server is overloaded, away, or restarts. */
function isTransient(error: Status): boolean {
  const code = error.code ?? 0;
  return code === 0 || code === 429 || (code >= 500 && code !== 501);
}

const feeds = new Map<string, SharedFeed>();

function acquire(name: string, prefix: string, args: object): SharedFeed {
  const key = JSON.stringify([name, prefix, args]);
  let feed = feeds.get(key);
  if (!feed || feed.error) {
    feed?.close();
    feed = new SharedFeed(key, name, prefix, args);
    feeds.set(key, feed);
  }
  return feed;
}

function release(feed: SharedFeed): void {
  feed.users -= 1;
  const end = () => {
    if (feed.users > 0) return;
    feed.close();
    if (feeds.get(feed.key) !== feed) return;
    feeds.delete(feed.key);
    if (feed.isPast && feed.synced && !feed.error) keep(feed);
  };
  // While the moment is dragged, each is needed for less than a tenth of a second.
  window.setTimeout(end, feed.isPast ? 0 : LINGER);
}

/** Keep a complete feed of a past moment, without its channel; the least recently used are dropped. */
function keep(feed: SharedFeed): void {
  feeds.set(feed.key, feed);
  let kept = 0;
  for (const [key, one] of [...feeds].toReversed()) {
    if (one.users === 0 && one.isPast && ++kept > KEYFRAMES) feeds.delete(key);
  }
}

const NOTHING = { items: new Map<string, never>(), log: [], skipped: 0, synced: false, error: null, revision: 0 };
const never: Signal<number> = signal(0);

/**
 * Follow a feed while the component is mounted. Components that ask for the same feed share one channel. `args` null:
 * no feed. The feed belongs to the current logical cluster and moment, unless `prefix` names another.
 */
export function useFeed<T, L = unknown>(name: string, args: object | null, prefix?: string): Feed<T, L> {
  const where = prefix ?? cluster.value;
  const key = args === null ? "" : JSON.stringify([name, where, args]);
  const feed = useMemo(() => (args === null ? null : acquire(name, where, args)), [key]);
  useEffect(() => {
    if (!feed) return;
    feed.users += 1;
    return () => release(feed);
  }, [feed]);
  const revision = (feed?.revision ?? never).value;
  // From one moment to another, what was shown stays until the new state is complete.
  const what = args === null ? "" : JSON.stringify([name, where.replace(/\/at\/.*/, ""), args]);
  const before = useRef<{ what: string; feed: SharedFeed } | null>(null);
  if (!feed) {
    before.current = null;
    return NOTHING;
  }
  if (feed.synced) before.current = { what, feed };
  const shown = before.current?.what === what ? before.current.feed : feed;
  const { items, log, skipped, synced, error } = shown;
  const changes = shown === feed ? revision : shown.revision.peek();
  return { items: items as Map<string, T>, log: log as L[], skipped, synced, error, revision: changes };
}

export interface ConversationHandlers {
  opened?(): void;
  message?(data: unknown): void;
  bytes?(data: Uint8Array): void;
  /** `error` null: it ended well. A lost connection is an error with the reason ConnectionLost. */
  end?(error: Status | null): void;
}

/** Begin a conversation, such as a terminal. It ends with the connection. */
export function converse(
  name: string,
  args: object,
  handlers: ConversationHandlers,
  prefix: string = cluster.peek(),
): { say(data: unknown): boolean; close(): void } {
  return open(name, prefix, args, { ...handlers, opened: () => handlers.opened?.() }, false);
}

export interface RequestOptions {
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
  accept?: string;
  contentType?: string;
  /** The revision of the write that this one undoes, for its recorded cause. */
  undoes?: number;
  /** The logical cluster; the current one unless named. */
  prefix?: string;
}

/** Send a request to the API server and return its answer, whatever its status. */
export async function request<T = unknown>(method: string, path: string, options: RequestOptions = {}): Promise<Reply<T>> {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options.query ?? {})) {
    if (value !== undefined) query.set(name, String(value));
  }
  const reply = await call({
    cluster: options.prefix ?? cluster.peek(),
    method,
    path,
    query: query.toString(),
    ...(options.body === undefined ? {} : { body: options.body }),
    ...(options.accept ? { accept: options.accept } : {}),
    ...(options.contentType ? { contentType: options.contentType } : {}),
    ...(options.undoes === undefined ? {} : { undoes: options.undoes }),
  });
  return reply as Reply<T>;
}

/** As `request`, but return the body alone, and throw an ApiError for a status of 400 and above. */
export async function ask<T = unknown>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
  const reply = await request<T>(method, path, options);
  if (reply.status < 400) return reply.body;
  const body = reply.body as Status | null;
  const status = body && typeof body === "object" && body.kind === "Status" ? body : { message: text(reply.body) };
  throw new ApiError({ ...status, code: status.code ?? reply.status });
}

function text(body: unknown): string {
  return typeof body === "string" && body ? body : "The server refused the request without a reason.";
}
