/** Undo one write: the plan of the server first, then its requests with the rights of the user. */
import { useEffect, useState } from "preact/hooks";
import { ask } from "../../link/hooks";
import { ApiError } from "../../link/protocol";
import type { Status } from "../../link/protocol";
import { Button } from "../../ui/button";
import { Dialog } from "../../ui/dialog";
import { Failure, Loading } from "../../ui/notice";
import { visible } from "../../ui/text";
import { toast } from "../../ui/toast";
import { history as words } from "../../words/history";
import { shell } from "../../words/shell";
import "./history.css";

interface PlanRef {
  group: string;
  plural: string;
  kind: string;
  namespace: string;
  name: string;
}

interface PlanStep {
  action: "create" | "apply" | "update" | "delete";
  object: PlanRef;
  text: string;
  links?: { place: (string | number)[]; step: number }[];
  awaits?: string;
  request: { method: string; path: string; query: string; contentType: string; body: unknown };
}

interface Plan {
  revision: number;
  steps: PlanStep[];
  conflicts: { object: PlanRef; text: string; solvedBy: string }[];
  warnings: string[];
  notDone: { object: string; text: string }[];
  changes?: { object: string; text: string }[];
}

const SIGNS = { create: "+", apply: "+", update: "~", delete: "−" } as const;
const METHODS = new Set(["POST", "PATCH", "DELETE"]);
const TIMEOUT = 60_000;
const PAUSE = 250;

export function UndoDialog(props: { revision: number; close(): void; done?(): void }) {
  const [options, setOptions] = useState({ force: false, replace: false });
  const [plan, setPlan] = useState<Plan | null>(null);
  const [error, setError] = useState<Status | null>(null);
  const [progress, setProgress] = useState<number | null>(null);
  const [failures, setFailures] = useState<string[]>([]);

  useEffect(() => {
    let current = true;
    setPlan(null);
    ask<Plan>("POST", "/setpoint/v1/undo", { body: { revision: props.revision, ...options } }).then(
      (found) => current && setPlan(found),
      (failed: unknown) => current && setError(failed instanceof ApiError ? failed.status : { message: String(failed) }),
    );
    return () => {
      current = false;
    };
  }, [props.revision, options]);

  const carryOut = async () => {
    if (!plan || progress !== null) return;
    const refused = await execute(plan, setProgress);
    setProgress(null);
    if (refused.length === 0) {
      toast(words.undoDone(plan.steps.length));
      props.close();
    } else {
      setFailures(refused);
    }
    props.done?.();
  };
  const blocked = plan !== null && plan.conflicts.length > 0;
  return (
    <Dialog
      title={words.undoTitle(props.revision)}
      close={props.close}
      footer={
        <>
          <Button onClick={props.close}>{shell.cancel}</Button>
          <Button
            look="primary"
            writes
            disabled={!plan || plan.steps.length === 0 || blocked || progress !== null || failures.length > 0}
            onClick={() => void carryOut()}
          >
            {progress === null ? words.undoAction : words.undoWorking(progress, plan?.steps.length ?? 0)}
          </Button>
        </>
      }
    >
      {error ? <Failure error={error} feature={words.feature} /> : null}
      {!plan && !error ? <Loading what={words.undoing} /> : null}
      {plan ? <PlanText plan={plan} options={options} choose={setOptions} /> : null}
      {failures.length > 0 ? (
        <div role="alert">
          <p>
            <strong>{words.undoFailed(failures.length, plan?.steps.length ?? 0)}</strong>
          </p>
          <ul>
            {failures.map((text) => (
              <li key={text}>{visible(text)}</li>
            ))}
          </ul>
        </div>
      ) : null}
    </Dialog>
  );
}

