/**
 * Undo one write: the plan of the server first, then its requests with the rights of the user. The page's server sends
 * them: this tab gets no values of Secrets.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { converse } from "../../link/hooks";
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
}

interface Plan {
  steps: PlanStep[];
  conflicts: { object: PlanRef; text: string; solvedBy: string }[];
  warnings: string[];
  notDone: { object: string; text: string }[];
  changes?: { object: string; text: string }[];
}

const SIGNS = { create: "+", apply: "+", update: "~", delete: "−" } as const;

export function UndoDialog(props: { revision: number; close(): void; done?(): void }) {
  const [options, setOptions] = useState({ force: false, replace: false });
  const [plan, setPlan] = useState<Plan | null>(null);
  const [error, setError] = useState<Status | null>(null);
  const [progress, setProgress] = useState<number | null>(null);
  const [failures, setFailures] = useState<string[]>([]);

  /** Begins to carry out the plan that is shown. */
  const begin = useRef<() => boolean>(() => false);

  useEffect(() => {
    setPlan(null);
    setError(null);
    let steps = 0;
    let begun = false;
    let current = true;
    const finished = (refused: string[]) => {
      setProgress(null);
      if (refused.length > 0) setFailures(refused);
      else toast(words.undoDone(steps));
      if (refused.length === 0 && current) props.close();
      props.done?.();
    };
    const opened = converse(
      "undo",
      { revision: props.revision, ...options },
      {
        message: (data) => {
          const message = data as { plan?: Plan; done?: number; refused?: string[] };
          if (message.plan) {
            steps = message.plan.steps.length;
            setPlan(message.plan);
          }
          if (message.done !== undefined) setProgress(message.done);
          if (message.refused) finished(message.refused);
        },
        end: (failed) => {
          setProgress(null);
          if (failed) setError(failed);
        },
      },
    );
    begin.current = () => (begun = opened.say({ do: "carry out" }));
    return () => {
      current = false;
      // What was begun is completed, also if the dialog is closed.
      if (!begun) opened.close();
    };
  }, [props.revision, options]);

  const carryOut = () => {
    if (!plan || progress !== null) return;
    if (begin.current()) setProgress(0);
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
            onClick={carryOut}
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
