/** The latest reconciles of one loop: when, of what, how long, how many writes, because of what. */
import { useEffect, useState } from "preact/hooks";
import { Failure, Loading } from "../../ui/notice";
import { ApiError } from "../../link/protocol";
import type { Status } from "../../link/protocol";
import { visible } from "../../ui/text";
import { shortDuration } from "../../ui/time";
import { loops as words } from "../../words/loops";
import type { Loop, LoopRun } from "./board";
import { Key, Why } from "./cells";
import { readRuns } from "./commands";

const SHOWN = 20;

function because(run: LoopRun): string {
  const more = run.trigger_count > run.triggers.length ? ` ${words.more(run.trigger_count - run.triggers.length)}` : "";
  const revisions = run.triggers.length > 0 ? words.revisions(run.triggers.join(", ") + more) : "";
  const [name = "", value = ""] = run.besides.split(":", 2);
  const known: Partial<Record<string, (value: string) => string>> = words.besides;
  const besides = run.besides ? (known[name]?.(value) ?? run.besides) : "";
  return [revisions, besides].filter(Boolean).join(", ") || "–";
}

export function Runs({ loop, now }: { loop: Loop; now: number }) {
  const [runs, setRuns] = useState<LoopRun[] | null>(null);
  const [error, setError] = useState<Status | null>(null);
  useEffect(() => {
    let current = true;
    readRuns(loop.name).then(
      (found) => current && setRuns(found),
      (reason: unknown) => current && setError(reason instanceof ApiError ? reason.status : { message: String(reason) }),
    );
    return () => void (current = false);
  }, [loop.name, loop.done, loop.working.length]);
  if (error) return <Failure error={error} />;
  if (!runs) return <Loading />;
  if (runs.length === 0) return <p class="soft">{words.noRuns}</p>;
  const columns = words.runColumns;
  return (
    <div class="loops-runs" tabIndex={0} role="region" aria-label={words.runsOf(loop.name)}>
      <table>
        <thead>
          <tr>
            {Object.values(columns).map((label) => (
              <th key={label} scope="col">
                {label}
              </th>
            ))}
            <th scope="col">
              <span class="visually-hidden">{words.why}</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {runs.slice(0, SHOWN).map((run) => (
            <tr key={run.id}>
              <td class="number">{shortDuration(now - run.at)}</td>
              <td>
                <Key loop={loop} name={run.key} />
              </td>
              <td class="number">{run.took === null ? words.stillRuns : words.milliseconds(run.took)}</td>
              <td class="number">{run.writes}</td>
              <td>{visible(because(run))}</td>
              <td class={run.error ? "loops-failed" : ""}>{visible(run.error || run.reason) || words.done}</td>
              <td>
                <Why loop={loop} name={run.key} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