function PlanText(props: {
  plan: Plan;
  options: { force: boolean; replace: boolean };
  choose(options: { force: boolean; replace: boolean }): void;
}) {
  const { plan, options, choose } = props;
  const solved = new Set(plan.conflicts.map((one) => one.solvedBy));
  const offered = (name: "force" | "replace", label: string) =>
    solved.has(name) || options[name] ? (
      <label class="undo-option">
        <input type="checkbox" checked={options[name]} onChange={(event) => choose({ ...options, [name]: event.currentTarget.checked })} />
        {label}
      </label>
    ) : null;
  return (
    <div class="undo-plan">
      <p class="soft">{words.undoPlan}</p>
      {plan.changes && plan.changes.length > 0 ? (
        <>
          <h3>{words.undoWas}</h3>
          <ul>
            {plan.changes.slice(0, 20).map((one) => (
              <li key={one.object}>{visible(`${one.object}: ${one.text}`)}</li>
            ))}
          </ul>
        </>
      ) : null}
      <h3>{words.undoSteps}</h3>
      {plan.steps.length === 0 ? (
        <p>{words.undoNothing}</p>
      ) : (
        <ul class="undo-steps">
          {plan.steps.map((step, at) => (
            <li key={at}>
              <span class="undo-sign">{SIGNS[step.action]}</span> {visible(`${shown(step.object)}: ${step.text || step.action}`)}
            </li>
          ))}
        </ul>
      )}
      {plan.conflicts.length > 0 ? (
        <>
          <h3>{words.undoConflicts}</h3>
          <p class="soft">{words.undoConflictsHint}</p>
          <ul>
            {plan.conflicts.map((one, at) => (
              <li key={at}>{visible(`${shown(one.object)}: ${one.text}`)}</li>
            ))}
          </ul>
        </>
      ) : null}
      {offered("force", words.undoForce)}
      {offered("replace", words.undoReplace)}
      <Texts title={words.undoWarnings} texts={plan.warnings} />
      <Texts title={words.undoNotDone} texts={plan.notDone.slice(0, 20).map((one) => `${one.object}: ${one.text}`)} />
      {plan.steps.length > 0 ? <p class="faint">{words.undoLost}</p> : null}
    </div>
  );
}

function Texts({ title, texts }: { title: string; texts: readonly string[] }) {
  if (texts.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul>
        {texts.map((text) => (
          <li key={text}>{visible(text)}</li>
        ))}
      </ul>
    </>
  );
}

function shown(ref: PlanRef): string {
  const kind = ref.kind.toLowerCase();
  const name = ref.group ? `${kind}.${ref.group}/${ref.name}` : `${kind}/${ref.name}`;
  return ref.namespace ? `${name} (${ref.namespace})` : name;
}

/** Send the requests one after the other and return what was refused. A step is left out if it needs one that failed. */
async function execute(plan: Plan, progress: (done: number) => void): Promise<string[]> {
  const refused: string[] = [];
  const uids = new Map<number, string>();
  for (const [number, step] of plan.steps.entries()) {
    progress(number);
    const name = shown(step.object);
    const links = step.links ?? [];
    if (links.some((link) => !uids.has(link.step))) {
      refused.push(`${name}: ${words.undoLeftOut}`);
      continue;
    }
    const body = links.length > 0 ? structuredClone(step.request.body) : step.request.body;
    for (const link of links) setAt(body, link.place, uids.get(link.step)!);
    try {
      uids.set(number, await send(step, body, plan.revision));
    } catch (error) {
      refused.push(`${name}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return refused;
}

function setAt(body: unknown, place: readonly (string | number)[], uid: string): void {
  let at = body as Record<string | number, unknown>;
  for (const part of place.slice(0, -1)) at = at[part] as Record<string | number, unknown>;
  at[place.at(-1)!] = uid;
}

async function send(step: PlanStep, body: unknown, undoes: number): Promise<string> {
  const { method, path, query, contentType } = step.request;
  // A plan is data of the server: only requests to objects are sent.
  if (!METHODS.has(method) || !/^\/apis?\//.test(path) || path.includes("..")) throw new Error(words.undoRefused);
  const end = performance.now() + TIMEOUT;
  for (;;) {
    try {
      const answer = await ask<{ metadata?: { uid?: string } } | null>(method, path, {
        query: Object.fromEntries(new URLSearchParams(query)),
        body,
        contentType,
        undoes,
      });
      return answer?.metadata?.uid ?? "";
    } catch (error) {
      const waits = error instanceof ApiError && step.awaits && error.status.reason === step.awaits;
      if (!waits || performance.now() > end) throw error;
    }
    await new Promise((resolve) => window.setTimeout(resolve, PAUSE));
  }
}
