/** Which tools are open, and with what. */
import { signal } from "@preact/signals";
import { stored } from "../state/settings";
import { dockEntries } from "./catalog";
import type { DockEntry } from "./catalog";

/** A window with fewer pixels has no space for a view, a tall strip and a panel. */
const LOW = 900;

const openText = stored(
  "dock",
  dockEntries
    .filter((entry) => entry.initially)
    .map((entry) => entry.id)
    .join(" "),
);

/** The height of the row of panels, in pixels. Until it is changed, a low window keeps most of its height for the view. */
export const dockHeight = stored("dock.height", Math.min(280, Math.round(window.innerHeight * 0.35)));

/** What a panel was opened with, by its id: for example the file that the editor shows. */
export const panelArgs = signal<Readonly<Record<string, unknown>>>({});

export function isOpen(id: string): boolean {
  return openText.value.split(" ").includes(id);
}

export function openPanel(id: string, args?: unknown): void {
  if (args !== undefined) panelArgs.value = { ...panelArgs.value, [id]: args };
  if (isOpen(id)) return;
  openText.value = `${openText.value} ${id}`.trim();
  const isPanel = dockEntries.some((entry) => entry.id === id && entry.form === "panel");
  if (!isPanel || window.innerHeight >= LOW) return;
  for (const entry of dockEntries) if (entry.tall) closePanel(entry.id);
}

export function closePanel(id: string): void {
  openText.value = openText.value
    .split(" ")
    .filter((one) => one !== id)
    .join(" ");
}

/** What the key of a tool does: open it, move the focus into its field, or close it. */
export function pressPanelKey({ id, field }: DockEntry): void {
  const found = field && isOpen(id) ? document.querySelector<HTMLElement>(field) : null;
  if (found && !found.closest(".dock-panel")?.contains(document.activeElement)) found.focus();
  else togglePanel(id);
}

export function togglePanel(id: string): void {
  if (isOpen(id)) closePanel(id);
  else openPanel(id);
}
