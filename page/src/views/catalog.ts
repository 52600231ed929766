/** The views. Each is loaded when it is first shown. */
import { computed } from "@preact/signals";
import type { ComponentType } from "preact";
import { atBoard, isTeacher } from "../state/classroom";
import { LABELS } from "./labels";

export interface ViewEntry {
  /** The first part of the address, and the name of the icon. */
  id: string;
  label: string;
  /** `g` and this key go there. */
  key: string;
  /** Also in the bottom bar of phones, which has space for four. */
  phone?: boolean;
  /** The view is for the teacher of a class, and needs no cluster. */
  forTeacher?: boolean;
  load: () => Promise<{ default: ComponentType }>;
}

export const views: readonly ViewEntry[] = [
  { id: "class", label: LABELS.class, key: "b", forTeacher: true, phone: true, load: () => import("./class/class") },
  { id: "objects", label: LABELS.objects, key: "o", phone: true, load: () => import("./objects/objects") },
  { id: "chain", label: LABELS.chain, key: "c", phone: true, load: () => import("./chain/chain") },
  { id: "events", label: LABELS.events, key: "v", load: () => import("./events/events") },
  { id: "loops", label: LABELS.loops, key: "l", load: () => import("./loops/loops") },
  { id: "fleet", label: LABELS.fleet, key: "f", load: () => import("./fleet/fleet") },
  { id: "timeline", label: LABELS.timeline, key: "t", phone: true, load: () => import("./timeline/timeline") },
  { id: "what-if", label: LABELS["what-if"], key: "w", load: () => import("./what-if/what-if") },
  { id: "learn", label: LABELS.learn, key: "e", phone: true, load: () => import("./learn/learn") },
];

/** The views that this server offers. */
export const offeredViews = computed(() =>
  views.filter((view) => (view.forTeacher ? isTeacher.value : !atBoard.value)),
);
