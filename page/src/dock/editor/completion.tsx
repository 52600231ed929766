/** The list of fields or values that fit at the cursor. */
import { useEffect, useRef } from "preact/hooks";
import { editor as words } from "../../words/editor";
import type { SchemaField } from "./document";

export const LINE_HEIGHT = 20;
const LIST_HEIGHT = 120;

export interface Choice {
  text: string;
  about: SchemaField | null;
}

export function Completion(props: {
  id: string;
  choices: readonly Choice[];
  at: number;
  top: number;
  column: number;
  left: number;
  /** The height of the text field: without space below the line, the list is above it. */
  height: number;
  take(index: number): void;
}) {
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [props.at, props.choices]);
  const above = props.top > props.height - LIST_HEIGHT && props.top > props.height / 2;
  return (
    <ul
      class="editor-completion"
      role="listbox"
      id={props.id}
      aria-label={words.documentation}
      ref={list}
      style={{ ...(above ? { bottom: `${props.height - props.top + LINE_HEIGHT}px` } : { top: `${props.top}px` }), left: `calc(${props.column}ch - ${props.left}px)` }}
    >
      {props.choices.map((choice, index) => (
        <li
          key={choice.text}
          role="option"
          id={`${props.id}-${index}`}
          aria-selected={index === props.at}
          onMouseDown={(event) => {
            event.preventDefault();
            props.take(index);
          }}
        >
          <span class="editor-choice">{choice.text}</span>
          {choice.about ? (
            <span class="faint">
              {choice.about.type}
              {choice.about.required ? ` · ${words.required}` : ""}
            </span>
          ) : null}
        </li>
      ))}
    </ul>
  );
}
