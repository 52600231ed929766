/** How views use the link: feeds as state, conversations, requests. */
import { signal } from "@preact/signals";
import type { Signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { cluster } from "../state/place";
import { call, open } from "./link";
import { ApiError } from "./protocol";
import type { Reply, Status } from "./protocol";
import { acquire, feedKey, hold, release } from "./shared-feed";
import type { SharedFeed } from "./shared-feed";

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

const NOTHING = { items: new Map<string, never>(), log: [], skipped: 0, synced: false, error: null, revision: 0 };
const never: Signal<number> = signal(0);

/**
 * Follow a feed while the component is mounted. Components that ask for the same feed share one channel. `args` null:
 * no feed. The feed belongs to the current logical cluster and moment, unless `prefix` names another.
 */
export function useFeed<T, L = unknown>(name: string, args: object | null, prefix?: string): Feed<T, L> {
  const where = prefix ?? cluster.value;
  const key = args === null ? "" : feedKey(name, where, args);
  const [attempt, again] = useState(0);
  const feed = useMemo(() => (args === null ? null : acquire(name, where, args)), [key, attempt]);
  useEffect(() => {
    if (!feed) return;
    if (hold(feed)) return () => release(feed);
    again(attempt + 1);
  }, [feed]);
  const revision = (feed?.revision ?? never).value;
  // From one moment to another, what was shown stays until the new state is complete.
  const what = args === null ? "" : feedKey(name, where.replace(/\/at\/.*/, ""), args);
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
