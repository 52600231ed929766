/** The address of what is shown, in the fragment: `#/objects/apps.deployments/default/web?at=102993&tab=yaml`. */
import { signal } from "@preact/signals";
import { isRoute } from "./link/entrance";
import { kindSlug, parseKindSlug } from "./state/refs";

export interface Route {
  view: string;
  /** The kind that the view shows or that the selected object has. */
  kind: { group: string; resource: string } | null;
  /** Of the selected object; empty for objects of the cluster. */
  namespace: string;
  /** Of the selected object; empty if none is selected. */
  name: string;
  /** ns, at, cluster, tab, and what views add. */
  params: Readonly<Record<string, string>>;
}

export const HOME = "objects";

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#/, "").split("?", 2);
  const [view = "", slug = "", namespace = "", name = ""] = path.replace(/^\//, "").split("/").map(decode);
  return {
    view: view || HOME,
    kind: slug ? parseKindSlug(slug) : null,
    namespace: namespace === "_" ? "" : namespace,
    name,
    params: Object.fromEntries(new URLSearchParams(query)),
  };
}

export function formatRoute(route: Route): string {
  const parts = [route.view];
  if (route.kind) {
    parts.push(kindSlug(route.kind));
    if (route.name) parts.push(route.namespace || "_", route.name);
  }
  const query = new URLSearchParams(Object.entries(route.params).filter(([, value]) => value !== "")).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = signal<Route>(parseRoute(isRoute(location.hash) ? location.hash : ""));

export interface RouteChange extends Partial<Omit<Route, "params">> {
  /** An empty value removes the parameter; others stay. */
  params?: Record<string, string>;
}

/** The link to a place; parameters that are not named stay as they are. */
export function linkTo(change: RouteChange): string {
  return formatRoute(changed(route.value, change));
}

/**
 * Go to a place. `replace`: without an entry in the history of the browser. `passing`: the address is not written at all,
 * for places that follow each other faster than browsers allow; the last one must be written.
 */
export function navigate(change: RouteChange, options: { replace?: boolean; passing?: boolean } = {}): void {
  const next = changed(route.peek(), change);
  const hash = formatRoute(next);
  if (!options.passing && hash !== location.hash) {
    if (options.replace) history.replaceState(null, "", hash);
    else history.pushState(null, "", hash);
  }
  if (hash !== formatRoute(route.peek())) route.value = next;
}

export function setParam(name: string, value: string | null, options: { replace?: boolean } = { replace: true }): void {
  navigate({ params: { [name]: value ?? "" } }, options);
}

function changed(from: Route, change: RouteChange): Route {
  const { params, ...rest } = change;
  return { ...from, ...rest, params: { ...from.params, ...params } };
}

export function startRouter(): void {
  const read = () => {
    if (isRoute(location.hash)) route.value = parseRoute(location.hash);
  };
  window.addEventListener("popstate", read);
  window.addEventListener("hashchange", read);
}
