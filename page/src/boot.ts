/**
 * The script that runs first. It begins the session, lets the browser paint the frame that the document contains, and
 * then loads the page, while the server answers.
 */
import { enter } from "./link/entrance";
import { boot as words } from "./words/boot";

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

/** Say below the frame that the page did not load: its file did not arrive, or did not run. */
function reportFailure(error: unknown): void {
  const notice = document.createElement("div");
  notice.className = "notice load-failure";
  notice.setAttribute("role", "alert");
  const title = document.createElement("h2");
  title.textContent = words.failed;
  const hint = document.createElement("p");
  hint.textContent = words.failedHint;
  notice.append(title, hint);
  document.body.append(notice);
  console.error(error);
}

applyTheme();
void enter();
void painted()
  .then(() => import("./main"))
  .catch(reportFailure);
