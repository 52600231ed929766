/** The text field with line numbers, colours and marks of problems. Only the lines in sight are drawn behind it. */
import { useSignal } from "@preact/signals";
import { useEffect, useId, useLayoutEffect, useRef } from "preact/hooks";
import type { TargetedKeyboardEvent } from "preact";
import { announce } from "../../a11y/live";
import { visible } from "../../ui/text";
import { YamlLine } from "../../ui/yaml-highlight";
import { editor as words } from "../../words/editor";
import { Completion, LINE_HEIGHT } from "./completion";
import type { Choice } from "./completion";
import { EditedText } from "./document";
import type { SchemaField } from "./document";

const INDENT = "  ";

interface Choices {
  choices: readonly Choice[];
  typed: string;
  line: number;
  column: number;
}

export function TextArea(props: { edited: EditedText; save(): void; close(): void; describe(about: SchemaField | null, field: string): void; problems: string }) {
  const { edited } = props;
  const field = useRef<HTMLTextAreaElement>(null);
  const top = useSignal(0);
  const left = useSignal(0);
  const height = useSignal(400);
  const choices = useSignal<Choices | null>(null);
  const at = useSignal(0);
  const leaving = useRef(false);
  const list = useId();
  const text = edited.text.value;

  useLayoutEffect(() => {
    const element = field.current;
    if (!element) return;
    element.focus();
    element.setSelectionRange(0, 0);
    const observer = new ResizeObserver(() => (height.value = element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, [edited]);

  // The text is changed by typing, and from outside when it is loaded anew. More may be typed since this was rendered.
  useEffect(() => {
    const latest = edited.text.peek();
    if (field.current && field.current.value !== latest) field.current.value = latest;
  }, [text]);

  const lines = text.split("\n");
  const first = Math.max(Math.floor(top.value / LINE_HEIGHT) - 2, 0);
  const last = Math.min(Math.ceil((top.value + height.value) / LINE_HEIGHT) + 2, lines.length);
  const problems = new Map<number, boolean>();
  for (const each of edited.problems.value) problems.set(each.line, (problems.get(each.line) ?? false) || each.is_error);
  const digits = Math.max(String(lines.length).length, 2);

  const place = (): { line: number; column: number } => {
    const before = (field.current?.value ?? "").slice(0, field.current?.selectionStart ?? 0);
    return { line: before.split("\n").length, column: before.length - before.lastIndexOf("\n") };
  };

  /** Insert a text so that it can be undone with Ctrl-Z. */
  const insert = (added: string) => {
    const element = field.current;
    if (!element) return;
    if (!document.execCommand("insertText", false, added)) {
      element.setRangeText(added, element.selectionStart, element.selectionEnd, "end");
      edited.type(element.value);
    }
  };

  const complete = async () => {
    const { line, column } = place();
    const found = await edited.questions.ask<{ fields: SchemaField[]; typed: string; values?: string[] }>({ do: "fields", text: edited.text.peek(), line, column });
    const typed = found.typed ?? "";
    const all: Choice[] = [
      ...(found.fields ?? []).map((each) => ({ text: each.name, about: each })),
      ...(found.values ?? []).map((each) => ({ text: each, about: null })),
    ];
    const fitting = all.filter((each) => each.text.toLowerCase().startsWith(typed.toLowerCase()));
    at.value = 0;
    choices.value = fitting.length ? { choices: fitting, typed, line, column } : null;
    announce(fitting.length ? words.completions(fitting.length) : words.noCompletions);
  };

  const accept = () => {
    const found = choices.value;
    const choice = found?.choices[at.value];
    choices.value = null;
    const element = field.current;
    if (!found || !choice || !element) return;
    element.setSelectionRange(element.selectionStart - found.typed.length, element.selectionStart);
    insert(choice.text + suffix(choice, element.value.slice(element.selectionEnd)));
  };

  const indent = (event: KeyboardEvent) => {
    const element = field.current;
    if (!element) return;
    const { selectionStart: start, selectionEnd: end, value } = element;
    const from = value.lastIndexOf("\n", start - 1) + 1;
    if (!event.shiftKey && start === end) return insert(INDENT);
    const block = value.slice(from, end);
    const moved = event.shiftKey ? block.replace(/^ {1,2}/gm, "") : block.replace(/^(?=.)/gm, INDENT);
    element.setSelectionRange(from, end);
    insert(moved);
    element.setSelectionRange(from, from + moved.length);
  };

  const newLine = () => {
    const before = (field.current?.value ?? "").slice(0, field.current?.selectionStart ?? 0);
    const line = before.slice(before.lastIndexOf("\n") + 1);
    const blanks = /^ */.exec(line)?.[0] ?? "";
    const deeper = /:\s*$/.test(line) && line.trim() !== "" ? INDENT : "";
    const item = /^ *- /.test(line) && !deeper ? INDENT : /^ *- /.test(line) ? INDENT : "";
    insert(`\n${blanks}${item}${deeper}`);
  };

  const press = (event: TargetedKeyboardEvent<HTMLTextAreaElement>) => {
    const control = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    const done = () => {
      event.preventDefault();
      event.stopPropagation();
    };
    const found = choices.value;
    if (found && !control) {
      if (key === "arrowdown" || key === "arrowup") {
        const step = key === "arrowdown" ? 1 : -1;
        at.value = (at.value + step + found.choices.length) % found.choices.length;
        return done();
      }
      if (key === "enter" || key === "tab") {
        accept();
        return done();
      }
      if (key === "escape") {
        choices.value = null;
        return done();
      }
    }
    const leave = leaving.current;
    if (key !== "shift") leaving.current = false;
    if (control && (key === "s" || key === "o")) {
      props.save();
      return done();
    }
    // With a selection, Ctrl-X cuts, as everywhere.
    if (control && key === "x" && event.currentTarget.selectionStart === event.currentTarget.selectionEnd) {
      props.close();
      return done();
    }
    if (control && key === " ") {
      void complete();
      return done();
    }
    if (control && key === "d") {
      const { line, column } = place();
      void edited.questions
        .ask<{ field: string; about: SchemaField | null }>({ do: "describe", text: edited.text.peek(), line, column })
        .then((answer) => props.describe(answer.about ?? null, answer.field ?? ""));
      return done();
    }
    if (key === "tab" && !control && !event.altKey && !leave) {
      indent(event);
      return done();
    }
    if (key === "enter" && !control && !event.shiftKey) {
      newLine();
      return done();
    }
    if (key === "escape") {
      // Tab leaves the field after Escape, so that the keyboard is not trapped.
      leaving.current = true;
      event.stopPropagation();
    }
  };

  return (
    <div class="editor-area">
      <div class="editor-gutter" aria-hidden="true" style={{ width: `calc(${digits}ch + 2rem)` }}>
        <div style={{ transform: `translateY(${first * LINE_HEIGHT - top.value}px)` }}>
          {lines.slice(first, last).map((_, index) => {
            const number = first + index + 1;
            const problem = problems.get(number);
            return (
              <div key={number} class={problem === undefined ? "editor-number" : problem ? "editor-number error" : "editor-number warning"}>
                <span class="editor-mark">{problem === undefined ? "" : problem ? "■" : "▲"}</span>
                {number}
              </div>
            );
          })}
        </div>
      </div>
      <div class="editor-text">
        <pre class="editor-backdrop" aria-hidden="true">
          <div style={{ transform: `translate(${-left.value}px, ${first * LINE_HEIGHT - top.value}px)` }}>
            {lines.slice(first, last).map((line, index) => (
              <div key={first + index} class={problems.get(first + index + 1) ? "editor-line error" : "editor-line"}>
                {line === "" ? " " : <YamlLine line={line} />}
              </div>
            ))}
          </div>
        </pre>
        <textarea
          ref={field}
          class="editor-field"
          spellcheck={false}
          autocomplete="off"
          autocapitalize="off"
          wrap="off"
          aria-label={words.label(visible(edited.name))}
          aria-describedby={props.problems}
          aria-invalid={edited.problems.value.some((each) => each.is_error)}
          aria-controls={choices.value ? list : undefined}
          aria-activedescendant={choices.value ? `${list}-${at.value}` : undefined}
          onInput={(event) => {
            choices.value = null;
            edited.type(event.currentTarget.value);
          }}
          onScroll={(event) => {
            top.value = event.currentTarget.scrollTop;
            left.value = event.currentTarget.scrollLeft;
          }}
          onKeyDown={press}
          onBlur={() => (choices.value = null)}
        />
        {choices.value ? (
          <Completion
            id={list}
            choices={choices.value.choices}
            at={at.value}
            top={choices.value.line * LINE_HEIGHT - top.value}
            column={choices.value.column - 1 - choices.value.typed.length}
            left={left.value}
            height={height.value}
            take={(index) => {
              at.value = index;
              accept();
            }}
          />
        ) : null}
      </div>
    </div>
  );
}

/** What follows a completed key: a value in the line, or fields of its own. */
function suffix(choice: Choice, rest: string): string {
  if (!choice.about || /^\s*:/.test(rest)) return "";
  return choice.about.has_fields || choice.about.is_list || choice.about.type.startsWith("map[") ? ":" : ": ";
}
