/** The help dialog: the keys that are bound now, and the settings of this browser. */
import { signal } from "@preact/signals";
import { bindings, singleKeys } from "../a11y/keyboard";
import type { Binding } from "../a11y/keyboard";
import { hello } from "../link/link";
import { motionSetting } from "../state/settings";
import { leave } from "../state/session";
import { Button } from "../ui/button";
import { Dialog } from "../ui/dialog";
import { seeAs } from "../words/see-as";
import { shell } from "../words/shell";
import { seeAsOffered, seeAsOpen } from "./see-as-state";

export const helpOpen = signal(false);

export function Help() {
  if (!helpOpen.value) return null;
  const groups = new Map<string, Binding[]>();
  for (const binding of bindings.value) {
    if (!(binding.applies?.() ?? true)) continue;
    const name = binding.group ?? shell.keys.here;
    const group = groups.get(name) ?? [];
    if (!group.some((one) => one.keys === binding.keys)) group.push(binding);
    groups.set(name, group);
  }
  return (
    <Dialog
      title={shell.keys.title}
      close={() => (helpOpen.value = false)}
      footer={
        <>
          {seeAsOffered.value ? (
            <Button
              onClick={() => {
                helpOpen.value = false;
                seeAsOpen.value = true;
              }}
            >
              {seeAs.open}
            </Button>
          ) : null}
          <Button
            onClick={() => {
              helpOpen.value = false;
              void leave();
            }}
          >
            {shell.leave}
          </Button>
        </>
      }
    >
      <div class="help-groups">
        {[...groups].map(([name, members]) => (
          <section key={name}>
            <h3>{name}</h3>
            <dl class="key-list">
              {members.map((one) => (
                <div key={one.keys}>
                  <dt>
                    <Keys keys={one.keys} />
                  </dt>
                  <dd>{one.label}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <section class="help-settings">
        <label class="check">
          <input type="checkbox" checked={singleKeys.value} onChange={(event) => (singleKeys.value = event.currentTarget.checked)} />
          <span>{shell.keys.singleKeys}</span>
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={motionSetting.value === "less"}
            onChange={(event) => (motionSetting.value = event.currentTarget.checked ? "less" : "auto")}
          />
          <span>{shell.keys.lessMotion}</span>
        </label>
        <p class="soft">{shell.keys.about}</p>
        {hello.value ? (
          <p class="soft">
            {shell.product} {hello.value.version}. {shell.user(hello.value.user)}.
          </p>
        ) : null}
      </section>
    </Dialog>
  );
}

function Keys({ keys }: { keys: string }) {
  return (
    <>
      {keys.split(" ").map((chord, index) => (
        <span key={index}>
          {index > 0 ? <span class="visually-hidden"> {shell.keys.then} </span> : null}
          {chord.split("+").map((key, part) => (
            <kbd key={part}>{key || "+"}</kbd>
          ))}{" "}
        </span>
      ))}
    </>
  );
}
