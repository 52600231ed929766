/** The tab with a shell in a container of the Pod. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { screenReader } from "../../dock/terminal/settings";
import { ask, converse } from "../../link/hooks";
import { ApiError } from "../../link/protocol";
import type { Status } from "../../link/protocol";
import { cluster } from "../../state/place";
import { objectPath, refKey } from "../../state/refs";
import { openScreen } from "../../terminal/screen";
import { Button } from "../../ui/button";
import { Failure, Loading, Notice } from "../../ui/notice";
import { visible } from "../../ui/text";
import { terminal as words } from "../../words/terminal";
import type { TabProps } from "../catalog";
import "./exec.css";

interface Pod {
  status?: { containerStatuses?: { name: string; state?: { running?: object } }[]; ephemeralContainerStatuses?: { name: string; state?: { running?: object } }[] };
}

export default function Exec({ target }: TabProps) {
  const containers = useSignal<readonly string[] | null>(null);
  const error = useSignal<Status | null>(null);
  const chosen = useSignal("");
  const run = useSignal(0);
  useEffect(() => {
    let gone = false;
    ask<Pod>("GET", objectPath(target)).then(
      (pod) => {
        if (gone) return;
        const all = [...(pod.status?.containerStatuses ?? []), ...(pod.status?.ephemeralContainerStatuses ?? [])];
        containers.value = all.filter((each) => each.state?.running).map((each) => each.name);
        chosen.value = containers.value[0] ?? "";
      },
      (problem: unknown) => (error.value = problem instanceof ApiError ? problem.status : { message: String(problem) }),
    );
    return () => {
      gone = true;
    };
  }, [refKey(target)]);
  if (error.value) return <Failure error={error.value} feature={words.execTitle} />;
  if (!containers.value) return <Loading />;
  if (!containers.value.length) return <Notice title={words.execNot} small />;
  return (
    <div class="exec">
      <div class="exec-bar">
        {containers.value.length > 1 ? (
          <label>
            {words.execContainer}{" "}
            <select class="field" value={chosen.value} onChange={(event) => (chosen.value = event.currentTarget.value)}>
              {containers.value.map((name) => (
                <option key={name} value={name}>
                  {visible(name)}
                </option>
              ))}
            </select>
          </label>
        ) : (
          <span class="faint">{visible(chosen.value)}</span>
        )}
        <Button small writes onClick={() => (run.value += 1)}>
          {run.value ? words.execAgain : words.execStart}
        </Button>
      </div>
      {run.value ? <Session key={`${chosen.value} ${run.value}`} namespace={target.namespace} pod={target.name} container={chosen.value} /> : null}
    </div>
  );
}

function Session(props: { namespace: string; pod: string; container: string }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!place.current) return;
    const parent = place.current;
    let conversation: { say(data: unknown): boolean; close(): void } | null = null;
    const screen = openScreen(parent, {
      label: words.label(`${words.execTitle} ${props.pod}`),
      screenReader: screenReader.peek(),
      convertEol: false,
      resized: (columns, rows) => conversation?.say({ size: [columns, rows] }),
      leave: () => document.getElementById("tab-inspector-exec")?.focus(),
    });
    const note = (text: string) => screen.terminal.write(`\r\n\x1b[2m${visible(text)}\x1b[0m\r\n`);
    conversation = converse(
      "exec",
      { ...props, command: ["sh"], size: [screen.terminal.cols, screen.terminal.rows] },
      {
        message: (data) => {
          const { output, status } = data as { output?: string; status?: { code: number; message: string } };
          if (output !== undefined) screen.terminal.write(output);
          if (status) note(words.execEnded(status.code, status.code ? status.message : ""));
        },
        end: (problem) => {
          if (problem) note(problem.reason === "ConnectionLost" ? words.lost : (problem.message ?? ""));
        },
      },
      cluster.peek(),
    );
    const typed = screen.terminal.onData((data) => conversation?.say({ input: data }));
    screen.terminal.focus();
    return () => {
      typed.dispose();
      conversation?.close();
      screen.dispose();
    };
  }, []);
  return <div class="exec-screen" data-own-keys ref={place} />;
}
