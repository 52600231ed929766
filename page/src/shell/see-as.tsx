/** The dialog in which one chooses another user, with whose rights the page then reads and writes. */
import { useEffect, useState } from "preact/hooks";
import { ask } from "../link/hooks";
import { hello } from "../link/link";
import { isName, seeAs, seenAs } from "../state/impersonation";
import { Button } from "../ui/button";
import { Dialog } from "../ui/dialog";
import { visible } from "../ui/text";
import { seeAs as words } from "../words/see-as";
import { shell } from "../words/shell";
import { seeAsOpen } from "./see-as-state";

interface Subject {
  kind?: string;
  name?: string;
}

interface Listed {
  items?: { metadata?: { name?: string; namespace?: string }; subjects?: Subject[] }[];
}

const MOST = 500;
const RBAC = "/apis/rbac.authorization.k8s.io/v1";

/** The users, service accounts and groups that the server knows of; what may not be listed is left out. */
async function known(): Promise<{ users: string[]; groups: string[] }> {
  const list = (path: string) => ask<Listed>("GET", path, { query: { limit: MOST } }).catch((): Listed => ({}));
  const [accounts, ...bindings] = await Promise.all([
    list("/api/v1/serviceaccounts"),
    list(`${RBAC}/rolebindings`),
    list(`${RBAC}/clusterrolebindings`),
  ]);
  const subjects = bindings.flatMap((found) => found.items ?? []).flatMap((one) => one.subjects ?? []);
  const named = (kind: string) => subjects.filter((one) => one.kind === kind).map((one) => one.name ?? "");
  const serviceAccounts = (accounts?.items ?? []).map(
    (one) => `system:serviceaccount:${one.metadata?.namespace ?? ""}:${one.metadata?.name ?? ""}`,
  );
  const sorted = (names: string[]) => [...new Set(names)].filter(isName).sort().slice(0, MOST);
  return { users: sorted([...named("User"), ...serviceAccounts]), groups: sorted(named("Group")) };
}

export default function SeeAs() {
  const [user, setUser] = useState(seenAs?.user ?? "");
  const [groups, setGroups] = useState(seenAs?.groups.join(", ") ?? "");
  const [choices, setChoices] = useState<{ users: string[]; groups: string[] }>({ users: [], groups: [] });
  const [refused, setRefused] = useState(false);
  useEffect(() => void known().then(setChoices), []);
  const close = () => (seeAsOpen.value = false);
  const begin = (event: Event) => {
    event.preventDefault();
    if (!user.trim()) return;
    const named = groups
      .split(",")
      .map((one) => one.trim())
      .filter(Boolean);
    setRefused(!seeAs({ user: user.trim(), groups: named }));
  };
  return (
    <Dialog
      title={words.title}
      close={close}
      footer={
        <>
          <Button onClick={close}>{shell.cancel}</Button>
          {seenAs ? <Button onClick={() => seeAs(null)}>{words.end}</Button> : null}
          <Button look="primary" type="submit" form="see-as-form" disabled={user.trim() ? null : words.missing}>
            {words.begin}
          </Button>
        </>
      }
    >
      <form id="see-as-form" class="see-as-form" onSubmit={begin}>
        <p class="soft">{visible(words.about(hello.value?.user ?? ""))}</p>
        <label for="see-as-user">{words.user}</label>
        <input id="see-as-user" class="field" value={user} list="see-as-users" autocomplete="off" autoFocus onInput={(event) => setUser(event.currentTarget.value)} />
        <label for="see-as-groups">{words.groups}</label>
        <input
          id="see-as-groups"
          class="field"
          value={groups}
          list="see-as-group-names"
          autocomplete="off"
          aria-describedby="see-as-hint"
          onInput={(event) => setGroups(event.currentTarget.value)}
        />
        <p id="see-as-hint" class="faint">
          {words.groupsHint}
        </p>
        <datalist id="see-as-users">
          {choices.users.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
        <datalist id="see-as-group-names">
          {choices.groups.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
        {refused ? <p role="alert">{words.refused}</p> : null}
      </form>
    </Dialog>
  );
}
