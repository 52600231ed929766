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
