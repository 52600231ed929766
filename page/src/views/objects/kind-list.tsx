/** The kinds with their counts: a list on the left, a chooser where there is no space for it. */
import { useRef } from "preact/hooks";
import { navigate } from "../../router";
import { kinds, pluralName } from "../../state/kinds";
import type { Kind } from "../../state/kinds";
import { kindSlug } from "../../state/refs";
import { stored } from "../../state/settings";
import { Button } from "../../ui/button";
import { objects as words } from "../../words/objects";

type Group = keyof typeof words.groups;

const GROUPS: Record<Exclude<Group, "custom" | "other">, string[]> = {
  workloads: [
    "pods",
    "apps.deployments",
    "apps.replicasets",
    "apps.statefulsets",
    "apps.daemonsets",
    "batch.jobs",
    "batch.cronjobs",
    "replicationcontrollers",
    "autoscaling.horizontalpodautoscalers",
    "policy.poddisruptionbudgets",
  ],
  network: [
    "services",
    "networking.k8s.io.ingresses",
    "networking.k8s.io.networkpolicies",
    "discovery.k8s.io.endpointslices",
    "endpoints",
    "networking.k8s.io.ingressclasses",
  ],
  configuration: ["configmaps", "secrets", "resourcequotas", "limitranges"],
  storage: [
    "persistentvolumeclaims",
    "persistentvolumes",
    "storage.k8s.io.storageclasses",
    "storage.k8s.io.volumeattachments",
  ],
  cluster: ["nodes", "namespaces", "events", "coordination.k8s.io.leases", "apiextensions.k8s.io.customresourcedefinitions"],
  access: [
    "serviceaccounts",
    "rbac.authorization.k8s.io.roles",
    "rbac.authorization.k8s.io.rolebindings",
    "rbac.authorization.k8s.io.clusterroles",
    "rbac.authorization.k8s.io.clusterrolebindings",
  ],
};

/** Shown even if there are no objects of them. */
const ALWAYS = new Set(["pods", "apps.deployments", "apps.replicasets", "services", "configmaps", "secrets", "nodes", "namespaces"]);
/** Hidden while few kinds are shown: machinery that is always there. */
const MACHINERY = new Set(["events", "endpoints", "coordination.k8s.io.leases"]);

const showAll = stored("objects.allKinds", false);

export function groupOf(kind: Kind): Group {
  const slug = kindSlug(kind);
  for (const [group, members] of Object.entries(GROUPS)) if (members.includes(slug)) return group as Group;
  const builtIn = !kind.group.includes(".") || kind.group.endsWith(".k8s.io");
  return builtIn ? "other" : "custom";
}

/** The kinds by group, in the order in which they are shown. */
export function groupedKinds(all: readonly Kind[], every: boolean, current: string): [Group, Kind[]][] {
  const groups = new Map<Group, Kind[]>((Object.keys(words.groups) as Group[]).map((group) => [group, []]));
  for (const kind of all) {
    const slug = kindSlug(kind);
    const group = groupOf(kind);
    const usual = group !== "other" && group !== "access" && !MACHINERY.has(slug);
    if (every || slug === current || ALWAYS.has(slug) || group === "custom" || (usual && (kind.count ?? 0) > 0)) {
      groups.get(group)!.push(kind);
    }
  }
  for (const [group, members] of groups) {
    const order = group === "custom" || group === "other" ? [] : GROUPS[group];
    const rank = (kind: Kind) => order.indexOf(kindSlug(kind));
    members.sort((a, b) => rank(a) - rank(b) || (a.resource < b.resource ? -1 : 1));
  }
  return [...groups].filter(([, members]) => members.length > 0);
}

function go(kind: Kind): void {
  navigate({ kind: { group: kind.group, resource: kind.resource }, name: "", namespace: "" });
}

export function KindList({ current }: { current: string }) {
  const list = useRef<HTMLElement>(null);
  const groups = groupedKinds(kinds.value, showAll.value, current);
  const move = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    const links = [...(list.current?.querySelectorAll<HTMLElement>("a.kind-link") ?? [])];
    const next = links[links.indexOf(document.activeElement as HTMLElement) + step];
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    next.focus();
  };
  return (
    <nav class="kind-list" aria-label={words.kinds} ref={list} onKeyDown={move}>
      {groups.map(([group, members]) => (
        <section key={group}>
          <h2 id={`kinds-${group}`}>{words.groups[group]}</h2>
          <ul class="kind-links" aria-labelledby={`kinds-${group}`}>
            {members.map((kind) => (
              <KindLink key={kindSlug(kind)} kind={kind} current={current} />
            ))}
          </ul>
        </section>
      ))}
      {kinds.value.length > 0 ? (
        <Button look="plain" small onClick={() => (showAll.value = !showAll.value)}>
          {showAll.value ? words.fewerKinds : words.allKinds(kinds.value.length)}
        </Button>
      ) : null}
    </nav>
  );
}

/** The name of a kind, which may be broken between its words: two kinds can begin with the same ones. */
function breakable(name: string) {
  return name.split(/(?=[A-Z][a-z])/).flatMap((word, at) => (at ? [<wbr key={at} />, word] : [word]));
}

function KindLink({ kind, current }: { kind: Kind; current: string }) {
  const slug = kindSlug(kind);
  return (
    <li>
      <a
        class={kind.count === 0 ? "kind-link none" : "kind-link"}
        href={`#/objects/${slug}`}
        title={kind.group ? `${kind.kind}, ${kind.group}/${kind.version}` : `${kind.kind}, ${kind.version}`}
        aria-current={slug === current ? "page" : undefined}
        tabIndex={slug === current ? 0 : -1}
        onClick={(event) => {
          event.preventDefault();
          go(kind);
        }}
      >
        <span class="kind-name">{breakable(pluralName(kind))}</span>
        <span class="kind-count number">{kind.count ?? ""}</span>
      </a>
    </li>
  );
}

export function KindChooser({ current }: { current: string }) {
  const groups = groupedKinds(kinds.value, true, current);
  return (
    <label class="kind-chooser">
      <span class="visually-hidden">{words.kind}</span>
      <select
        class="field"
        value={current}
        onChange={(event) => {
          const kind = kinds.value.find((one) => kindSlug(one) === event.currentTarget.value);
          if (kind) go(kind);
        }}
      >
        {groups.map(([group, members]) => (
          <optgroup key={group} label={words.groups[group]}>
            {members.map((kind) => (
              <option key={kindSlug(kind)} value={kindSlug(kind)}>
                {kind.count ? `${pluralName(kind)} (${kind.count})` : pluralName(kind)}
              </option>
            ))}
          </optgroup>
        ))}
      </select>
    </label>
  );
}
