/** Why an object is as it is, or why nothing happens: steps from the effect back to the origin. */
import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "../../link/hooks";
import { ApiError } from "../../link/protocol";
import type { Status } from "../../link/protocol";
import { at, cluster, setMoment } from "../../state/place";
import { objectPath, refKey } from "../../state/refs";
import type { ObjectRef } from "../../state/refs";
import { select } from "../../state/selection";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { Failure, Loading, Notice } from "../../ui/notice";
import { visible } from "../../ui/text";
import { Ago } from "../../ui/time";
import { why as words } from "../../words/why";
import { concerns, isCount, useWrites, withYou } from "../../writes/writes";
import { UndoDialog } from "../history/undo";
import { askWhy, fieldsOf, stepRef } from "./answer";
import type { Answer, Finding, Question, Step } from "./answer";
import "./why.css";

const NONE: ReadonlySet<string> = new Set();

export default function WhyTab({ target }: { target: ObjectRef }) {
  const [question, setQuestion] = useState<Question>({ is: "state" });
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [error, setError] = useState<Status | null>(null);
  const [fields, setFields] = useState<string[]>([]);
  const [count, setCount] = useState(0);
  const [stale, setStale] = useState(false);
  const key = `${cluster.value} ${refKey(target)}`;

  useEffect(() => {
    let current = true;
    setQuestion({ is: "state" });
    setFields([]);
    setAnswer(null);
    ask("GET", objectPath(target)).then(
      (object) => current && setFields(fieldsOf(object)),
      () => undefined, // an object that does not exist has no fields, and can still be asked about
    );
    return () => {
      current = false;
    };
  }, [key]);

  useEffect(() => {
    let current = true;
    setStale(false);
    askWhy(target, question).then(
      (found) => {
        if (!current) return;
        setAnswer(found);
        setError(null);
      },
      (failed: unknown) => {
        if (!current) return;
        setAnswer(null);
        setError(failed instanceof ApiError ? failed.status : { message: String(failed) });
      },
    );
    return () => {
      current = false;
    };
  }, [key, question, count]);

  const again = () => setCount((before) => before + 1);
  useChanges(target, answer, () => (answer === null ? again() : setStale(true)));

  return (
    <div class="why-tab">
      <Questions question={question} fields={fields} choose={setQuestion} />
      {stale ? (
        <p class="why-stale">
          {words.again}{" "}
          <Button small onClick={again}>
            {words.refresh}
          </Button>
        </p>
      ) : null}
      {error ? (
        <Problem error={error} />
      ) : answer ? (
        <Answered answer={answer} again={again} />
      ) : (
        <Loading />
      )}
    </div>
  );
}

/** Call back when a write to the object arrives after the answer. */
function useChanges(target: ObjectRef, answer: Answer | null, changed: () => void): void {
  const feed = useWrites();
  const seen = useRef(0);
  useEffect(() => {
    const last = feed.log.at(-1)?.revision ?? 0;
    const before = seen.current;
    seen.current = last;
    if (before === 0 || last <= before || answer === null) return;
    for (let index = feed.log.length - 1; index >= 0; index -= 1) {
      const entry = feed.log[index]!;
      if (entry.revision <= before) return;
      if (!isCount(entry) && entry.objects[0]?.part !== "status" && concerns(entry, target, "", NONE)) {
        changed();
        return;
      }
    }
  }, [feed.revision]);
}

function Problem({ error }: { error: Status }) {
  const unknown = error.code === 404 && error.details?.name !== undefined;
  if (!unknown) return <Failure error={error} feature={words.feature} />;
  return (
    <Notice title={words.unknown} small>
      <p>{words.unknownHint}</p>
    </Notice>
  );
}

function Questions(props: { question: Question; fields: readonly string[]; choose(question: Question): void }) {
  const { question, choose } = props;
  const [text, setText] = useState("");
  const chosen = question.is === "field" ? question.field : "";
  const offer = (one: Question, label: string, pressed: boolean) => (
    <Button key={label} small aria-pressed={pressed} onClick={() => choose(one)}>
      {label}
    </Button>
  );
  return (
    <form
      class="why-questions"
      aria-label={words.question}
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim()) choose({ is: "field", field: text.trim() });
      }}
    >
      <div class="toolbar">
        {offer({ is: "state" }, words.about.state, question.is === "state")}
        {offer({ is: "not" }, words.about.not, question.is === "not")}
        {offer({ is: "conflicts" }, words.about.conflicts, question.is === "conflicts")}
        {props.fields.map((field) => offer({ is: "field", field }, words.about.field(visible(field)), chosen === field))}
      </div>
      <div class="why-field">
        <input
          class="field"
          value={text}
          aria-label={words.fieldLabel}
          placeholder={words.fieldHint}
          maxLength={300}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <Button type="submit">{words.ask}</Button>
      </div>
    </form>
  );
}

