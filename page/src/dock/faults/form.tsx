/** The questions about one fault, and the confirmation. */
import { useEffect, useState } from "preact/hooks";
import { ask } from "../../link/hooks";
import { logical, namespace } from "../../state/place";
import { collectionPath } from "../../state/refs";
import { selected } from "../../state/selection";
import { Button } from "../../ui/button";
import { Dialog } from "../../ui/dialog";
import { visible } from "../../ui/text";
import { toast, toastError } from "../../ui/toast";
import { faults as words } from "../../words/faults";
import { shell } from "../../words/shell";
import type { FaultKind, FaultState } from "./model";

interface Named {
  metadata: { name: string };
  spec?: { containers?: { name: string; image?: string }[] };
}

const NUMBERS = ["seconds", "milliseconds", "percent", "code"];
const PODS = { group: "", version: "v1", resource: "pods" };
const NODES = { group: "", version: "v1", resource: "nodes" };
const MOST = 500;

async function list(kind: { group: string; version: string; resource: string }, where: string): Promise<Named[]> {
  const path = collectionPath(kind, where);
  return (await ask<{ items: Named[] }>("GET", path, { query: { limit: MOST }, prefix: logical.peek() })).items;
}

/** What can be chosen: nodes, Pods of the namespace with their containers, images. */
function useChoices(needed: ReadonlySet<string>, where: string): { nodes: string[]; pods: Named[] } {
  const [choices, setChoices] = useState<{ nodes: string[]; pods: Named[] }>({ nodes: [], pods: [] });
  const wantsPods = needed.has("pod") || needed.has("image");
  useEffect(() => {
    let current = true;
    const nodes = needed.has("node") ? list(NODES, "") : Promise.resolve([]);
    const pods = wantsPods ? list(PODS, where) : Promise.resolve([]);
    Promise.all([nodes, pods]).then(
      ([foundNodes, foundPods]) => current && setChoices({ nodes: foundNodes.map((one) => one.metadata.name), pods: foundPods }),
      toastError,
    );
    return () => void (current = false);
  }, [where, wantsPods, needed.has("node")]);
  return choices;
}

function initial(fault: FaultKind): Record<string, string> {
  const values: Record<string, string> = {};
  for (const [name, value] of Object.entries(fault.options)) values[name] = String(value);
  const target = selected.peek();
  if (fault.fields.includes("namespace")) values.namespace = target?.namespace || namespace.peek() || "default";
  if (target?.resource === "nodes" && fault.fields.includes("node")) values.node = target.name;
  if (target?.resource === "pods" && fault.fields.includes("pod")) values.pod = target.name;
  return values;
}

export function FaultForm({ fault, state, close }: { fault: FaultKind; state: FaultState; close(): void }) {
  const [values, setValues] = useState(() => initial(fault));
  const [working, setWorking] = useState(false);
  const fields = [...fault.fields, ...Object.keys(fault.options)];
  const choices = useChoices(new Set(fields), values.namespace ?? namespace.peek());
  const set = (name: string, value: string) => setValues((before) => ({ ...before, [name]: value }));
  const missing = fault.fields.find((name) => !values[name]);
  const inject = async () => {
    setWorking(true);
    const body: Record<string, unknown> = { fault: fault.id };
    for (const name of fields) {
      const value = values[name] ?? "";
      if (value !== "") body[name] = NUMBERS.includes(name) ? Number(value) : value;
    }
    try {
      const found = await ask<{ injected: { text: string } }>("POST", "/setpoint/v1/faults", { body, prefix: logical.peek() });
      toast(words.done(visible(found.injected.text)));
      close();
    } catch (error) {
      setWorking(false);
      toastError(error);
    }
  };
  return (
    <Dialog
      title={fault.title}
      close={close}
      footer={
        <>
          <Button onClick={close}>{shell.cancel}</Button>
          <Button
            writes
            look="danger primary"
            disabled={missing ? words.missing(words.fields[missing] ?? missing) : working}
            onClick={() => void inject()}
          >
            {words.inject}
          </Button>
        </>
      }
    >
      <form
        class="faults-form"
        onSubmit={(event) => {
          event.preventDefault();
          if (!missing && !working) void inject();
        }}
      >
        <p>
          {fault.about} {words.ends[fault.ends] ?? ""}
        </p>
        {state.realNodes > 0 && !fault.simulated ? <p class="faults-real">{words.confirmReal}</p> : null}
        {fields.map((name) => (
          <Field key={name} name={name} value={values[name] ?? ""} set={(value) => set(name, value)} choices={choices} pod={values.pod ?? ""} components={state.components} />
        ))}
      </form>
    </Dialog>
  );
}

function Field(props: {
  name: string;
  value: string;
  set(value: string): void;
  choices: { nodes: string[]; pods: Named[] };
  pod: string;
  components: string[];
}) {
  const { name, value, set, choices } = props;
  const label = words.fields[name] ?? name;
  const id = `fault-${name}`;
  if (NUMBERS.includes(name)) {
    return (
      <div class="faults-field">
        <label for={id}>{label}</label>
        <input id={id} class="field" type="number" value={value} min={name === "code" ? 0 : 1} onInput={(event) => set(event.currentTarget.value)} />
      </div>
    );
  }
  if (name === "namespace" || name === "image") {
    const images = [...new Set(choices.pods.flatMap((pod) => (pod.spec?.containers ?? []).map((one) => one.image ?? "")))].filter(Boolean);
    return (
      <div class="faults-field">
        <label for={id}>{label}</label>
        <input id={id} class="field" value={value} autocomplete="off" list={name === "image" ? "fault-images" : undefined} onInput={(event) => set(event.currentTarget.value)} />
        {name === "image" ? (
          <datalist id="fault-images">
            {images.map((image) => (
              <option key={image} value={image} />
            ))}
          </datalist>
        ) : null}
      </div>
    );
  }
  const containers = choices.pods.find((pod) => pod.metadata.name === props.pod)?.spec?.containers ?? [];
  const options =
    name === "node"
      ? choices.nodes
      : name === "pod"
        ? choices.pods.map((pod) => pod.metadata.name)
        : name === "component"
          ? props.components
          : containers.map((one) => one.name);
  const shown = value && !options.includes(value) ? [value, ...options] : options;
  return (
    <div class="faults-field">
      <label for={id}>{label}</label>
      <select id={id} class="field" value={value} onChange={(event) => set(event.currentTarget.value)}>
        <option value="">{name === "container" ? words.all : words.choose}</option>
        {shown.map((one) => (
          <option key={one} value={one}>
            {name === "component" ? (words.components[one] ?? one) : visible(one)}
          </option>
        ))}
      </select>
    </div>
  );
}
