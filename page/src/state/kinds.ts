/** The kinds that the server has, by discovery; custom ones too. */
import { computed, signal } from "@preact/signals";
import { ask } from "../link/hooks";
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
}

interface Discovery {
  items?: {
    metadata?: { name?: string };
    versions?: {
      version: string;
      resources?: {
        resource: string;
        responseKind?: { kind?: string };
        scope?: string;
        singularResource?: string;
        shortNames?: string[];
        categories?: string[];
        verbs?: string[];
      }[];
    }[];
  }[];
}

const AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/** All kinds in the order of the server; empty until discovery has answered. */
export const kinds = signal<readonly Kind[]>([]);
export const kindsError = signal<string | null>(null);

const byResource = computed(() => new Map(kinds.value.map((kind) => [`${kind.group}/${kind.resource}`, kind])));
const byKind = computed(() => new Map(kinds.value.map((kind) => [`${kind.group}/${kind.kind}`, kind])));

let latest = 0;

/** Read the kinds of a logical cluster. */
export async function loadKinds(prefix: string): Promise<void> {
  const mine = ++latest;
  try {
    const answers = await Promise.all(
      ["/api", "/apis"].map((path) => ask<Discovery>("GET", path, { accept: AGGREGATED, prefix })),
    );
    if (mine !== latest) return;
    kinds.value = answers.flatMap(readDiscovery);
    kindsError.value = null;
  } catch (error) {
    if (mine === latest) kindsError.value = error instanceof Error ? error.message : String(error);
  }
}

function readDiscovery(answer: Discovery): Kind[] {
  const found: Kind[] = [];
  for (const group of answer.items ?? []) {
    const seen = new Set<string>();
    // Versions are in the order of preference; a resource counts in the first that has it.
    for (const version of group.versions ?? []) {
      for (const one of version.resources ?? []) {
        if (seen.has(one.resource) || !one.verbs?.includes("list")) continue;
        seen.add(one.resource);
        found.push({
          group: group.metadata?.name ?? "",
          version: version.version,
          resource: one.resource,
          kind: one.responseKind?.kind ?? one.resource,
          singular: one.singularResource || one.resource,
          shortNames: one.shortNames ?? [],
          categories: one.categories ?? [],
          namespaced: one.scope === "Namespaced",
          verbs: one.verbs,
        });
      }
    }
  }
  return found;
}

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
