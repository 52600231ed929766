/** The screen for a browser without a session: what to do, or the form to join a class. */
import { useState } from "preact/hooks";
import { isClass } from "../link/entrance";
import { joinClass, session } from "../state/session";
import { Button } from "../ui/button";
import { classroom } from "../words/class";
import { shell } from "../words/shell";

export function Enter() {
  const state = session.value;
  if (state.is === "starting" || state.is === "in") return null;
  if (state.is === "joining") return <Join code={state.code} />;
  const [title, hint] = {
    none: [shell.enter.none, shell.enter.noneHint],
    refused: [state.is === "refused" ? firstSentence(state.message) : "", shell.enter.refusedHint],
    ended: [shell.enter.ended, shell.enter.endedHint],
  }[state.is];
  return (
    <main class="enter">
      <div class="card">
        <h1>{title}</h1>
        {isClass ? (
          <p>{classroom.outHint}</p>
        ) : (
          <>
            <p>{hint}</p>
            <pre class="command">
              <span aria-hidden="true">$ </span>
              {shell.enter.command}
            </pre>
            <p class="soft">{shell.enter.then}</p>
          </>
        )}
      </div>
    </main>
  );
}

/** The server says what is wrong with a link, and then what to do, which this screen says too. */
function firstSentence(message: string): string {
  return /^[^.]+/.exec(message)?.[0] ?? shell.enter.refused;
}

function Join({ code }: { code: string }) {
  const [name, setName] = useState("");
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [refusal, setRefusal] = useState("");
  const join = async () => {
    if (busy || !name.trim()) return;
    // A part of the link, or all of it, is as good as the code.
    const given = code || typed.replace(/^.*class-/, "").trim();
    setBusy(true);
    setRefusal((await joinClass(given, name.trim())) ?? "");
    setBusy(false);
  };
  return (
    <main class="enter">
      <div class="card">
        <h1>{classroom.joinTitle}</h1>
        <p>{classroom.joinHint}</p>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void join();
          }}
        >
          {code ? null : (
            <label>
              {classroom.code}
              <input
                class="field"
                type="text"
                required
                autoFocus
                autocomplete="off"
                spellcheck={false}
                value={typed}
                aria-describedby="join-refusal"
                onInput={(event) => setTyped(event.currentTarget.value)}
              />
            </label>
          )}
          <label>
            {classroom.name}
            <input
              class="field"
              type="text"
              required
              autoFocus={code !== ""}
              maxLength={40}
              autocomplete="nickname"
              value={name}
              aria-describedby="join-refusal"
              onInput={(event) => setName(event.currentTarget.value)}
            />
          </label>
          <p id="join-refusal" role="alert">
            {refusal}
          </p>
          <Button look="primary" type="submit">
            {busy ? classroom.joining : classroom.join}
          </Button>
        </form>
      </div>
    </main>
  );
}
