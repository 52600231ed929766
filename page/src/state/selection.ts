/** The selected object, which the inspector shows. It is a part of the address. */
import { computed } from "@preact/signals";
import { navigate, route } from "../router";
import { findKind } from "./kinds";
import type { ObjectRef } from "./refs";

/** Null if nothing is selected, or if the kind is not known (yet). */
export const selected = computed<ObjectRef | null>(() => {
  const { kind, namespace, name } = route.value;
  if (!kind || !name) return null;
  const found = findKind(kind.group, kind.resource);
  if (!found) return null;
  const { group, version, resource } = found;
  return { group, version, resource, kind: found.kind, namespace: found.namespaced ? namespace : "", name };
});

/** Select an object, in the current view or another, and open a tab of the inspector if named. */
export function select(ref: ObjectRef, where: { view?: string; tab?: string; replace?: boolean } = {}): void {
  navigate(
    {
      ...(where.view ? { view: where.view } : {}),
      kind: { group: ref.group, resource: ref.resource },
      namespace: ref.namespace,
      name: ref.name,
      ...(where.tab ? { params: { tab: where.tab } } : {}),
    },
    { replace: where.replace ?? false },
  );
}

export function deselect(): void {
  if (route.peek().name) navigate({ name: "", namespace: "" });
}
