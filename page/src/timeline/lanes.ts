/** Lanes: one for each author; those with few writes share one. */
import type { Span } from "./spans";

export const OTHERS = "others";

/** Where lanes stand, from above: people first, then along the way of a write to the node. */
const RANKS: readonly [RegExp, number][] = [
  [/^you$/, 0],
  [/^(?!system:).*\((kubectl|setpoint|setpoint-page|helm|Helm|curl)\)$/, 1],
  [/^(cronjob|deployment)/, 10],
  [/^(replicaset|statefulset|daemonset|daemon-set|job)/, 11],
  [/^kube-scheduler/, 40],
  [/^kubelets$/, 50],
  [/^kube-apiserver/, 60],
  [/^others$/, 99],
];

function rank(name: string): number {
  return RANKS.find(([pattern]) => pattern.test(name))?.[1] ?? 30;
}

/** Authors whose writes are the story that most people look for: they have a lane before others. */
const FIRST = /^(deployment|replicaset|statefulset|job)-controller$|^kube-scheduler|^kubelets$/;
/** The latest spans, which decide about the lanes. */
const DECIDING = 400;

/** The names of at most `most` lanes, from above. */
export function chooseLanes(spans: readonly Span[], most: number): string[] {
  const totals = new Map<string, number>();
  for (const span of most < 10 ? spans.slice(-DECIDING) : spans) {
    for (const [name, count] of Object.entries(span.lanes)) totals.set(name, (totals.get(name) ?? 0) + count);
  }
  let names = [...totals.keys()].filter((name) => name !== OTHERS);
  const folded = names.length > most || totals.has(OTHERS);
  if (names.length > most) {
    const keep = (name: string) => (rank(name) < 2 ? Infinity : (totals.get(name) ?? 0) * (FIRST.test(name) ? 1_000 : 1));
    names = names.toSorted((a, b) => keep(b) - keep(a)).slice(0, most - 1);
  }
  names.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  return folded ? [...names, OTHERS] : names;
}

/** The number of the lane of a name among `lanes`. */
export function laneIndex(lanes: readonly string[]): (name: string) => number {
  const known = new Map(lanes.map((name, i) => [name, i]));
  return (name) => known.get(name) ?? lanes.length - 1;
}
