/** Actions on an object: scale, restart, pause, suspend, cordon, run. Each is an ordinary request of the user. */
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { ask } from "../../link/hooks";
import { collectionPath, objectPath, shortName } from "../../state/refs";
import type { ObjectRef } from "../../state/refs";
import { Button } from "../../ui/button";
import { Confirm } from "../../ui/dialog";
import { Icon } from "../../ui/icon";
import { visible } from "../../ui/text";
import { toast, toastError } from "../../ui/toast";
import { actions as words } from "../../words/loop";
import "./actions.css";

const MERGE = "application/merge-patch+json";
const STRATEGIC = "application/strategic-merge-patch+json";

interface Obj {
  metadata?: { uid?: string; name?: string };
  spec?: Record<string, unknown>;
}

interface Action {
  id: string;
  label: string;
  run(): void;
}

function kindOf(target: ObjectRef): string {
  return `${target.group}/${target.resource}`;
}

const SCALED = new Set(["apps/deployments", "apps/statefulsets", "apps/replicasets", "/replicationcontrollers"]);
const RESTARTED = new Set(["apps/deployments", "apps/statefulsets", "apps/daemonsets"]);
const SUSPENDED = new Set(["batch/jobs", "batch/cronjobs"]);

/** Whether an object has actions besides deletion. */
function hasActions(target: ObjectRef): boolean {
  const kind = kindOf(target);
  return SCALED.has(kind) || RESTARTED.has(kind) || SUSPENDED.has(kind) || kind === "/nodes";
}

/** A button with the menu of actions; nothing for kinds without any. */
export function ObjectActions({ target }: { target: ObjectRef }) {
  const [object, setObject] = useState<Obj | null>(null);
  const [dialog, setDialog] = useState<"scale" | "restart" | null>(null);
  const [open, setOpen] = useState(false);
  if (!hasActions(target)) return null;
  const toggle = async () => {
    if (open) return setOpen(false);
    try {
      setObject(await ask<Obj>("GET", objectPath(target)));
      setOpen(true);
    } catch (error) {
      toastError(error);
    }
  };
  const change = async (patch: object, what: string, type = MERGE, subresource = "") => {
    try {
      await ask("PATCH", objectPath(target, subresource), { body: patch, contentType: type, query: { fieldManager: "setpoint-page" } });
      toast(words.done(what, visible(shortName(target))));
    } catch (error) {
      toastError(error);
    }
  };
  const found = object ? actionsOf(target, object, { change, dialog: setDialog }) : [];
  return (
    <div class="actions">
      <Button look="plain" writes aria-haspopup="menu" aria-expanded={open} aria-label={words.menu} title={words.menu} onClick={() => void toggle()}>
        <Icon name="more" />
      </Button>
      {open ? <Menu actions={found} close={() => setOpen(false)} /> : null}
      {dialog === "scale" && object ? (
        <Scale
          target={target}
          now={Number(object.spec?.replicas ?? 1)}
          close={() => setDialog(null)}
          scale={(count) => void change({ spec: { replicas: count } }, words.scaled(count), MERGE, "scale")}
        />
      ) : null}
      {dialog === "restart" ? (
        <Confirm
          title={words.restartTitle(visible(shortName(target)))}
          action={words.restartAction}
          close={() => setDialog(null)}
          confirm={() => {
            setDialog(null);
            const annotations = { "kubectl.kubernetes.io/restartedAt": new Date().toISOString() };
            void change({ spec: { template: { metadata: { annotations } } } }, words.restarted, STRATEGIC);
          }}
        >
          <p>{words.restartHint}</p>
        </Confirm>
      ) : null}
    </div>
  );
}

interface Doing {
  change(patch: object, what: string): Promise<void>;
  dialog(which: "scale" | "restart"): void;
}

