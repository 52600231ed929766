/** Names of objects, and their places in the API and in links. */

export interface ObjectRef {
  group: string;
  version: string;
  resource: string;
  kind: string;
  /** Empty for objects of the cluster. */
  namespace: string;
  name: string;
}

/** The kind of an object, as in links: `pods`, `apps.deployments`, `networking.k8s.io.ingresses`. */
export function kindSlug(kind: { group: string; resource: string }): string {
  return kind.group ? `${kind.group}.${kind.resource}` : kind.resource;
}

export function parseKindSlug(slug: string): { group: string; resource: string } {
  const dot = slug.lastIndexOf(".");
  return dot < 0 ? { group: "", resource: slug } : { group: slug.slice(0, dot), resource: slug.slice(dot + 1) };
}

export function refKey(ref: ObjectRef): string {
  return `${kindSlug(ref)}/${ref.namespace}/${ref.name}`;
}

export function sameObject(a: ObjectRef | null, b: ObjectRef | null): boolean {
  return a === b || (a !== null && b !== null && refKey(a) === refKey(b));
}

/** The path of a collection: of one namespace, or of all if `namespace` is empty. */
export function collectionPath(kind: { group: string; version: string; resource: string }, namespace: string): string {
  const base = kind.group ? `/apis/${kind.group}/${kind.version}` : `/api/${kind.version}`;
  const scope = namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return `${base}${scope}/${kind.resource}`;
}

export function objectPath(ref: ObjectRef, subresource = ""): string {
  const path = `${collectionPath(ref, ref.namespace)}/${encodeURIComponent(ref.name)}`;
  return subresource ? `${path}/${subresource}` : path;
}

/** As people write it: `deployment/web`. */
export function shortName(ref: { kind: string; name: string }): string {
  return `${ref.kind.toLowerCase()}/${ref.name}`;
}
