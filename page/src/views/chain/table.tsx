/** The chain as a table: a tree of owners, with what is desired, what is observed, and who wrote last. */
import { useMemo, useRef, useState } from "preact/hooks";
import { sameObject } from "../../state/refs";
import { navigate } from "../../router";
import { select, selected } from "../../state/selection";
import { Phase } from "../../ui/phase";
import { visible } from "../../ui/text";
import { chain as words } from "../../words/chain";
import { actorKey, isCount, writtenKey } from "../../writes/writes";
import type { LogEntry, WriteEntry } from "../../writes/writes";
import { boxKind, boxName, treeRows } from "./model";
import type { Graph, TreeRow } from "./model";

export function ChainTable({ graph, log, revision }: { graph: Graph; log: readonly LogEntry[]; revision: number }) {
  const [collapsed, setCollapsed] = useState<ReadonlySet<string>>(new Set());
  const [focused, setFocused] = useState<string | null>(null);
  const body = useRef<HTMLTableSectionElement>(null);
  const rows = useMemo(() => treeRows(graph, collapsed), [graph, collapsed]);
  const last = useMemo(() => lastWrites(log), [revision]);
  const current = rows.some((row) => row.key === focused) ? focused : (rows[0]?.key ?? null);
  const fold = (key: string, closed: boolean) => {
    const next = new Set(collapsed);
    if (closed) next.add(key);
    else next.delete(key);
    setCollapsed(next);
  };
  const focusOn = (key: string | undefined) => {
    if (key === undefined) return;
    setFocused(key);
    body.current?.querySelector<HTMLElement>(`[data-row="${CSS.escape(key)}"]`)?.focus();
  };
  const move = (event: KeyboardEvent) => {
    const index = rows.findIndex((row) => row.key === current);
    const row = rows[index];
    if (!row) return;
    const open = row.parent && !collapsed.has(row.key);
    const steps: Record<string, () => void> = {
      ArrowDown: () => focusOn(rows[index + 1]?.key),
      ArrowUp: () => focusOn(rows[index - 1]?.key),
      Home: () => focusOn(rows[0]?.key),
      End: () => focusOn(rows.at(-1)?.key),
      ArrowLeft: () => (open ? fold(row.key, true) : focusOn(rows.slice(0, index).findLast((one) => one.level < row.level)?.key)),
      ArrowRight: () => (row.parent && collapsed.has(row.key) ? fold(row.key, false) : focusOn(rows[index + 1]?.key)),
      Enter: () => openRow(row),
    };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    step();
  };
  return (
    <div class="chain-table-scroll">
      <table class="plain-table chain-table" role="treegrid" aria-label={words.treeLabel} onKeyDown={move}>
        <thead>
          <tr>
            {Object.values(words.columns).map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          {rows.map((row) => (
            <Row
              key={row.key}
              row={row}
              closed={collapsed.has(row.key)}
              entry={last.get(row.key)}
              tab={row.key === current}
              fold={(closed) => fold(row.key, closed)}
              focus={() => setFocused(row.key)}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function lastWrites(log: readonly LogEntry[]): Map<string, WriteEntry> {
  const found = new Map<string, WriteEntry>();
  for (const entry of log) {
    if (isCount(entry)) continue;
    for (const one of entry.objects) {
      const before = found.get(writtenKey(one));
      // A report of the status says less about why the object is so than the last other write.
      const report = one.part === "heartbeat" || one.part === "status";
      if (!report || !before) found.set(writtenKey(one), entry);
    }
  }
  return found;
}

function openRow(row: TreeRow): void {
  if (row.box.type === "object") select(row.box.ref);
  else if (row.box.type === "group") {
    navigate({ view: "objects", kind: { group: row.box.ref.group, resource: row.box.ref.resource }, name: "", namespace: "" });
  }
}

interface RowProps {
  row: TreeRow;
  closed: boolean;
  entry: WriteEntry | undefined;
  tab: boolean;
  fold(closed: boolean): void;
  focus(): void;
}

function Row({ row, closed, entry, tab, fold, focus }: RowProps) {
  const { box } = row;
  const object = box.type === "object" ? box : null;
  const chosen = object !== null && sameObject(object.ref, selected.value);
  return (
    <tr
      role="row"
      data-row={row.key}
      aria-level={row.level}
      aria-expanded={row.parent ? !closed : undefined}
      aria-selected={chosen}
      tabIndex={tab ? 0 : -1}
      class={chosen ? "chain-row chosen" : "chain-row"}
      onFocus={focus}
      onClick={() => openRow(row)}
    >
      <td role="gridcell" data-label={words.columns.object}>
        <span class="chain-row-name" style={{ paddingLeft: `${(row.level - 1) * 1.25}rem` }}>
          {row.parent ? (
            <span
              class="chain-row-fold"
              aria-hidden="true"
              onClick={(event) => {
                event.stopPropagation();
                fold(!closed);
              }}
            >
              {closed ? "▸" : "▾"}
            </span>
          ) : (
            <span class="chain-row-fold" aria-hidden="true" />
          )}
          <span>
            <span class="faint">{boxKind(box)} </span>
            {box.type === "group" ? words.count(box.count) : visible(boxName(box))}
          </span>
        </span>
      </td>
      <td role="gridcell" data-label={words.columns.loop}>
        {box.type === "owner" ? "" : <Phase phase={box.phase} />}
      </td>
      <td role="gridcell" data-label={words.columns.desired}>
        {object ? visible(object.desired) : ""}
      </td>
      <td role="gridcell" data-label={words.columns.observed}>
        {object ? visible(object.note || object.observed) : box.type === "group" ? words.states(box.states) : ""}
      </td>
      <td role="gridcell" data-label={words.columns.by}>
        {entry ? visible(actorKey(entry)) : ""}
      </td>
      <td role="gridcell" data-label={words.columns.why}>
        {entry ? visible(entry.sentence) : ""}
      </td>
    </tr>
  );
}
