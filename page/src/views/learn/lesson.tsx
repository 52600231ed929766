/** One lesson: its text with commands, tasks and questions, and the lesson's cluster beside it. */
import { useState } from "preact/hooks";
import { linkTo, route, setParam } from "../../router";
import { typeInTerminal } from "../../state/terminal";
import { logical } from "../../state/place";
import { wide } from "../../state/settings";
import { Button } from "../../ui/button";
import { Confirm } from "../../ui/dialog";
import { Icon } from "../../ui/icon";
import { Lazy } from "../../ui/lazy";
import { Failure, Loading } from "../../ui/notice";
import { visible } from "../../ui/text";
import { learn as words } from "../../words/learn";
import { views } from "../catalog";
import { CheckPart } from "./check";
import { Command } from "./command";
import { FaultButton, OperatorPart } from "./faults";
import { Blocks } from "./markdown";
import { PredictPart, QuizPart } from "./quiz";
import { current, enterCluster, goTo, say } from "./session";
import type { LessonState } from "./session";
import type { LessonTree, Part } from "./tree";

export function Lesson() {
  const state = current.value;
  if (state?.error) {
    return (
      <div class="learn-failure">
        <Failure error={state.error} feature={state.error.code === 403 ? words.feature : undefined} small={false} />
        <p>
          <Button onClick={() => goTo("")}>{words.all}</Button>
        </p>
      </div>
    );
  }
  if (!state?.lesson) return <Loading what={words.opening} />;
  return (
    <div class="learn-lesson">
      <article class="learn-text" tabIndex={-1}>
        <Head state={state} lesson={state.lesson} />
        {state.lost ? <p class="learn-lost">{words.lost}</p> : null}
        {state.cluster && logical.value !== state.cluster ? (
          <p class="learn-lost">
            {words.elsewhere}{" "}
            <Button small onClick={() => enterCluster(state.cluster)}>
              {words.goThere}
            </Button>
          </p>
        ) : null}
        <Parts key={state.id} lesson={state.lesson} />
        <Foot state={state} lesson={state.lesson} />
      </article>
      {wide.value ? <Side lesson={state.lesson} /> : null}
    </div>
  );
}

function Head({ state, lesson }: { state: LessonState; lesson: LessonTree }) {
  const [asking, setAsking] = useState(false);
  const checks = lesson.parts.filter((part) => part.type === "check");
  const met = checks.filter((part) => part.id in state.progress.checks).length;
  return (
    <header class="learn-head">
      <div class="learn-head-row">
        <Button small look="plain" onClick={() => goTo("")}>
          <Icon name="left" /> {words.all}
        </Button>
        <Button small look="plain" writes onClick={() => setAsking(true)}>
          {words.reset}
        </Button>
      </div>
      <h2>{visible(lesson.title)}</h2>
      <p class="faint">{words.number(lesson.number, lesson.minutes)}</p>
      <progress class="learn-bar" max={checks.length || 1} value={met} aria-label={words.progress(met, checks.length)} />
      <p class="faint">{words.progress(met, checks.length)}</p>
      {asking ? (
        <Confirm
          title={words.resetTitle}
          action={words.reset}
          close={() => setAsking(false)}
          confirm={() => {
            setAsking(false);
            say({ reset: true });
          }}
        >
          <p>{words.resetText}</p>
        </Confirm>
      ) : null}
    </header>
  );
}

function Parts({ lesson }: { lesson: LessonTree }) {
  let run = 0;
  let fault = 0;
  return (
    <>
      {lesson.parts.map((part, index) => {
        const numbers = { run, fault };
        if (part.type === "run" || (part.type === "predict" && "run" in part && part.run)) run += 1;
        if (part.type === "fault" || (part.type === "predict" && "faults" in part && part.faults.length > 0)) fault += 1;
        return <OnePart key={index} part={part} {...numbers} />;
      })}
    </>
  );
}

