/** What a new user sees where nothing runs: one click to something that does. */
import { dockEntries } from "../../dock/catalog";
import { openPanel } from "../../dock/state";
import { ask } from "../../link/hooks";
import { ApiError } from "../../link/protocol";
import { navigate } from "../../router";
import { at, namespace, readOnly } from "../../state/place";
import { Button } from "../../ui/button";
import { Notice } from "../../ui/notice";
import { toast, toastError } from "../../ui/toast";
import { views } from "../catalog";
import { objects as words } from "../../words/objects";

function example(): object {
  const labels = { app: "web" };
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name: "web", labels },
    spec: {
      replicas: 3,
      selector: { matchLabels: labels },
      template: { metadata: { labels }, spec: { containers: [{ name: "nginx", image: "nginx:1.29" }] } },
    },
  };
}

async function create(): Promise<void> {
  const place = encodeURIComponent(namespace.peek() || "default");
  try {
    await ask("POST", `/apis/apps/v1/namespaces/${place}/deployments`, { body: example(), query: { fieldManager: "setpoint-page" } });
    toast(words.startDone);
  } catch (error) {
    if (error instanceof ApiError && error.code === 409) return;
    toastError(error);
  }
}

export function Start() {
  if (readOnly.value !== null) return <Notice title={at.value === null ? words.startTitle : words.startPast} />;
  return (
    <Notice title={words.startTitle}>
      <p>{words.startHint}</p>
      <div class="toolbar">
        <Button look="primary" writes onClick={() => void create()}>
          {words.startAction}
        </Button>
        {views.some((view) => view.id === "learn") ? (
          <Button onClick={() => navigate({ view: "learn" })}>{words.lessons}</Button>
        ) : null}
        {dockEntries.some((entry) => entry.id === "terminal") ? (
          <Button onClick={() => openPanel("terminal")}>{words.terminal}</Button>
        ) : null}
      </div>
    </Notice>
  );
}
