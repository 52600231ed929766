/**
 * The script that runs first. It begins the session, lets the browser paint the frame that the document contains, and
 * then loads the page, while the server answers.
 */
import { enter } from "./link/entrance";

/** Milliseconds after which a tab loads the page although it has painted nothing, because it is hidden. */
const NO_PAINT = 200;

/** Apply the chosen theme before anything is painted. The page follows its changes (`startTheme`). */
function applyTheme(): void {
  let chosen: unknown = null;
  try {
    chosen = JSON.parse(localStorage.getItem("setpoint.theme") ?? "null");
  } catch {
    // The theme of the system serves.
  }
  const dark = chosen === "dark" || (chosen !== "light" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

/** Resolves after the first paint. */
function painted(): Promise<void> {
  return new Promise((done) => {
    requestAnimationFrame(() => setTimeout(done));
    setTimeout(done, NO_PAINT);
  });
}

applyTheme();
void enter();
void painted().then(() => import("./main"));
