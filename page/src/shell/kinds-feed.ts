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
  // Without counts it is there at once, and views need not wait.
  const plain = useFeed<Kind>("kinds", {}, settledCluster.value);
  const counts = useFeed<Kind>("kinds", counted.value > 0 ? { namespace: namespace.value, counts: true } : null, settledCluster.value);
  const feed = counts.synced && !counts.error ? counts : plain;
  useEffect(() => {
    if (feed.synced && feed.items.size > 0) kinds.value = [...feed.items.values()];
  }, [feed.revision, feed.items]);
  return null;
}
