/** Search of views, kinds and objects, as a combobox. */
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { ask } from "../link/hooks";
import { navigate } from "../router";
import { kinds } from "../state/kinds";
import type { Kind } from "../state/kinds";
import { cluster } from "../state/place";
import { collectionPath, kindSlug } from "../state/refs";
import { select } from "../state/selection";
import { Icon } from "../ui/icon";
import { visible } from "../ui/text";
import { offeredViews } from "../views/catalog";
import { shell } from "../words/shell";

interface Hit {
  id: string;
  label: string;
  detail: string;
  go(): void;
}

interface Named {
  kind: Kind;
  namespace: string;
  name: string;
}

const MOST = 12;
const MOST_NAMES = 500;
const FRESH = 5_000;
const METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/** Kinds that are not searched: there are many objects of them, and nobody looks for them by name. */
const SKIPPED = /^(?:events|events\.k8s\.io\.events|coordination\.k8s\.io\.leases|rbac\..*|flowcontrol\..*|endpoints|componentstatuses|metrics\.k8s\.io\..*)$/;

let known: { prefix: string; at: number; names: Promise<Named[]> } | null = null;

/** The names of objects, read when a search begins and kept for some seconds. */
function allNames(): Promise<Named[]> {
  const prefix = cluster.peek();
  if (known && known.prefix === prefix && performance.now() - known.at < FRESH) return known.names;
  const names = Promise.all(kinds.peek().filter((kind) => !SKIPPED.test(kindSlug(kind))).map(namesOf)).then((lists) => lists.flat());
  known = { prefix, at: performance.now(), names };
  return names;
}

async function namesOf(kind: Kind): Promise<Named[]> {
  try {
    const list = await ask<{ items?: { metadata?: { name?: string; namespace?: string } }[] }>("GET", collectionPath(kind, ""), {
      accept: METADATA,
      query: { limit: MOST_NAMES },
    });
    return (list.items ?? []).map((item) => ({ kind, namespace: item.metadata?.namespace ?? "", name: item.metadata?.name ?? "" }));
  } catch {
    return []; // what one may not list cannot be found
  }
}

function hitsFor(text: string, names: readonly Named[]): Hit[] {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const hits: Hit[] = [];
  for (const view of offeredViews.value) {
    if (!view.label.toLowerCase().includes(wanted)) continue;
    hits.push({ id: `view-${view.id}`, label: view.label, detail: `g ${view.key}`, go: () => navigate({ view: view.id }) });
  }
  for (const kind of kinds.value) {
    const words = [kind.resource, kind.kind.toLowerCase(), ...kind.shortNames];
    if (!words.some((word) => word.startsWith(wanted))) continue;
    hits.push({
      id: `kind-${kindSlug(kind)}`,
      label: kind.kind,
      detail: kindSlug(kind),
      go: () => navigate({ view: "objects", kind, name: "", namespace: "" }),
    });
  }
  const found = names.filter((one) => one.name.toLowerCase().includes(wanted));
  const rank = (one: Named) => (one.name.toLowerCase().startsWith(wanted) ? 0 : 1) * 1_000 + one.name.length;
  for (const one of found.sort((a, b) => rank(a) - rank(b)).slice(0, MOST)) {
    const { group, version, resource, kind } = one.kind;
    hits.push({
      id: `object-${kindSlug(one.kind)}/${one.namespace}/${one.name}`,
      label: visible(one.name),
      detail: visible(one.namespace ? `${kind} · ${one.namespace}` : kind),
      go: () => select({ group, version, resource, kind, namespace: one.namespace, name: one.name }),
    });
  }
  return hits.slice(0, MOST);
}

export function focusSearch(): void {
  document.querySelector<HTMLInputElement>("#search")?.focus();
}

export function Search() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [open, setOpen] = useState(false);
  const [names, setNames] = useState<readonly Named[]>([]);
  const box = useRef<HTMLDivElement>(null);
  const list = useId();
  const hits = open ? hitsFor(text, names) : [];
  useEffect(() => {
    setAt(0);
    if (text.trim().length < 2) return;
    let current = true;
    void allNames().then((found) => current && setNames(found));
    return () => {
      current = false;
    };
  }, [text]);
  const choose = (hit: Hit | undefined) => {
    if (!hit) return;
    hit.go();
    setText("");
    setOpen(false);
    document.querySelector<HTMLElement>("#main")?.focus();
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, hits.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
    else if (event.key === "Enter") choose(hits[at]);
    else if (event.key === "Escape") {
      setText("");
      setOpen(false);
      (event.currentTarget as HTMLElement).blur();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const shown = open && text.trim() !== "";
  return (
    <div
      class="search"
      role="search"
      aria-label={shell.searchHint}
      ref={box}
      onFocusOut={(event) => {
        if (!box.current?.contains(event.relatedTarget as Node | null)) setOpen(false);
      }}
    >
      <Icon name="search" />
      <input
        id="search"
        class="field"
        type="text"
        role="combobox"
        autocomplete="off"
        spellcheck={false}
        aria-label={shell.searchHint}
        aria-autocomplete="list"
        aria-expanded={shown}
        aria-controls={list}
        aria-activedescendant={shown && hits[at] ? `${list}-${at}` : undefined}
        placeholder={shell.search}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onKeyDown={press}
      />
      <kbd aria-hidden="true">/</kbd>
      <ul class="search-hits" id={list} role="listbox" aria-label={shell.search} hidden={!shown}>
        {hits.map((hit, index) => (
          <li
            key={hit.id}
            id={`${list}-${index}`}
            role="option"
            aria-selected={index === at}
            onMouseDown={(event) => {
              event.preventDefault();
              choose(hit);
            }}
          >
            <span>{hit.label}</span>
            <span class="search-detail">{hit.detail}</span>
          </li>
        ))}
        {shown && hits.length === 0 ? (
          <li role="option" aria-selected="false" aria-disabled="true">
            {shell.searchNothing}
          </li>
        ) : null}
      </ul>
    </div>
  );
}
