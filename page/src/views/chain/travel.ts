/**
 * Writes that travel: a dot leaves the author, passes the API server and lands on the object; before it, a thin ring
 * leads from the write that triggered it to the author. All of it is computed from times, so a frame may be late.
 */
import type { LogEntry, Part, WriteEntry } from "../../writes/writes";
import { actorKey, isCount } from "../../writes/writes";
import { boxOf, parentOf } from "./model";
import type { Graph } from "./model";
import { BOX_HEIGHT } from "./layout";
import type { Layout, Place } from "./layout";

/** More writes in a second than this are drawn as counts. */
const MOST_PER_SECOND = 20;
const LEG = 380;
const RING = 260;
const LABEL = 1_500;
const OUTLINE = 2_000;
const MOST_DOTS = 120;
const LONG_CHANGE = 34;
const MOST_QUEUED = 2_000;

export interface Dot {
  actor: string;
  /** The box at which it lands; null: it ends at the API server. */
  box: string | null;
  /** The owner, where it lands if the box does not exist yet. */
  fallback: string | null;
  part: Part;
  start: number;
  /** How many writes it stands for. */
  count: number;
  revision: number;
  label: string;
  ring: boolean;
  landed: boolean;
}

export interface Flash {
  part: Part;
  label: string;
  until: number;
  outline: number;
}

export interface Stage {
  graph: Graph;
  layout: Layout;
}

/** A change without the begin of a long path: `reason ErrImagePull -> ImagePullBackOff`. */
function shortChange(change: string): string {
  return change.length <= LONG_CHANGE ? change : change.replace(/^\S+\.(?=[^\s.\]]+ )/, "");
}

export class Travel {
  dots: Dot[] = [];
  /** What boxes show for a moment, by key. */
  flashes = new Map<string, Flash>();
  /** The latest revision that passed the API server, for a moment. */
  passing: { revision: number; until: number } | null = null;
  /** All dots that were drawn, for tests and measurements. */
  drawn = 0;
  private queue: { entry: LogEntry; due: number }[] = [];
  private boxes = new Map<number, string>();
  private recent: number[] = [];
  private seen = 0;
  private lastAt = 0;
  private lastDue = 0;
  private places = new Map<string, Place>();

  /** Note that what is in the log now is the past. */
  begin(log: readonly LogEntry[]): void {
    this.seen = log.at(-1)?.revision ?? 0;
  }

  /** Take new entries; `slower` stretches the time between them. */
  take(log: readonly LogEntry[], now: number, slower: number): boolean {
    let index = log.length;
    // A server that was started anew counts from the begin.
    if ((log.at(-1)?.revision ?? this.seen) < this.seen) this.begin(log);
    while (index > 0 && log[index - 1]!.revision > this.seen) index -= 1;
    for (const entry of log.slice(index)) {
      this.seen = entry.revision;
      const at = isCount(entry) ? this.lastAt : entry.at;
      const pause = this.lastAt && slower > 1 ? Math.min(4_000, (at - this.lastAt) * slower) : 0;
      const due = slower > 1 ? Math.max(now, this.lastDue + pause) : now;
      this.lastAt = at;
      this.lastDue = due;
      this.queue.push({ entry, due });
    }
    if (this.queue.length > MOST_QUEUED) this.queue.splice(0, this.queue.length - MOST_QUEUED);
    return index < log.length;
  }

  /** Start what is due and end what is over; returns whether something still moves or waits. */
  advance(stage: Stage, now: number, moves: boolean, slower: number): boolean {
    while (this.queue.length > 0 && this.queue[0]!.due <= now) {
      const { entry } = this.queue.shift()!;
      if (isCount(entry)) this.startCounts(entry.counts, entry.revision, now, stage, moves);
      else this.start(entry, stage, now, moves, slower);
    }
    for (const dot of this.dots) {
      if (!dot.landed && now >= dot.start + (dot.ring ? RING : 2 * LEG) * slower) this.land(dot, stage, now, slower);
    }
    this.dots = this.dots.filter((dot) => !dot.landed);
    for (const [key, flash] of this.flashes) if (now > Math.max(flash.until, flash.outline)) this.flashes.delete(key);
    if (this.passing && now > this.passing.until) this.passing = null;
    return this.dots.length > 0 || this.queue.length > 0 || this.flashes.size > 0 || this.passing !== null;
  }

  private start(entry: WriteEntry, stage: Stage, now: number, moves: boolean, slower: number): void {
    const actor = actorKey(entry);
    for (const written of entry.objects.slice(0, 3)) {
      const box = boxOf(stage.graph, written);
      const parent = parentOf(written);
      const fallback = parent && stage.graph.boxes.has(parent) ? parent : null;
      // An object that was just created has no box yet: the graph follows within a moment.
      const target = box ?? (written.part === "created" && fallback ? `${written.group}/${written.resource}/${written.namespace}/${written.name}` : null);
      if (target === null) continue;
      this.boxes.set(entry.revision, box ?? target);
      if (this.boxes.size > 400) this.boxes.delete(this.boxes.keys().next().value!);
      const label = written.changes?.[0] && written.part !== "created" ? shortChange(written.changes[0]) : written.action;
      if (!moves) {
        this.flash(target, written.part, label, now, slower);
        continue;
      }
      if (this.isBusy(now)) {
        this.merge(actor, target, fallback, written.part, entry.revision, now);
        continue;
      }
      let start = now;
      const cause = entry.because === undefined ? undefined : this.boxes.get(entry.because);
      if (cause !== undefined) {
        this.push({ actor, box: cause, fallback: null, part: written.part, start, count: 1, revision: entry.because!, label: "", ring: true, landed: false });
        start += RING * slower;
      }
      this.push({ actor, box: target, fallback, part: written.part, start, count: 1, revision: entry.revision, label, ring: false, landed: false });
    }
  }

