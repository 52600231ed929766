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

export const inspectorTabs: readonly InspectorTab[] = [
  { id: "events", label: "Events", key: "v", load: () => import("./events/events") },
];
