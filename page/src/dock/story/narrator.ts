/** Chooses which sentences are said: the consequences of what people do, at most one each two seconds. */
import { isCount } from "../../writes/writes";
import type { LogEntry, WriteEntry } from "../../writes/writes";

const PAUSE = 2_000;
const SOON = 400;
/** From this worth on, a write is a direct consequence of what the user did. */
const DIRECT = 6;
/** Sentences that are older than this when their turn comes are not said any more. */
const STALE = 6_000;

const QUIET_KINDS = new Set(["EndpointSlice", "Endpoints", "ControllerRevision", "Node", "Lease", "Event"]);

/** How much a write is worth to be said; 0: not at all. */
export function worth(entry: WriteEntry): number {
  const main = entry.objects[0];
  if (!main || entry.role === "you") return 0; // one knows what one does
  if (main.part === "status" || main.part === "heartbeat" || main.part === "metadata") return 0;
  if (main.action === "completed the deletion of" || QUIET_KINDS.has(main.kind)) return 0;
  if (entry.role === "person") return 4;
  const direct = entry.because !== undefined && entry.because === entry.origin;
  const value = main.part === "created" ? 3 : main.part === "deleted" ? 2.5 : main.action === "bound" ? 1 : 2;
  return value + (entry.ofYou ? (direct ? 4 : 2) : 0);
}

export class Narrator {
  private pending: { entry: WriteEntry; value: number; at: number }[] = [];
  private seen = 0;
  private spoke = -Infinity;
  /** The write at the begin of the chain of what was said last. */
  private origin = 0;

  /** Take the log of the feed; `first`: it is the past, of which nothing is said. */
  take(log: readonly LogEntry[], now: number, first: boolean): void {
    // A server that was started anew counts from the begin.
    if ((log.at(-1)?.revision ?? this.seen) < this.seen) this.seen = log.at(-1)!.revision;
    for (const entry of log) {
      if (entry.revision <= this.seen) continue;
      this.seen = entry.revision;
      if (first || isCount(entry)) continue;
      const value = worth(entry);
      if (value > 0) this.pending.push({ entry, value, at: now });
    }
    if (this.pending.length > 200) this.pending.splice(0, this.pending.length - 200);
  }

  /** The sentence that is due, if any. What was there before it is dropped: it is in the list. */
  next(now: number): WriteEntry | null {
    this.pending = this.pending.filter((one) => now - one.at < STALE);
    if (this.pending.length === 0) return null;
    const best = this.pending.reduce((a, b) => (b.value > a.value ? b : a));
    // The answer to what the user does now does not wait until an earlier story has ended.
    const answers = best.value >= DIRECT && best.entry.origin !== this.origin;
    if (now - this.spoke < (answers ? SOON : PAUSE)) return null;
    this.origin = best.entry.origin ?? 0;
    this.pending = this.pending.filter((one) => one.entry.revision > best.entry.revision);
    this.spoke = now;
    return best.entry;
  }

  /** Milliseconds until something may be due; null if nothing waits. */
  wait(now: number): number | null {
    if (this.pending.length === 0) return null;
    const answers = this.pending.some((one) => one.value >= DIRECT && one.entry.origin !== this.origin);
    return Math.max(20, (answers ? SOON : PAUSE) - (now - this.spoke));
  }
}
