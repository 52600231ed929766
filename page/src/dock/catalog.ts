/** The tools at the bottom. Each is loaded when it is first opened. */
import type { ComponentType } from "preact";

export interface DockEntry {
  /** Also the name of the icon. */
  id: string;
  label: string;
  key?: string;
  /** The field that the key puts the focus into while the tool is open. */
  field?: string;
  /** A strip is a full row with a height of its own; panels share the row below, beside each other. */
  form: "strip" | "panel";
  /** A strip that closes when a panel opens in a low window. */
  tall?: boolean;
  /** False: not on phones, which have no space for it. */
  phone?: boolean;
  /** Open when the page is opened for the first time. */
  initially?: boolean;
  load: () => Promise<{ default: ComponentType }>;
}

export const dockEntries: readonly DockEntry[] = [
  { id: "story", label: "What happens", form: "strip", initially: true, load: () => import("./story/story") },
  { id: "timeline", label: "Timeline", form: "strip", tall: true, phone: false, initially: true, load: () => import("./timeline/timeline") },
  { id: "terminal", label: "Terminal", key: "`", field: ".terminal-screen textarea", form: "panel", load: () => import("./terminal/terminal") },
  { id: "editor", label: "Editor", form: "panel", load: () => import("./editor/editor") },
  { id: "faults", label: "Faults", key: "x", form: "panel", load: () => import("./faults/faults") },
];
