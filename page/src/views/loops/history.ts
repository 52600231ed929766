/** The last minute of each queue, sampled while the board is shown. */
import type { Loop } from "./board";

export const SAMPLES = 60;
export const PERIOD = 1_000;

export interface Samples {
  /** Keys that were queued at the sample, or passed through the queue since the one before. */
  readonly values: Float32Array;
  /** The next place to write; the oldest sample. */
  next: number;
  /** Keys that were queued in the last minute. */
  readonly added: Float32Array;
  total: number;
}

const known = new Map<string, Samples>();

function empty(total: number): Samples {
  return { values: new Float32Array(SAMPLES), added: new Float32Array(SAMPLES), next: 0, total };
}

/** Take a sample of every loop. */
export function sample(loops: readonly Loop[]): void {
  for (const loop of loops) {
    let one = known.get(loop.name);
    if (!one || loop.added < one.total) known.set(loop.name, (one = empty(loop.added)));
    const added = loop.added - one.total;
    one.values[one.next] = Math.max(loop.depth, added);
    one.added[one.next] = added;
    one.total = loop.added;
    one.next = (one.next + 1) % SAMPLES;
  }
  if (known.size > 2 * loops.length + 16) known.clear();
}

export function samplesOf(name: string): Samples | undefined {
  return known.get(name);
}

/** The largest sample and the number of queued keys of the last minute. */
export function summary(samples: Samples | undefined): { most: number; added: number } {
  if (!samples) return { most: 0, added: 0 };
  let most = 0;
  let added = 0;
  for (let i = 0; i < SAMPLES; i++) {
    most = Math.max(most, samples.values[i]!);
    added += samples.added[i]!;
  }
  return { most, added };
}
