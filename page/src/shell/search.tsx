/** Search of views, kinds and objects, as a combobox. */
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { navigate } from "../router";
import { kinds } from "../state/kinds";
import { kindSlug } from "../state/refs";
import { Icon } from "../ui/icon";
import { views } from "../views/catalog";
import { shell } from "../words/shell";

interface Hit {
  id: string;
  label: string;
  detail: string;
  go(): void;
}

const MOST = 12;

function hitsFor(text: string): Hit[] {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const hits: Hit[] = [];
  for (const view of views) {
    if (!view.label.toLowerCase().includes(wanted)) continue;
    hits.push({ id: `view-${view.id}`, label: view.label, detail: `g ${view.key}`, go: () => navigate({ view: view.id }) });
  }
  for (const kind of kinds.value) {
    const words = [kind.resource, kind.kind.toLowerCase(), ...kind.shortNames];
    if (!words.some((word) => word.includes(wanted))) continue;
    hits.push({
      id: `kind-${kindSlug(kind)}`,
      label: kind.kind,
      detail: kindSlug(kind),
      go: () => navigate({ view: "objects", kind, name: "", namespace: "" }),
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
  const box = useRef<HTMLDivElement>(null);
  const list = useId();
  const hits = open ? hitsFor(text) : [];
  useEffect(() => setAt(0), [text]);
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
  };
  const shown = open && text.trim() !== "";
  return (
    <div
      class="search"
      role="search"
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
            <span class="faint">{hit.detail}</span>
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