function Answered({ answer, again }: { answer: Answer; again(): void }) {
  const [undoing, setUndoing] = useState<number | null>(null);
  const root = rootOf(answer);
  const undo = answer.hints.map((hint) => /^setpoint undo (\d+)$/.exec(hint)?.[1]).find(Boolean);
  const hints = answer.hints.filter((hint) => !/^setpoint undo \d+$/.test(hint));
  const findings = answer.findings.filter((one) => one.sentence !== answer.sentence);
  const first = answer.findings.find((one) => one.sentence === answer.sentence);
  return (
    <div class="why-answer" aria-live="polite">
      <p class="why-sentence">{visible(withYou(answer.sentence))}</p>
      {first ? <FindingDetail finding={first} /> : null}
      {findings.length > 0 ? (
        <section aria-label={words.findings}>
          <h3>{words.findings}</h3>
          {findings.map((finding, index) => (
            <div key={index} class="why-finding">
              <p>{visible(withYou(finding.sentence))}</p>
              <FindingDetail finding={finding} />
            </div>
          ))}
        </section>
      ) : null}
      {answer.chain.length > 0 ? (
        <section>
          <h3>{words.steps}</h3>
          <ol class="why-steps" aria-label={words.steps}>
            {answer.chain.map((step, index) => (
              <StepEntry key={`${step.revision} ${index}`} step={step} />
            ))}
          </ol>
        </section>
      ) : null}
      {root ? (
        <p class="why-root">
          <span class="faint">{words.root}:</span> <strong>{visible(root)}</strong>
        </p>
      ) : answer.origin ? (
        <p class="soft">{visible(withYou(answer.origin))}</p>
      ) : null}
      {answer.earlier.length > 0 ? (
        <section aria-label={words.earlier}>
          <h3>{words.earlier}</h3>
          <ol class="why-steps">
            {answer.earlier.map((step) => (
              <StepEntry key={step.revision} step={step} />
            ))}
          </ol>
        </section>
      ) : null}
      {[...answer.notes, ...hints].map((text) => (
        <p key={text} class="soft">
          {visible(withYou(text))}
        </p>
      ))}
      {undo ? (
        <Button writes onClick={() => setUndoing(Number(undo))}>
          {words.undo(Number(undo))}
        </Button>
      ) : null}
      {undoing !== null ? <UndoDialog revision={undoing} close={() => setUndoing(null)} done={again} /> : null}
    </div>
  );
}

/** Who or what is at the begin of the chain, if it is a person. */
function rootOf(answer: Answer): string | null {
  const last = answer.chain.at(-1);
  if (!last || last.kind === "hidden" || !answer.origin.startsWith("Origin:")) return null;
  return `${withYou(last.actor)} ${last.action} ${last.object}${last.address ? words.from(last.address) : ""}`;
}

function FindingDetail({ finding }: { finding: Finding }) {
  return (
    <>
      {finding.evidence.length > 0 ? (
        <ul class="why-evidence">
          {finding.evidence.map((line, index) => (
            <li key={index}>{visible(line)}</li>
          ))}
        </ul>
      ) : null}
      {finding.log && finding.log.lines.length > 0 ? (
        <figure class="why-log">
          <figcaption class="soft">{words.log(visible(finding.log.container), finding.log.previous)}</figcaption>
          <pre>{finding.log.lines.map((line) => visible(line)).join("\n")}</pre>
        </figure>
      ) : null}
      {finding.until ? <p class="soft">{visible(finding.until)}</p> : null}
      {finding.help.length > 0 ? (
        <p>
          <strong>{words.help}:</strong> {finding.help.map((one) => visible(one)).join("; ")}
        </p>
      ) : null}
    </>
  );
}

function StepEntry({ step }: { step: Step }) {
  const ref = step.kind === "hidden" ? null : stepRef(step);
  const time = step.at ? new Date(step.at) : null;
  return (
    <li class={step.inferred ? "why-step inferred" : "why-step"}>
      <p class="why-step-head">
        {step.kind === "hidden" ? (
          words.hidden
        ) : (
          <>
            {step.inferred ? <em>{words.probably} </em> : null}
            <strong>{visible(withYou(step.actor))}</strong> {step.action}{" "}
            {ref ? (
              <button type="button" class="link" onClick={() => select(ref)}>
                {visible(step.object)}
              </button>
            ) : (
              visible(step.object)
            )}
            {step.changes.length > 0 ? `: ${visible(step.changes.join(", "))}` : ""}
            {step.times > 1 ? ` (${words.times(step.times)})` : ""}
          </>
        )}
      </p>
      {step.reason ? <q class="why-reason">{visible(step.reason)}</q> : null}
      {step.inferred ? <p class="faint">{visible(withYou(step.inferred))}</p> : null}
      <p class="why-step-foot faint">
        <Ago time={time?.toISOString()} /> · {words.revision(step.revision)}
        {step.revision && at.value !== step.revision ? (
          <Button small look="plain" onClick={() => setMoment(step.revision, time)}>
            <Icon name="clock" />
            {words.moment}
          </Button>
        ) : null}
      </p>
      {step.via ? <p class="why-via soft">{visible(step.via)}</p> : null}
      {step.others.length > 0 ? <p class="faint">{words.also(step.others.length)}</p> : null}
    </li>
  );
}