  private startCounts(counts: Record<string, number>, revision: number, now: number, stage: Stage, moves: boolean): void {
    if (!moves) return;
    for (const [name, count] of Object.entries(counts)) {
      if (!stage.layout.actors.has(name)) continue;
      this.push({ actor: name, box: null, fallback: null, part: "status", start: now, count, revision, label: "", ring: false, landed: false });
    }
  }

  private isBusy(now: number): boolean {
    this.recent = this.recent.filter((at) => now - at < 1_000);
    this.recent.push(now);
    return this.recent.length > MOST_PER_SECOND;
  }

  /** Let a dot that has just left for the same place carry one more. */
  private merge(actor: string, box: string, fallback: string | null, part: Part, revision: number, now: number): void {
    const near = fallback ?? box;
    const same = this.dots.find((dot) => !dot.ring && dot.actor === actor && (dot.fallback ?? dot.box) === near && now - dot.start < 250);
    if (same) {
      same.count += 1;
      same.revision = revision;
      same.label = `× ${same.count}`;
      return;
    }
    this.push({ actor, box, fallback, part, start: now, count: 1, revision, label: "", ring: false, landed: false });
  }

  private push(dot: Dot): void {
    if (this.dots.length >= MOST_DOTS) return;
    this.dots.push(dot);
    this.drawn += 1;
  }

  private land(dot: Dot, stage: Stage, now: number, slower: number): void {
    dot.landed = true;
    if (dot.ring || dot.box === null) return;
    const many = dot.count > 1 && dot.fallback !== null;
    const box = stage.graph.boxes.has(dot.box) && !many ? dot.box : dot.fallback;
    if (box) this.flash(box, dot.part, dot.count > 1 ? `× ${dot.count}` : dot.label, now, slower);
  }

  private flash(box: string, part: Part, label: string, now: number, slower: number): void {
    this.flashes.set(box, { part, label, until: now + LABEL * Math.min(2, slower), outline: now + OUTLINE });
    if (this.flashes.size > 60) this.flashes.delete(this.flashes.keys().next().value!);
  }

  /** Remember where boxes are, so that a dot can land where one was. */
  remember(layout: Layout): void {
    for (const [key, place] of layout.boxes) {
      this.places.delete(key);
      this.places.set(key, place);
    }
    while (this.places.size > 800) this.places.delete(this.places.keys().next().value!);
  }

  /** Where a dot is now: content coordinates and progress; null before it starts or without a place. */
  position(dot: Dot, stage: Stage, now: number, slower: number): Place | null {
    const from = stage.layout.actors.get(dot.actor);
    if (!from || now < dot.start) return null;
    const bar = stage.layout.bar;
    const actor = { x: from.x + stage.layout.actor.width, y: from.y + stage.layout.actor.height / 2 };
    const box = this.target(dot, stage);
    const end = box ? { x: box.x, y: box.y + BOX_HEIGHT / 2 } : { x: bar, y: actor.y };
    const gate = { x: bar, y: actor.y + (end.y - actor.y) * 0.5 };
    if (dot.ring) {
      const share = ease(Math.min(1, (now - dot.start) / (RING * slower)));
      return share < 0.5 ? between(end, gate, share * 2) : between(gate, actor, share * 2 - 1);
    }
    const leg = (now - dot.start) / (LEG * slower);
    if (leg > 1 && (this.passing === null || this.passing.revision < dot.revision)) {
      this.passing = { revision: dot.revision, until: now + 900 };
    }
    return leg < 1 ? between(actor, gate, ease(leg)) : between(gate, end, ease(Math.min(1, leg - 1)));
  }

  private target(dot: Dot, stage: Stage): Place | null {
    if (dot.box === null) return null;
    // Many at once go to what they have in common: their owner.
    const owner = dot.count > 1 && dot.fallback !== null ? stage.layout.boxes.get(dot.fallback) : undefined;
    return (
      owner ??
      stage.layout.boxes.get(dot.box) ??
      this.places.get(dot.box) ??
      (dot.fallback === null ? null : (stage.layout.boxes.get(dot.fallback) ?? null))
    );
  }
}

function between(a: Place, b: Place, share: number): Place {
  return { x: a.x + (b.x - a.x) * share, y: a.y + (b.y - a.y) * share };
}

function ease(share: number): number {
  return share < 0.5 ? 2 * share * share : 1 - 2 * (1 - share) ** 2;
}
