/** Predictions as the server makes them (`POST /setpoint/v1/plan`). */
import type { ObjectRef } from "../../state/refs";

export type ChangeType = "stop" | "drain" | "scale" | "image" | "delete" | "apply" | "none";

export interface Wanted {
  type: ChangeType;
  node: string;
  /** As in `choices`: `deployments/web`. */
  object: string;
  replicas: string;
  image: string;
  yaml: string;
}

/** The server's bound of a day for faults, and of 20 for the faults of a component. */
export const MOST_FAULTS = 20;
const MOST_FAULT_SECONDS = 86_400;

/** A kind of fault that a component of the copy can have. */
export interface FaultChoice {
  id: string;
  title: string;
  /** What its number counts: write, event, or seed. */
  at: string;
  /** How long it lasts unless something else is said; 0 if it has no duration. */
  seconds: number;
  /** Whether it is about a node. */
  node: boolean;
}

export interface FaultChoices {
  components: string[];
  faults: FaultChoice[];
}

/** A fault as it is typed. */
export interface WantedFault {
  component: string;
  fault: string;
  nth: string;
  /** Empty for the usual time. */
  seconds: string;
  node: string;
}

/** The fault plans of a request by component; null if a number is missing or impossible. */
export function faultPlans(faults: readonly WantedFault[]): Record<string, string> | null {
  const plans: Record<string, string[]> = {};
  for (const { component, fault, nth, seconds, node } of faults) {
    if (!/^[1-9]\d{0,8}$/.test(nth)) return null;
    const lasting = Math.round(Number(seconds) * 1_000);
    if (seconds.trim() && !(lasting >= 1 && lasting <= MOST_FAULT_SECONDS * 1_000)) return null;
    const where = fault === "partition" && node ? `@${node}` : "";
    (plans[component] ??= []).push(`${fault}:${nth}${where}${seconds.trim() ? `/${lasting}ms` : ""}`);
  }
  return Object.fromEntries(Object.entries(plans).map(([component, parts]) => [component, parts.join("+")]));
}

export interface FaultStep {
  component: string;
  at: string;
  nth: number;
  when: number;
  what: string;
  fault: string;
  answer: string;
}

export interface PlanRequest {
  method: string;
  path: string;
  query: string;
  contentType: string;
  body: unknown;
  text: string;
}

export interface ComparedRow {
  kind: string;
  namespace: string;
  name: string;
  now: string;
  then: string;
  note: string;
}

export interface Plan {
  settled: boolean;
  converges: boolean;
  seconds: number;
  passed: number;
  took: number;
  revision: number;
  refused: string[];
  compared: ComparedRow[];
  moved: { namespace: string; owner: string; before: string; after: string; from_node: string; to_node: string }[];
  interruptions: { kind: string; namespace: string; name: string; since: number; seconds: number | null }[];
  report: {
    verdict: string;
    changes: string[];
    events: { at: number; after: string; text: string }[];
    moreEvents: number;
    sections: { title: string; lines: string[] }[];
    limits: string[];
  };
  faults: { steps: FaultStep[]; moreSteps: number; differences: string[] | null } | null;
  requests: PlanRequest[];
  fork: { name: string; path: string } | null;
}

/** Kinds of which objects are offered, with their short form. */
export const KINDS = [
  { group: "apps", version: "v1", resource: "deployments", kind: "Deployment", scales: true, images: true },
  { group: "apps", version: "v1", resource: "statefulsets", kind: "StatefulSet", scales: true, images: true },
  { group: "apps", version: "v1", resource: "daemonsets", kind: "DaemonSet", scales: false, images: true },
  { group: "", version: "v1", resource: "pods", kind: "Pod", scales: false, images: false },
  { group: "", version: "v1", resource: "services", kind: "Service", scales: false, images: false },
] as const;

/** The change of a request; null if something is missing. */
export function changeOf(wanted: Wanted, refs: readonly ObjectRef[]): Record<string, unknown>[] | null {
  switch (wanted.type) {
    case "none":
      return [];
    case "stop":
    case "drain":
      return wanted.node ? [{ type: wanted.type, node: wanted.node }] : null;
    case "apply":
      return wanted.yaml.trim() ? [{ type: "apply", yaml: wanted.yaml }] : null;
    default: {
      const ref = refs.find((one) => choice(one) === wanted.object);
      if (!ref) return null;
      const { group, version, resource, namespace, name } = ref;
      const target = { type: wanted.type, group, version, resource, namespace, name };
      if (wanted.type === "scale") return /^\d+$/.test(wanted.replicas) ? [{ ...target, replicas: Number(wanted.replicas) }] : null;
      if (wanted.type === "image") return wanted.image ? [{ ...target, image: wanted.image }] : null;
      return [target];
    }
  }
}

export function choice(ref: ObjectRef): string {
  return `${ref.resource}/${ref.namespace}/${ref.name}`;
}

export function spoken(seconds: number): string {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} m`;
}
