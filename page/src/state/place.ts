/** Where the page looks: logical cluster, moment, namespace. All are a part of the address. */
import { batch, computed, effect, signal } from "@preact/signals";
import { navigate, route } from "../router";
import { stored } from "./settings";

/** The logical cluster: empty for the cluster itself, or a path such as `/forks/x`, or that of a seat of a class. */
export const logical = computed(() => {
  const value = route.value.params.cluster ?? "";
  return /^(?:\/seats\/[\w.-]+)?(?:\/forks\/[\w.-]+)?$/.test(value) ? value : "";
});

/** The revision that the page shows; null for now. */
export const at = computed(() => {
  const value = Number(route.value.params.at ?? "");
  return Number.isSafeInteger(value) && value > 0 ? value : null;
});

/** When the shown revision was written, if a view knows it; for the banner. */
export const momentTime = signal<Date | null>(null);

/** The path prefix of requests and feeds. */
export const cluster = computed(() => logical.value + (at.value === null ? "" : `/at/${at.value}`));

/** Whether the moment is being dragged: it changes many times a second. */
export const scrubbing = signal(false);

/**
 * As `cluster`, but while the moment is dragged what it was before, and a little later: for what need not follow each
 * movement, and what is less important than the view.
 */
export const settledCluster = signal("");
const LATER = 50;
let later = 0;
effect(() => {
  const next = cluster.value;
  window.clearTimeout(later);
  if (scrubbing.value) return;
  if (at.value === null) settledCluster.value = next;
  else later = window.setTimeout(() => (settledCluster.value = next), LATER);
});

const storedNamespace = stored("namespace", "default");

/** The namespace that lists show; empty for all. */
export const namespace = computed(() => {
  const value = route.value.params.ns;
  return value === undefined ? storedNamespace.value : value === "*" ? "" : value;
});

effect(() => {
  const value = route.value.params.ns;
  if (value !== undefined) storedNamespace.value = value === "*" ? "" : value;
});

export function setNamespace(value: string): void {
  navigate({ params: { ns: value || "*" } }, { replace: true });
}

/** Show the cluster as it was at a revision; null for now. `passing`: another moment follows at once. */
export function setMoment(revision: number | null, time: Date | null = null, passing = false): void {
  batch(() => {
    scrubbing.value = passing;
    momentTime.value = revision === null ? null : time;
    navigate({ params: { at: revision === null ? "" : String(revision) } }, { replace: true, passing });
  });
}

export function setLogical(path: string): void {
  momentTime.value = null;
  navigate({ params: { cluster: path, at: "" } });
}

/** Why nothing can be changed now; null if writes are possible. */
export const readOnly = computed(() => {
  if (at.value !== null) return "This is a past moment. Go back to now to change something.";
  return logical.value.startsWith("/seats/") ? "This is the cluster of a learner: you can look, and change nothing." : null;
});
