/** Delete objects after a confirmation. */
import { useState } from "preact/hooks";
import { ask } from "../link/hooks";
import { pluralName } from "../state/kinds";
import { objectPath, shortName } from "../state/refs";
import type { ObjectRef } from "../state/refs";
import { objects as words } from "../words/objects";
import { Confirm } from "./dialog";
import { visible } from "./text";
import { toast } from "./toast";

const LISTED = 8;

/** The question. `done` is called with the references that the server accepted; they may still be leaving. */
export function DeleteObjects(props: { refs: readonly ObjectRef[]; close(): void; done?(deleted: ObjectRef[]): void }) {
  const { refs } = props;
  const [working, setWorking] = useState(false);
  const first = refs[0];
  if (!first) return null;
  const confirm = async () => {
    if (working) return;
    setWorking(true);
    const deleted = await deleteAll(refs);
    props.close();
    props.done?.(deleted);
  };
  const kind = refs.length === 1 ? first.kind : pluralName(first);
  return (
    <Confirm title={words.deleteTitle(refs.length, kind)} action={words.delete} danger confirm={() => void confirm()} close={props.close}>
      <ul class="delete-names">
        {refs.slice(0, LISTED).map((ref) => (
          <li key={`${ref.namespace}/${ref.name}`}>
            <strong>{visible(ref.name)}</strong> <span class="faint">{ref.namespace}</span>
          </li>
        ))}
        {refs.length > LISTED ? <li class="soft">{words.deleteMore(refs.length - LISTED)}</li> : null}
      </ul>
      <p class="soft">{refs.length === 1 ? words.deleteOwned : words.deleteOwnedMany}</p>
    </Confirm>
  );
}

async function deleteAll(refs: readonly ObjectRef[]): Promise<ObjectRef[]> {
  const deleted: ObjectRef[] = [];
  const body = { kind: "DeleteOptions", apiVersion: "v1", propagationPolicy: "Background" };
  await Promise.all(
    refs.map((ref) =>
      ask("DELETE", objectPath(ref), { body }).then(
        () => deleted.push(ref),
        (error: unknown) => {
          const reason = error instanceof Error ? error.message : String(error);
          toast(words.deleteFailed(visible(ref.name), reason), { error: true });
        },
      ),
    ),
  );
  if (deleted.length === 1) toast(words.deleted(visible(shortName(deleted[0]!))));
  else if (deleted.length > 1) toast(words.deletedMany(deleted.length));
  return deleted;
}
