/**
 * Feeds as state. Components that follow the same feed share one channel, which lingers for a while after the last of
 * them: views change often.
 */
import { signal } from "@preact/signals";
import { open } from "./link";
import type { Status } from "./protocol";

const LOG_LENGTH = 2_000;
const LINGER = 2_000;
/** Items above which components render ten times a second at most. */
const MANY = 500;
/** Milliseconds until a feed is opened again after an error: the first and the longest time. */
const AFTER_FAILURE = [1_000, 30_000] as const;
const AFTER_REFUSAL = [4_000, 60_000] as const;
/** Complete feeds of past moments that are kept: the past does not change. */
const KEYFRAMES = 64;

/** The state of a feed, which components share. */
export class SharedFeed {
  readonly revision = signal(0);
  items = new Map<string, unknown>();
  log: unknown[] = [];
  skipped = 0;
  synced = false;
  error: Status | null = null;
  /** The number of components that hold the feed. */
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
          const pause = error && pauseAfter(error, this.failures);
          const failures = this.failures + 1;
          // What is shown stays while the server is away, and ends with the right to see it.
          if (error && isTransient(error)) this.fresh = null;
          else this.finish();
          if (pause !== null) {
            this.failures = failures;
            this.retry = window.setTimeout(() => (this.channel = this.begin()), pause);
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

  /** Begin anew after an error, for all components that hold the feed. What is there and the error stay until the server
      has answered: a refusal that comes again must not move the view. */
  restart(): void {
    window.clearTimeout(this.retry);
    this.channel.close();
    this.failures = 0;
    this.channel = this.begin();
  }

  close(): void {
    cancelAnimationFrame(this.frame);
    window.clearTimeout(this.timer);
    window.clearTimeout(this.retry);
    this.channel.close();
  }
}

/** Whether a feed ended because the server is overloaded, away, or restarts. */
function isTransient(error: Status): boolean {
  const code = error.code ?? 0;
  return code === 0 || code === 429 || (code >= 500 && code !== 501);
}

/**
 * The milliseconds until a feed is opened again while components hold it; the error is shown meanwhile. A refusal may end
 * too: a role is granted, a kind is defined. Null: never, because the same request cannot succeed later.
 */
function pauseAfter(error: Status, failures: number): number | null {
  if (error.code === 400 || error.code === 410) return null;
  const [first, longest] = isTransient(error) ? AFTER_FAILURE : AFTER_REFUSAL;
  return Math.min(longest, first * 2 ** Math.min(failures, 5));
}

/** The feeds that are held or linger. One that is not here any more receives nothing. */
const feeds = new Map<string, SharedFeed>();

export function feedKey(name: string, prefix: string, args: object): string {
  return JSON.stringify([name, prefix, args]);
}

/** Return the feed of this name, which begins if it is not there. A component that uses it must hold it soon. */
export function acquire(name: string, prefix: string, args: object): SharedFeed {
  const key = feedKey(name, prefix, args);
  let feed = feeds.get(key);
  if (!feed) feeds.set(key, (feed = new SharedFeed(key, name, prefix, args)));
  else if (feed.error) feed.restart();
  return feed;
}

/** Hold a feed until it is released. False: it ended after it was acquired, and must be acquired again. */
export function hold(feed: SharedFeed): boolean {
  if (feeds.get(feed.key) !== feed) return false;
  feed.users += 1;
  return true;
}

export function release(feed: SharedFeed): void {
  feed.users -= 1;
  const end = () => {
    if (feed.users > 0 || feeds.get(feed.key) !== feed) return;
    feed.close();
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
