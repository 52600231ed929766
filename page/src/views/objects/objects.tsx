/** The objects of a kind: the server's own columns, live, with filter, sort and delete. */
import type { RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useKeys } from "../../a11y/keyboard";
import { useFeed } from "../../link/hooks";
import { navigate, route, setParam } from "../../router";
import { useCounts } from "../../shell/kinds-feed";
import { findKind, kinds, pluralName } from "../../state/kinds";
import type { Kind } from "../../state/kinds";
import { namespace } from "../../state/place";
import { kindSlug } from "../../state/refs";
import { select } from "../../state/selection";
import { wide } from "../../state/settings";
import { Button } from "../../ui/button";
import { DataTable } from "../../ui/data-table";
import { DeleteObjects } from "../../ui/delete-objects";
import { Icon } from "../../ui/icon";
import { Failure, Loading, Notice } from "../../ui/notice";
import { visible } from "../../ui/text";
import { now } from "../../ui/time";
import { objects as words } from "../../words/objects";
import { shell } from "../../words/shell";
import { KindChooser, KindList } from "./kind-list";
import { COLUMNS, columnsOf, filterRows, rowKey } from "./rows";
import type { ObjectRow, TableColumns } from "./rows";
import { Start } from "./start";
import "./objects.css";

const FIRST_KIND = { group: "", resource: "pods" };

export default function Objects() {
  useCounts();
  const section = useRef<HTMLElement>(null);
  const chosen = route.value.kind ?? FIRST_KIND;
  const slug = kindSlug(chosen);
  const kind = findKind(chosen.group, chosen.resource);
  // It loads while the kinds do; the table shares it.
  useFeed("objects", feedArgs(chosen));
  return (
    <div class="objects">
      {wide.value ? <KindList current={slug} /> : null}
      <section class="objects-table" ref={section} aria-label={kind?.kind ?? slug}>
        {kind ? (
          <ObjectTable key={slug} kind={kind} section={section} />
        ) : kinds.value.length > 0 ? (
          <Notice title={shell.inspectorNoKind(visible(slug))}>
            <p>{words.noKindHint}</p>
            <Button onClick={() => navigate({ kind: FIRST_KIND, name: "" })}>{words.noKindAction}</Button>
          </Notice>
        ) : (
          <Loading />
        )}
      </section>
    </div>
  );
}

/** Without a version: the server's preferred one. Kinds of the cluster ignore the namespace. */
function feedArgs({ group, resource }: { group: string; resource: string }): object {
  return { group, version: "", resource, namespace: namespace.value, selector: "" };
}

function whereText(kind: Kind): string {
  if (!kind.namespaced) return words.ofCluster;
  return namespace.value ? words.inNamespace(namespace.value) : words.everywhere;
}

