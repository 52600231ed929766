/** Explains that others have changed the object while it was edited, and asks what to do. */
import { Button } from "../../ui/button";
import { Dialog } from "../../ui/dialog";
import { visible } from "../../ui/text";
import { editor as words } from "../../words/editor";
import { shell } from "../../words/shell";
import type { EditedText, Meanwhile } from "./document";

export function ConflictDialog({ edited, meanwhile }: { edited: EditedText; meanwhile: readonly Meanwhile[] }) {
  const close = () => (edited.meanwhile.value = null);
  return (
    <Dialog
      title={words.conflictTitle}
      close={close}
      footer={
        <>
          <Button onClick={close}>{shell.cancel}</Button>
          <Button
            title={words.takeTheirsHint}
            onClick={() => {
              close();
              void edited.load();
            }}
          >
            {words.takeTheirs}
          </Button>
          <Button look="danger primary" writes onClick={() => void edited.save(true)}>
            {words.takeOver}
          </Button>
        </>
      }
    >
      <p>{words.conflictText(visible(edited.name))}</p>
      <table class="editor-conflict">
        <thead>
          <tr>
            <th scope="col">{words.conflictField}</th>
            <th scope="col">{words.conflictBefore}</th>
            <th scope="col">{words.conflictNow}</th>
            <th scope="col">{words.conflictWho}</th>
          </tr>
        </thead>
        <tbody>
          {meanwhile.map((each) => (
            <tr key={each.field}>
              <th scope="row">
                {visible(each.field)}
                {each.also_mine ? <span class="editor-mine"> {words.conflictMine}</span> : null}
              </th>
              <td>{visible(each.before)}</td>
              <td>{visible(each.now)}</td>
              <td>{each.managers.map(visible).join(", ") || words.nobody}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Dialog>
  );
}
