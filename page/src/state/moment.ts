/** The past moment that the page shows: when it was, and whether the server still knows it. */
import { effect, signal } from "@preact/signals";
import { request } from "../link/hooks";
import { connections } from "../link/link";
import type { Status } from "../link/protocol";
import { cluster, momentTime, settledCluster } from "./place";

/** Why the moment cannot be shown; null if it can, or if that is not known yet. */
export const momentError = signal<string | null>(null);

/** `102993; 2026-11-17T19:52:01.123Z`, as the server names a moment. */
function timeOf(header: string | undefined): Date | null {
  const time = Date.parse(header?.split("; ")[1] ?? "");
  return Number.isNaN(time) ? null : new Date(time);
}

/** Ask for each moment when it was: links have the revision only. */
export function startMoments(): void {
  let asked = 0;
  effect(() => {
    const prefix = settledCluster.value;
    const mine = ++asked;
    if (!prefix.includes("/at/") || connections.value === 0) {
      momentError.value = null;
      return;
    }
    void request<Status>("GET", "/api/v1/namespaces", { query: { limit: 1 }, prefix }).then((reply) => {
      if (mine !== asked) return;
      const refused = reply.status === 410 || reply.status === 400;
      momentError.value = refused ? (reply.body?.message ?? "") : null;
      const time = timeOf(reply.headers?.["setpoint-at"]);
      // It may have moved on meanwhile.
      if (time && settledCluster.peek() === cluster.peek()) momentTime.value = time;
    }, () => undefined);
  });
}