function ObjectTable({ kind, section }: { kind: Kind; section: RefObject<HTMLElement | null> }) {
  const place = kind.namespaced ? namespace.value : "";
  const feed = useFeed<ObjectRow | TableColumns>("objects", feedArgs(kind));
  const [checked, setChecked] = useState<ReadonlySet<string>>(new Set());
  const [deleting, setDeleting] = useState(false);
  const [sort, setSort] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const filter = route.value.params.filter ?? "";

  const table = feed.items.get(COLUMNS) as TableColumns | undefined;
  const all = useMemo(
    () => [...feed.items].filter(([key]) => key !== COLUMNS).map(([, row]) => row as ObjectRow),
    [feed.revision, feed.items],
  );
  const rows = useMemo(() => filterRows(all, filter), [all, filter]);
  const manyNamespaces = kind.namespaced && place === "";
  // Ages grow: a new minute may need a wider column, a second does not.
  const minute = Math.floor(now.value / 60_000);
  const widest = useRef(new Map<string, number>());
  const columns = useMemo(() => columnsOf(table, all, manyNamespaces, widest.current), [table, all, manyNamespaces, minute]);

  useEffect(() => {
    // What is gone cannot be selected.
    const present = new Set(all.map(rowKey));
    if ([...checked].some((key) => !present.has(key))) setChecked(new Set([...checked].filter((key) => present.has(key))));
  }, [all]);
  useEffect(() => setChecked(new Set()), [place]);

  const askDelete = (): void | false => (checked.size > 0 ? setDeleting(true) : false);
  useKeys(
    () => [
      { keys: "f", label: words.keys.filter, group: words.keys.group, run: () => input.current?.focus() },
      { keys: "Delete", label: words.keys.delete, group: words.keys.group, run: askDelete },
      // The table handles these itself; they are listed for the help.
      { keys: "Arrows", label: words.keys.move, group: words.keys.group, run: () => false as const },
      { keys: "Enter", label: words.keys.open, group: words.keys.group, run: () => false as const },
      { keys: "Space", label: words.keys.check, group: words.keys.group, run: () => false as const },
    ],
    [checked.size > 0],
  );

  if (feed.error) return <Failure error={feed.error} feature={kind.resource} />;
  const current = route.value.name ? `${route.value.namespace}/${route.value.name}` : null;
  const refs = all.filter((row) => checked.has(rowKey(row))).map((row) => row.ref);
  return (
    <>
      <div class="objects-bar">
        {wide.value ? (
          <h2 class="objects-title">
            {pluralName(kind)} <span class="faint number">{feed.synced ? words.count(rows.length, all.length) : ""}</span>
          </h2>
        ) : (
          <KindChooser current={kindSlug(kind)} />
        )}
        <input
          ref={input}
          class="field objects-filter"
          type="search"
          aria-label={words.filterHint}
          placeholder={words.filter}
          autocomplete="off"
          spellcheck={false}
          value={filter}
          onInput={(event) => setParam("filter", event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "ArrowDown" || event.key === "Enter") {
              event.preventDefault();
              section.current?.querySelector<HTMLElement>(".data-rows > [tabindex='0']")?.focus();
            } else if (event.key === "Escape") {
              event.stopPropagation();
              setParam("filter", "");
              event.currentTarget.blur();
            }
          }}
        />
        <div class="objects-actions">
          {checked.size > 0 ? (
            <>
              <span class="soft">{words.selected(checked.size)}</span>
              <Button small onClick={() => setChecked(new Set())}>
                {words.clear}
              </Button>
              <Button small look="danger" writes onClick={() => setDeleting(true)}>
                <Icon name="trash" />
                {words.delete}
              </Button>
            </>
          ) : null}
        </div>
      </div>
      {table && table.more > 0 ? <p class="objects-more soft">{words.more(table.more)}</p> : null}
      {feed.synced ? (
        <DataTable
          label={`${pluralName(kind)}, ${whereText(kind)}`}
          rows={rows}
          columns={columns}
          rowKey={rowKey}
          rowName={(row) => visible(row.ref.name)}
          current={current}
          open={(row) => select(row.ref)}
          checked={checked}
          check={setChecked}
          sort={sort}
          setSort={setSort}
          empty={<Empty kind={kind} filtered={all.length > 0} />}
        />
      ) : (
        <Loading />
      )}
      {deleting ? <DeleteObjects refs={refs} close={() => setDeleting(false)} done={() => setChecked(new Set())} /> : null}
    </>
  );
}

function Empty({ kind, filtered }: { kind: Kind; filtered: boolean }) {
  if (filtered) {
    return (
      <Notice title={words.nothingMatches}>
        <Button onClick={() => setParam("filter", "")}>{words.clearFilter}</Button>
      </Notice>
    );
  }
  if (kind.resource === "pods" || (kind.group === "apps" && kind.resource === "deployments")) return <Start />;
  return (
    <Notice title={words.none(pluralName(kind), whereText(kind))}>
      <p>{words.noneHint}</p>
    </Notice>
  );
}
