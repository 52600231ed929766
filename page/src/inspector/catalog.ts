/** The tabs of the inspector. Each is loaded when it is first shown. */
import type { ComponentType } from "preact";
import type { ObjectRef } from "../state/refs";

export interface TabProps {
  target: ObjectRef;
}

export interface InspectorTab {
  id: string;
  label: string;
  /** This key opens the tab for the selected object. */
  key?: string;
  /** For which objects; for all if absent. */
  applies?: (target: ObjectRef) => boolean;
  load: () => Promise<{ default: ComponentType<TabProps> }>;
}

const WITH_PODS = ["Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "Service", "ReplicationController"];

/** Whether an object is a Pod, or selects Pods. */
function hasLogs(target: ObjectRef): boolean {
  return WITH_PODS.includes(target.kind) && ["", "apps", "batch"].includes(target.group);
}

export const inspectorTabs: readonly InspectorTab[] = [
  { id: "loop", label: "Loop", load: () => import("./loop/loop") },
  { id: "why", label: "Why", key: "w", load: () => import("./why/why") },
  { id: "history", label: "History", key: "h", load: () => import("./history/history") },
  { id: "yaml", label: "YAML", key: "y", load: () => import("./yaml/yaml") },
  { id: "events", label: "Events", key: "v", load: () => import("./events/events") },
  { id: "logs", label: "Logs", applies: hasLogs, load: () => import("./logs/logs") },
  { id: "exec", label: "Shell", applies: (target) => target.kind === "Pod" && !target.group, load: () => import("./exec/exec") },
];
