/** Questions: choose one, choose some, put in order, or type a word; and predictions, which are compared with what happens. */
import { useState } from "preact/hooks";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { visible } from "../../ui/text";
import { learn as words } from "../../words/learn";
import { Command } from "./command";
import { FaultButton } from "./faults";
import { Blocks, Inlines } from "./markdown";
import { current, say } from "./session";
import type { Predict, Quiz } from "./tree";
import { plain } from "./tree";

type Answer = number[] | string;

function initial(quiz: Quiz): Answer {
  return quiz.kind === "text" ? "" : quiz.kind === "order" ? quiz.options.map((_, index) => index) : [];
}

export function QuizPart({ quiz }: { quiz: Quiz }) {
  const state = current.value;
  const [again, setAgain] = useState(false);
  const [revealed, setRevealed] = useState(false);
  const answered = state?.progress.answers[quiz.id];
  const right = state?.progress.right[quiz.id] ?? false;
  const shown = answered !== undefined && !again;
  return (
    <div class="learn-quiz" role="group" aria-label={words.question}>
      <Form
        quiz={quiz}
        locked={shown ? answered : null}
        button={words.answer}
        send={(answer) => {
          say({ answer: quiz.id, value: answer });
          setAgain(false);
        }}
      />
      {shown ? (
        <div class={right ? "learn-result settled" : "learn-result waiting"} role="status">
          <p>
            <Icon name={right ? "check" : "info"} /> <strong>{right ? words.right : words.wrong}</strong>
          </p>
          {right || revealed ? <Blocks blocks={quiz.because} /> : null}
        </div>
      ) : null}
      {revealed && !(shown && right) ? <RightAnswer quiz={quiz} /> : null}
      <div class="learn-actions">
        {shown && !right ? <Button small onClick={() => setAgain(true)}>{words.tryAgain}</Button> : null}
        {(!shown || !right) && !revealed ? (
          <Button small look="plain" onClick={() => setRevealed(true)}>
            {words.reveal}
          </Button>
        ) : null}
      </div>
    </div>
  );
}

function RightAnswer({ quiz }: { quiz: Quiz }) {
  return (
    <div class="learn-result">
      <p>
        <strong>{words.rightAnswer}</strong>
      </p>
      {quiz.kind === "text" ? null : (
        <ol class={quiz.kind === "order" ? "" : "learn-plain"}>
          {quiz.right.map((at) => (
            <li key={at}>
              <Inlines inline={quiz.options[at] ?? []} />
            </li>
          ))}
        </ol>
      )}
      <Blocks blocks={quiz.because} />
    </div>
  );
}

export function PredictPart({ predict, run, fault }: { predict: Predict; run: number; fault: number }) {
  const state = current.value;
  const answered = state?.progress.answers[predict.id];
  const visibleNow = state?.outcomes.includes(predict.id) ?? false;
  const right = state?.progress.right[predict.id] ?? false;
  return (
    <div class="learn-quiz learn-predict" role="group" aria-label={words.predict}>
      <p class="learn-kicker">{words.predict}</p>
      <Form
        quiz={predict}
        locked={answered ?? null}
        button={words.predicted}
        send={(answer) => say({ answer: predict.id, value: answer })}
      />
      {answered === undefined ? null : (
        <>
          <p>{words.seeIt}</p>
          {predict.run ? <Command command={predict.run} run={run} /> : <FaultButton faults={predict.faults} number={fault} />}
          {visibleNow ? (
            <div class={right ? "learn-result settled" : "learn-result waiting"} role="status">
              <p>
                <Icon name={right ? "check" : "info"} /> <strong>{right ? words.compareRight : words.compareWrong}</strong>
              </p>
              <Blocks blocks={predict.because} />
            </div>
          ) : (
            <p class="faint">{words.waitingForOutcome}</p>
          )}
        </>
      )}
    </div>
  );
}

interface FormProps {
  quiz: Quiz;
  /** The answer that was given; null while one can be given. */
  locked: Answer | null;
  button: string;
  send(answer: Answer): void;
}

function Form({ quiz, locked, button, send }: FormProps) {
  const [chosen, setChosen] = useState<Answer>(() => initial(quiz));
  const answer = locked ?? chosen;
  const name = `learn-${quiz.id}`;
  const empty = quiz.kind === "text" ? String(chosen).trim() === "" : chosen.length === 0;
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!empty && locked === null) send(chosen);
      }}
    >
      <fieldset>
        <legend>
          <Blocks blocks={quiz.question} />
        </legend>
        {quiz.kind === "many" ? <p class="faint">{words.chooseMany}</p> : null}
        {quiz.kind === "order" ? <p class="faint">{words.chooseOrder}</p> : null}
        {quiz.kind === "text" ? (
          <input
            class="field learn-word"
            aria-label={words.yourAnswer}
            autocomplete="off"
            spellcheck={false}
            maxLength={200}
            readOnly={locked !== null}
            value={String(answer)}
            onInput={(event) => setChosen(event.currentTarget.value)}
          />
        ) : quiz.kind === "order" ? (
          <Steps quiz={quiz} order={answer as number[]} move={locked === null ? setChosen : null} />
        ) : (
          quiz.options.map((option, at) => (
            <label key={at} class="learn-option">
              <input
                type={quiz.kind === "one" ? "radio" : "checkbox"}
                name={name}
                disabled={locked !== null}
                checked={(answer as number[]).includes(at)}
                onChange={(event) => {
                  const before = chosen as number[];
                  const rest = quiz.kind === "one" ? [] : before.filter((one) => one !== at);
                  setChosen(event.currentTarget.checked ? [...rest, at] : rest);
                }}
              />
              <span>
                <Inlines inline={option} />
              </span>
            </label>
          ))
        )}
      </fieldset>
      {locked === null ? (
        <div class="learn-actions">
          <Button type="submit" look="primary" disabled={empty ? words.yourAnswer : null}>
            {button}
          </Button>
        </div>
      ) : null}
    </form>
  );
}

function Steps({ quiz, order, move }: { quiz: Quiz; order: number[]; move: ((order: number[]) => void) | null }) {
  const swap = (a: number, b: number) => {
    const next = [...order];
    [next[a], next[b]] = [next[b]!, next[a]!];
    move?.(next);
  };
  return (
    <ol class="learn-steps">
      {order.map((at, index) => {
        const text = visible(plain(quiz.options[at] ?? []));
        return (
          <li key={at}>
            <span>
              <Inlines inline={quiz.options[at] ?? []} />
            </span>
            {move ? (
              <span class="learn-moves">
                <Button small look="plain" aria-label={words.up(text)} disabled={index === 0} onClick={() => swap(index, index - 1)}>
                  <Icon name="up" />
                </Button>
                <Button
                  small
                  look="plain"
                  aria-label={words.down(text)}
                  disabled={index === order.length - 1}
                  onClick={() => swap(index, index + 1)}
                >
                  <Icon name="down" />
                </Button>
              </span>
            ) : null}
          </li>
        );
      })}
    </ol>
  );
}
