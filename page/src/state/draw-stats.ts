/** Times of drawings, for measurements: `window.__draws.fleet`. The latest 1,000 are kept. */

const KEPT = 1_000;

export class DrawStats {
  /** Which painter draws; empty if there is only one. */
  renderer = "";
  count = 0;
  /** Where something of this number is drawn, in pixels of the window; null if it is not in the picture. */
  locate: (number: number) => { x: number; y: number } | null = () => null;
  /** Number of moving things that were drawn, for drawings that have such. */
  moved = 0;
  /** Milliseconds of the main thread for each drawing. */
  readonly times = new Float32Array(KEPT);

  add(milliseconds: number): void {
    this.times[this.count % KEPT] = milliseconds;
    this.count += 1;
  }

  /** The time that a share of the kept drawings does not exceed, in milliseconds. */
  quantile(share: number): number {
    const kept = this.times.slice(0, Math.min(KEPT, this.count)).sort();
    return kept[Math.min(kept.length - 1, Math.floor(kept.length * share))] ?? 0;
  }
}

declare global {
  interface Window {
    __draws?: Record<string, DrawStats>;
  }
}

/** The statistics of a drawing, which begin anew. */
export function drawStats(name: string): DrawStats {
  const stats = new DrawStats();
  window.__draws = { ...window.__draws, [name]: stats };
  return stats;
}
