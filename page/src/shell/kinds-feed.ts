/** Keeps the kinds up to date. Objects are counted only while the list of kinds is shown. */
import { useEffect } from "preact/hooks";
import { useFeed } from "../link/hooks";
import { kinds } from "../state/kinds";
import type { Kind } from "../state/kinds";
import { namespace, settledCluster } from "../state/place";
import { signal } from "@preact/signals";

/** Whether some view shows the counts. */
const counted = signal(0);

/** Have the objects of each kind counted while the component is mounted. */
export function useCounts(): void {
  useEffect(() => {
    counted.value += 1;
    return () => {
      counted.value -= 1;
    };
  }, []);
}

export function KindsFeed() {
  // Counting takes long where there are many kinds or the server is busy: a new kind does not wait for it.
  const known = useFeed<Kind>("kinds", {}, settledCluster.value);
  const counts = useFeed<Kind>("kinds", counted.value > 0 ? { namespace: namespace.value, counts: true } : null, settledCluster.value);
  useEffect(() => {
    if (!known.synced || known.items.size === 0) return;
    kinds.value = [...known.items].map(([key, kind]) => ({ ...kind, count: counts.items.get(key)?.count ?? null }));
  }, [known.revision, known.items, counts.revision, counts.items]);
  return null;
}
