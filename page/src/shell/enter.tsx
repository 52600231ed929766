/** The screen for a browser without a session. */
import { session } from "../state/session";
import { shell } from "../words/shell";

export function Enter() {
  const state = session.value;
  if (state.is === "starting" || state.is === "in") return null;
  const [title, hint] = {
    none: [shell.enter.none, shell.enter.noneHint],
    refused: [state.is === "refused" ? firstSentence(state.message) : "", shell.enter.refusedHint],
    ended: [shell.enter.ended, shell.enter.endedHint],
  }[state.is];
  return (
    <main class="enter">
      <div class="card">
        <h1>{title}</h1>
        <p>{hint}</p>
        <pre class="command">
          <span aria-hidden="true">$ </span>
          {shell.enter.command}
        </pre>
        <p class="soft">{shell.enter.then}</p>
      </div>
    </main>
  );
}

/** The server says what is wrong with a link, and then what to do, which this screen says too. */
function firstSentence(message: string): string {
  return /^[^.]+/.exec(message)?.[0] ?? shell.enter.refused;
}