function actionsOf(target: ObjectRef, object: Obj, doing: Doing): Action[] {
  const kind = kindOf(target);
  const found: Action[] = [];
  const flag = (name: string, on: [string, string], off: [string, string]) => {
    const set = object.spec?.[name] === true;
    const [label, done] = set ? off : on;
    found.push({ id: name, label, run: () => void doing.change({ spec: { [name]: set ? null : true } }, done) });
  };
  if (SCALED.has(kind)) found.push({ id: "scale", label: words.scale, run: () => doing.dialog("scale") });
  if (RESTARTED.has(kind)) found.push({ id: "restart", label: words.restart, run: () => doing.dialog("restart") });
  if (kind === "apps/deployments") flag("paused", [words.pause, words.paused], [words.resume, words.resumed]);
  if (SUSPENDED.has(kind)) flag("suspend", [words.suspend, words.suspended], [words.unsuspend, words.resumed]);
  if (kind === "/nodes") flag("unschedulable", [words.cordon, words.cordoned], [words.uncordon, words.uncordoned]);
  if (kind === "batch/cronjobs") found.push({ id: "run", label: words.run, run: () => void runNow(target, object) });
  return found;
}

/** Create a Job from the template of a CronJob, as `kubectl create job --from` does. */
async function runNow(target: ObjectRef, cronJob: Obj): Promise<void> {
  const template = cronJob.spec?.jobTemplate as { metadata?: { labels?: object; annotations?: object }; spec?: object } | undefined;
  const owner = { apiVersion: "batch/v1", kind: "CronJob", name: target.name, uid: cronJob.metadata?.uid, controller: true };
  const metadata = {
    generateName: `${target.name.slice(0, 40)}-manual-`,
    namespace: target.namespace,
    labels: template?.metadata?.labels ?? {},
    annotations: { ...template?.metadata?.annotations, "cronjob.kubernetes.io/instantiate": "manual" },
    ownerReferences: [owner],
  };
  try {
    const path = collectionPath({ group: "batch", version: "v1", resource: "jobs" }, target.namespace);
    const made = await ask<Obj>("POST", path, { body: { apiVersion: "batch/v1", kind: "Job", metadata, spec: template?.spec ?? {} } });
    toast(words.done(words.started(made.metadata?.name ?? ""), visible(shortName(target))));
  } catch (error) {
    toastError(error);
  }
}

function Menu({ actions, close }: { actions: readonly Action[]; close(): void }) {
  const menu = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    menu.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const outside = (event: Event) => {
      if (!menu.current?.contains(event.target as Node)) close();
    };
    document.addEventListener("pointerdown", outside);
    return () => {
      document.removeEventListener("pointerdown", outside);
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const move = (event: KeyboardEvent) => {
    const items = [...(menu.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = items.indexOf(document.activeElement as HTMLElement);
    const next: Record<string, number> = {
      ArrowDown: (at + 1) % items.length,
      ArrowUp: (at - 1 + items.length) % items.length,
      Home: 0,
      End: items.length - 1,
    };
    if (event.key === "Escape" || event.key === "Tab") {
      event.stopPropagation();
      if (event.key === "Escape") event.preventDefault();
      close();
    } else if (event.key in next) {
      event.preventDefault();
      event.stopPropagation();
      items[next[event.key]!]?.focus();
    }
  };
  return (
    <div class="actions-menu" role="menu" aria-label={words.menu} ref={menu} onKeyDown={move}>
      {actions.map((action) => (
        <button
          key={action.id}
          type="button"
          role="menuitem"
          tabIndex={-1}
          onClick={() => {
            close();
            action.run();
          }}
        >
          {action.label}
        </button>
      ))}
    </div>
  );
}

function Scale(props: { target: ObjectRef; now: number; close(): void; scale(count: number): void }) {
  const [count, setCount] = useState(String(props.now));
  const id = useId();
  const valid = /^\d{1,5}$/.test(count);
  const confirm = () => {
    if (!valid) return;
    props.close();
    props.scale(Number(count));
  };
  return (
    <Confirm title={words.scaleTitle(visible(shortName(props.target)))} action={words.scaleAction} close={props.close} confirm={confirm}>
      <form
        class="actions-scale"
        onSubmit={(event) => {
          event.preventDefault();
          confirm();
        }}
      >
        <label for={id}>{words.scaleLabel}</label>
        <input
          id={id}
          class="field"
          type="number"
          min="0"
          max="99999"
          value={count}
          aria-invalid={!valid}
          onInput={(event) => setCount(event.currentTarget.value)}
        />
        <p class="soft">{words.scaleHint(props.now)}</p>
      </form>
    </Confirm>
  );
}
