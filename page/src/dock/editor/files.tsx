/** The files of the workspace, to open one or make a new one. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Button } from "../../ui/button";
import { visible } from "../../ui/text";
import { editor as words } from "../../words/editor";
import { openPanel } from "../state";
import { Questions } from "./document";

interface File {
  path: string;
  size: number;
}

export function FileList({ prefix }: { prefix: string }) {
  const files = useSignal<readonly File[] | null>(null);
  const name = useSignal("");
  useEffect(() => {
    const questions = new Questions(prefix);
    void questions.ask<{ files: File[] }>({ do: "files" }).then((answer) => (files.value = answer.error ? [] : answer.files));
    return () => questions.close();
  }, [prefix]);
  const open = (path: string) => openPanel("editor", { path: path.startsWith("/") ? path : `/home/user/${path}`, prefix });
  return (
    <div class="editor-files">
      <h3>{words.files}</h3>
      {files.value?.length === 0 ? <p class="faint">{words.noFiles}</p> : null}
      <ul>
        {(files.value ?? []).map((file) => (
          <li key={file.path}>
            <button type="button" class="link" onClick={() => open(file.path)}>
              {visible(file.path)}
            </button>{" "}
            <span class="faint">{words.fileSize(file.size)}</span>
          </li>
        ))}
      </ul>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (name.value.trim()) open(name.value.trim());
        }}
      >
        <label>
          {words.newFile} <input type="text" class="field" value={name.value} placeholder="web.yaml" onInput={(event) => (name.value = event.currentTarget.value)} />
        </label>
        <Button small type="submit">
          {words.open}
        </Button>
      </form>
    </div>
  );
}
