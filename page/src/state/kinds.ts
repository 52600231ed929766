/** The kinds that the server has, custom ones too. `shell/kinds-feed.ts` keeps them up to date. */
import { computed, signal } from "@preact/signals";
import type { ObjectRef } from "./refs";

export interface Kind {
  group: string;
  version: string;
  resource: string;
  kind: string;
  singular: string;
  shortNames: string[];
  categories: string[];
  namespaced: boolean;
  verbs: string[];
  /** The number of objects in the current namespace; null if it is not known. */
  count: number | null;
}

/** All kinds in the order of the server; empty until discovery has answered. */
export const kinds = signal<readonly Kind[]>([]);

const byResource = computed(() => new Map(kinds.value.map((kind) => [`${kind.group}/${kind.resource}`, kind])));
const byKind = computed(() => {
  const found = new Map<string, Kind>();
  for (const kind of kinds.value) {
    const key = `${kind.group}/${kind.kind}`;
    if (!found.has(key)) found.set(key, kind);
  }
  return found;
});

export function findKind(group: string, resource: string): Kind | null {
  return byResource.value.get(`${group}/${resource}`) ?? null;
}

export function findKindByName(group: string, kind: string): Kind | null {
  return byKind.value.get(`${group}/${kind}`) ?? null;
}

/** The reference of an object, from its apiVersion and kind; null for a kind that the server does not have. */
export function refOf(object: {
  apiVersion?: string;
  kind?: string;
  metadata?: { namespace?: string; name?: string };
  namespace?: string;
  name?: string;
}): ObjectRef | null {
  const [first = "", second] = (object.apiVersion ?? "v1").split("/");
  const kind = findKindByName(second === undefined ? "" : first, object.kind ?? "");
  const name = object.metadata?.name ?? object.name;
  if (!kind || !name) return null;
  const namespace = kind.namespaced ? (object.metadata?.namespace ?? object.namespace ?? "") : "";
  return { group: kind.group, version: kind.version, resource: kind.resource, kind: kind.kind, namespace, name };
}

/** The name of several objects of a kind, as a title: `Pods`, `Ingresses`, `NetworkPolicies`. */
export function pluralName(kind: { kind: string; resource: string }): string {
  const lower = kind.kind.toLowerCase();
  if (kind.resource.startsWith(lower)) return kind.kind + kind.resource.slice(lower.length);
  if (lower.endsWith("y") && kind.resource === `${lower.slice(0, -1)}ies`) return `${kind.kind.slice(0, -1)}ies`;
  return kind.kind;
}
