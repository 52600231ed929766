/** The views. Each is loaded when it is first shown. */
import type { ComponentType } from "preact";

export interface ViewEntry {
  /** The first part of the address, and the name of the icon. */
  id: string;
  label: string;
  /** `g` and this key go there. */
  key: string;
  /** Also in the bottom bar of phones, which has space for four. */
  phone?: boolean;
  load: () => Promise<{ default: ComponentType }>;
}

export const views: readonly ViewEntry[] = [
  { id: "objects", label: "Objects", key: "o", phone: true, load: () => import("./objects/objects") },
  { id: "chain", label: "Chain", key: "c", phone: true, load: () => import("./chain/chain") },
  { id: "events", label: "Events", key: "v", load: () => import("./events/events") },
  { id: "loops", label: "Loops", key: "l", load: () => import("./loops/loops") },
  { id: "fleet", label: "Fleet", key: "f", load: () => import("./fleet/fleet") },
  { id: "timeline", label: "Timeline", key: "t", phone: true, load: () => import("./timeline/timeline") },
];