function OnePart({ part, run, fault }: { part: Part; run: number; fault: number }) {
  switch (part.type) {
    case "text":
      return <Blocks blocks={part.blocks} />;
    case "run":
      return (
        <div class="learn-run">
          {part.commands.map((command, index) => (
            <Command key={index} command={command} run={run} />
          ))}
          {part.fails ? <p class="faint">{words.fails}</p> : null}
        </div>
      );
    case "file":
      return (
        <figure class="learn-file">
          <figcaption>
            <span>{words.file(visible(part.name))}</span>
            <Button small look="plain" onClick={() => typeInTerminal(`nano ${part.name}`)}>
              <Icon name="edit" /> {words.edit}
            </Button>
          </figcaption>
          <pre class="learn-code" tabIndex={0}>
            {visible(part.text)}
          </pre>
        </figure>
      );
    case "check":
      return <CheckPart {...part} />;
    case "quiz":
      return <QuizPart quiz={part} />;
    case "predict":
      return "faults" in part ? <PredictPart predict={part} run={run} fault={fault} /> : null;
    case "reveal":
      return (
        <details class="learn-reveal">
          <summary>{visible(part.question)}</summary>
          <Blocks blocks={part.blocks} />
        </details>
      );
    case "hint":
      return (
        <details class="learn-reveal">
          <summary>{words.hintTitle}</summary>
          <Blocks blocks={part.blocks} />
        </details>
      );
    case "fault":
      return <FaultButton faults={part.faults} number={fault} />;
    case "operator":
      return <OperatorPart operator={part.operator} />;
    default:
      return (
        <p>
          <a class="button small" href={linkTo({ view: part.view })}>
            {words.show(words.sideViews[part.view] ?? part.view)}
          </a>
        </p>
      );
  }
}

function Foot({ state, lesson }: { state: LessonState; lesson: LessonTree }) {
  return (
    <footer class="learn-foot">
      {state.done ? (
        <div class="learn-done" role="status">
          <p>
            <Icon name="check" /> {state.next ? words.finished : words.finishedLast}
          </p>
          {state.next ? (
            <Button look="primary" onClick={() => goTo(state.next)}>
              {words.next} <Icon name="right" />
            </Button>
          ) : null}
        </div>
      ) : state.next ? (
        <Button onClick={() => goTo(state.next)}>
          {words.next} <Icon name="right" />
        </Button>
      ) : null}
      <details class="learn-reveal">
        <summary>{words.solution}</summary>
        <pre class="learn-code" tabIndex={0}>
          {solutionText(lesson).join("\n")}
        </pre>
      </details>
    </footer>
  );
}

/** The solution as a person would write it down. */
function solutionText(lesson: LessonTree): string[] {
  const runs = lesson.parts.flatMap((part) =>
    part.type === "run" ? [part.commands] : part.type === "predict" && "run" in part && part.run ? [[part.run]] : [],
  );
  const faults = lesson.parts.flatMap((part) =>
    (part.type === "fault" || part.type === "predict") && "faults" in part && part.faults.length > 0 ? [part.faults] : [],
  );
  const titles = new Map(lesson.parts.flatMap((part) => (part.type === "check" ? [[part.id, part.title] as const] : [])));
  return lesson.solution.flatMap((step) => {
    switch (step.kind) {
      case "type":
        return [visible(step.text)];
      case "run":
        return (runs.shift() ?? []).map(visible);
      case "fault":
        return [`# ${(step.text ? [step.text] : (faults.shift() ?? [])).map(words.fault).join(", ")}`];
      case "operator":
        return [`# ${step.text === "start" ? words.operatorStart : words.operatorStop}`];
      case "wait":
        return [`# ${words.solutionWait(visible(titles.get(step.text) ?? step.text))}`];
      default:
        return [];
    }
  });
}

/** A view of the lesson's cluster beside the text. */
function Side({ lesson }: { lesson: LessonTree }) {
  const wanted = route.value.params.side || lesson.show?.view || "chain";
  const shown = views.filter((view) => view.id in words.sideViews);
  const view = shown.find((one) => one.id === wanted) ?? shown[0];
  if (!view) return null;
  return (
    <section class="learn-side" aria-label={words.side}>
      <div class="learn-side-bar" role="toolbar" aria-label={words.side}>
        {shown.map((one) => (
          <Button key={one.id} small aria-pressed={one.id === view.id} onClick={() => setParam("side", one.id)}>
            {words.sideViews[one.id]}
          </Button>
        ))}
      </div>
      <div class="learn-side-view">
        <Lazy key={view.id} load={view.load} props={{}} />
      </div>
    </section>
  );
}
