/** The editor: files of the workspace, and objects. */
import { useSignal } from "@preact/signals";
import { useEffect, useId, useMemo } from "preact/hooks";
import { logical } from "../../state/place";
import { Button } from "../../ui/button";
import { Confirm } from "../../ui/dialog";
import { Notice } from "../../ui/notice";
import { Tabs } from "../../ui/tabs";
import { visible } from "../../ui/text";
import { editor as words } from "../../words/editor";
import { closePanel, panelArgs } from "../state";
import { TextArea } from "./area";
import { ConflictDialog } from "./conflict";
import { Difference } from "./difference";
import { EditedText } from "./document";
import type { EditorArgs, SchemaField } from "./document";
import { FileList } from "./files";
import "./editor.css";

export default function Editor() {
  const args = panelArgs.value.editor as EditorArgs | undefined;
  if (!args?.path && !args?.object) return <FileList prefix={logical.value} />;
  return <Opened key={keyOf(args)} args={args} />;
}

/** Texts with changes that are not saved, whose panel was closed, by what they are. */
const kept = new Map<string, EditedText>();

function keyOf(args: EditorArgs): string {
  return JSON.stringify([args.prefix, args.path, args.object]);
}

function Opened({ args }: { args: EditorArgs }) {
  const edited = useMemo(() => {
    const found = kept.get(keyOf(args));
    kept.delete(keyOf(args));
    if (found) found.args.done = args.done ?? found.args.done;
    return found ?? new EditedText(args);
  }, []);
  useEffect(
    () => () => {
      if (edited.changed.peek() && !edited.discarded) kept.set(keyOf(args), edited);
      else edited.close();
    },
    [edited],
  );
  const mode = useSignal("edit");
  const asking = useSignal(false);
  const about = useSignal<{ field: string; about: SchemaField | null } | null>(null);
  const problems = useId();
  const leave = () => {
    edited.discarded = true;
    panelArgs.value = { ...panelArgs.value, editor: undefined };
    closePanel("editor");
  };
  const close = async () => {
    await edited.saving;
    if (edited.changed.peek()) asking.value = true;
    else leave();
  };
  if (!edited.loaded.value) return edited.error.value ? <Notice title={edited.error.value} small /> : null;
  const isObject = !!args.object;
  return (
    <div class="editor">
      <div class="editor-bar">
        <strong class="editor-name">
          {visible(edited.name)}
          {edited.changed.value ? <span class="editor-changed"> · {words.changed}</span> : null}
        </strong>
        <Tabs
          group="editor"
          label={words.modes}
          tabs={[
            { id: "edit", label: words.edit },
            { id: "diff", label: words.diff },
          ]}
          current={mode.value}
          choose={(id) => (mode.value = id)}
        />
        <Button small look="primary" writes={isObject} onClick={() => void edited.save()}>
          {isObject ? words.saveObject : words.saveFile}
        </Button>
        <Button small onClick={() => void close()}>
          {words.close}
        </Button>
        {isObject || args.done ? null : (
          <Button small look="plain" onClick={() => (panelArgs.value = { ...panelArgs.value, editor: undefined })}>
            {words.files}
          </Button>
        )}
      </div>
      {edited.error.value ? (
        <p class="editor-error" role="alert">
          {visible(edited.error.value)}
        </p>
      ) : null}
      <div class="editor-main" role="tabpanel" id="panel-editor" aria-labelledby={`tab-editor-${mode.value}`}>
        {mode.value === "edit" ? (
          <TextArea
            edited={edited}
            save={() => void edited.save()}
            close={() => void close()}
            describe={(found, field) => (about.value = { field, about: found })}
            problems={problems}
          />
        ) : (
          <Differences edited={edited} />
        )}
      </div>
      {about.value ? <Documentation {...about.value} close={() => (about.value = null)} /> : null}
      <Problems id={problems} edited={edited} />
      {asking.value ? (
        <Confirm title={words.discardTitle} action={words.discard} danger confirm={leave} close={() => (asking.value = false)}>
          <p>{words.discardText}</p>
        </Confirm>
      ) : null}
      {edited.meanwhile.value ? <ConflictDialog edited={edited} meanwhile={edited.meanwhile.value} /> : null}
    </div>
  );
}

function Problems({ id, edited }: { id: string; edited: EditedText }) {
  const found = edited.problems.value;
  const errors = found.filter((each) => each.is_error).length;
  const state = !edited.isManifest || !edited.text.value.trim() ? "" : !edited.checked.value ? words.notChecked : found.length ? words.count(errors, found.length - errors) : words.noProblems;
  const outcomes = edited.checked.value && !errors ? edited.objects.value : [];
  return (
    <div class="editor-problems" id={id}>
      <p class={errors ? "editor-state error" : "editor-state"}>
        {state} {outcomes.map((each) => words.outcome(each.kind, visible(each.name), each.outcome)).join(" ")}
      </p>
      {found.length ? (
        <ul aria-label={words.problems}>
          {found.map((each, index) => (
            <li key={index} class={each.is_error ? "error" : "warning"}>
              <button type="button" onClick={(event) => goTo(event.currentTarget, each.line, each.column)}>
                <span aria-hidden="true">{each.is_error ? "■" : "▲"}</span> {words.problem(each.line, visible(each.message))}
              </button>
            </li>
          ))}
        </ul>
      ) : null}
    </div>
  );
}

function goTo(from: HTMLElement, line: number, column: number): void {
  const field = from.closest(".editor")?.querySelector<HTMLTextAreaElement>(".editor-field");
  if (!field) return;
  const lines = field.value.split("\n");
  const at = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + Math.min(column - 1, lines[line - 1]?.length ?? 0);
  field.focus();
  field.setSelectionRange(at, at);
  field.scrollTop = Math.max((line - 5) * 20, 0);
}

function Differences({ edited }: { edited: EditedText }) {
  const { object } = edited.args;
  if (object || !edited.objects.value.length) {
    return (
      <div class="editor-diffs">
        <Difference title={words.diffOf(edited.name)} before={edited.stored.value} after={edited.text.value} />
      </div>
    );
  }
  return (
    <div class="editor-diffs">
      {edited.objects.value.map((each, index) => (
        <Difference key={index} title={words.diffOf(`${each.kind} ${visible(each.name)}`)} before={each.before} after={each.after || each.before} />
      ))}
    </div>
  );
}

function Documentation(props: { field: string; about: SchemaField | null; close(): void }) {
  const { about } = props;
  return (
    <section class="editor-documentation" aria-label={words.documentation} role="status">
      <p>
        <strong>{visible(props.field)}</strong> {about ? <span class="faint">{about.type}</span> : null}{" "}
        <Button small look="plain" onClick={props.close}>
          {words.close.replace(/ \(.*/, "")}
        </Button>
      </p>
      <p>{about ? visible(about.description) || words.noDocumentation : words.noDocumentation}</p>
      {about?.values.length ? <p>{about.values.map(visible).join(" · ")}</p> : null}
    </section>
  );
}
