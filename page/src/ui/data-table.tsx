/**
 * A table for long lists, as an ARIA grid: only the visible rows are in the document.
 *
 * Arrow keys, Page Up and Down, Home and End move; Enter opens; Space and Shift with an arrow check; Ctrl+A checks all.
 * On a phone each row is a card.
 */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { phone } from "../state/settings";
import { table as words } from "../words/table";
import { Icon } from "./icon";
import "./data-table.css";

export interface DataColumn<R> {
  id: string;
  label: string;
  hint?: string;
  /** A width in characters. */
  width: number;
  /** Takes a share of the space that is left over. */
  grows?: boolean;
  cell(row: R): ComponentChildren;
  /** What the column is sorted by. */
  value(row: R): string | number;
}

export interface DataTableProps<R> {
  label: string;
  rows: readonly R[];
  columns: readonly DataColumn<R>[];
  rowKey(row: R): string;
  /** What a checkbox is called. */
  rowName(row: R): string;
  /** The row that the inspector shows. */
  current?: string | null;
  open(row: R): void;
  checked: ReadonlySet<string>;
  check(keys: ReadonlySet<string>): void;
  /** `name` or `-name`. */
  sort: string;
  setSort(sort: string): void;
  empty: ComponentChildren;
}

const ROW = 36;
/** With room for a name and three lines of cells. */
const CARD = 116;
const SPARE = 8;

export function sortRows<R>(rows: readonly R[], columns: readonly DataColumn<R>[], sort: string): readonly R[] {
  const column = columns.find((one) => one.id === sort.replace(/^-/, ""));
  if (!column) return rows;
  const sign = sort.startsWith("-") ? -1 : 1;
  return rows
    .map((row) => [column.value(row), row] as const)
    .sort(([a], [b]) => sign * compare(a, b))
    .map(([, row]) => row);
}

/** Made when a column is first sorted: it takes milliseconds. */
let collator: Intl.Collator | undefined;

function compare(a: string | number, b: string | number): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  collator ??= new Intl.Collator("en", { numeric: true });
  return collator.compare(String(a), String(b));
}

export function DataTable<R>(props: DataTableProps<R>) {
  const { columns, rowKey, checked } = props;
  const rows = useMemo(() => sortRows(props.rows, columns, props.sort), [props.rows, columns, props.sort]);
  const viewport = useRef<HTMLDivElement>(null);
  const [{ top, height }, setView] = useState({ top: 0, height: 600 });
  const [activeKey, setActive] = useState<string | null>(null);
  const wantFocus = useRef(false);
  const size = phone.value ? CARD : ROW;

  useLayoutEffect(() => {
    const element = viewport.current;
    if (!element) return;
    const read = () => setView({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(read);
    observer.observe(element);
    element.addEventListener("scroll", read, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", read);
    };
  }, []);

  const found = activeKey === null ? -1 : rows.findIndex((row) => rowKey(row) === activeKey);
  const active = found >= 0 ? found : Math.max(0, rows.findIndex((row) => rowKey(row) === props.current));
  const first = Math.max(0, Math.floor(top / size) - SPARE);
  const last = Math.min(rows.length, Math.ceil((top + height) / size) + SPARE);

  useLayoutEffect(() => {
    if (!wantFocus.current) return;
    wantFocus.current = false;
    viewport.current?.querySelector<HTMLElement>(`[aria-rowindex="${active + 2}"]`)?.focus({ preventScroll: true });
  });

  const move = (to: number, extend: boolean) => {
    const next = Math.min(rows.length - 1, Math.max(0, to));
    const row = rows[next];
    const element = viewport.current;
    if (!row || !element) return;
    if (extend) {
      const keys = new Set(checked);
      for (let i = Math.min(active, next); i <= Math.max(active, next); i++) keys.add(rowKey(rows[i]!));
      props.check(keys);
    }
    setActive(rowKey(row));
    wantFocus.current = true;
    if (next * size < element.scrollTop) element.scrollTop = next * size;
    const below = (next + 1) * size - element.clientHeight;
    if (below > element.scrollTop) element.scrollTop = below;
  };

  const toggle = (key: string) => {
    const keys = new Set(checked);
    if (!keys.delete(key)) keys.add(key);
    props.check(keys);
  };

  const press = (event: KeyboardEvent) => {
    const row = rows[active];
    const page = Math.max(1, Math.floor(height / size) - 1);
    const steps: Record<string, number> = {
      ArrowDown: active + 1,
      ArrowUp: active - 1,
      j: active + 1,
      k: active - 1,
      PageDown: active + page,
      PageUp: active - page,
      Home: 0,
      End: rows.length - 1,
    };
    const inRow = (event.target as HTMLElement).getAttribute("role") === "row";
    const modified = event.ctrlKey || event.metaKey || event.altKey;
    if (modified && event.key === "a") props.check(new Set(rows.map(rowKey)));
    else if (modified) return;
    else if (event.key in steps) move(steps[event.key]!, event.shiftKey);
    else if (event.key === "Enter" && row && inRow) props.open(row);
    else if (event.key === " " && row && inRow) toggle(rowKey(row));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  // A digit is wider than most letters.
  const digits = (width: number) => Math.round(width * 9.2) / 10;
  const tracks = columns.map((one) => `minmax(${digits(one.width)}ch, ${one.grows ? "1fr" : `${digits(one.width)}ch`})`);
  const template = `2.5rem ${tracks.join(" ")}`;
  const narrowest = columns.reduce((sum, one) => sum + digits(one.width), 0);
  const minWidth = phone.value ? {} : { minWidth: `calc(2.5rem + var(--s4) + ${Math.ceil(narrowest)}ch)` };
  const all = rows.length > 0 && rows.every((row) => checked.has(rowKey(row)));
  const visibleRows = rows.slice(first, last);
  return (
    <div
      class={phone.value ? "data-table cards" : "data-table"}
      role="grid"
      aria-label={props.label}
      aria-rowcount={rows.length + 1}
      aria-colcount={columns.length + 1}
      aria-multiselectable="true"
      onKeyDown={press}
    >
      <div class="data-view" ref={viewport} role="presentation">
        <div class="data-head" role="rowgroup" style={minWidth}>
          <div class="data-row" role="row" aria-rowindex={1} style={{ gridTemplateColumns: template }}>
            <div class="data-check" role="columnheader" aria-label={words.checkAll}>
              <input
                type="checkbox"
                aria-label={words.checkAll}
                checked={all}
                disabled={rows.length === 0}
                onChange={() => props.check(all ? new Set() : new Set(rows.map(rowKey)))}
              />
            </div>
            {columns.map((column) => (
              <SortHeader key={column.id} column={column} sort={props.sort} setSort={props.setSort} />
            ))}
          </div>
        </div>
        <div class="data-rows" role="rowgroup" style={{ height: `${rows.length * size}px`, ...minWidth }}>
          {visibleRows.map((row, index) => {
            const key = rowKey(row);
            const at = first + index;
            return (
              <div
                key={key}
                class={checked.has(key) ? "data-row checked" : "data-row"}
                role="row"
                aria-rowindex={at + 2}
                aria-selected={checked.has(key)}
                aria-current={key === props.current ? "true" : undefined}
                tabIndex={at === active ? 0 : -1}
                style={{ gridTemplateColumns: template, transform: `translateY(${at * size}px)`, height: `${size}px` }}
                onFocus={() => setActive(key)}
                onClick={(event) => {
                  if ((event.target as HTMLElement).closest("a, button, input")) return;
                  if (event.ctrlKey || event.metaKey) toggle(key);
                  else props.open(row);
                }}
              >
                <div class="data-check" role="gridcell">
                  <input
                    type="checkbox"
                    tabIndex={-1}
                    aria-label={words.check(props.rowName(row))}
                    checked={checked.has(key)}
                    onChange={() => toggle(key)}
                  />
                </div>
                {columns.map((column, number) => (
                  <div key={column.id} class={number === 0 ? "data-cell first" : "data-cell"} role="gridcell">
                    {phone.value && number > 0 ? <span class="data-cell-label">{column.label} </span> : null}
                    {column.cell(row)}
                  </div>
                ))}
              </div>
            );
          })}
        </div>
        {rows.length === 0 ? (
          // A grid consists of rows and cells, also without objects.
          <div class="data-empty" role="rowgroup">
            <div class="data-empty" role="row">
              <div class="data-empty" role="gridcell" aria-colspan={columns.length + 1}>
                {props.empty}
              </div>
            </div>
          </div>
        ) : null}
      </div>
    </div>
  );
}

function SortHeader<R>({ column, sort, setSort }: { column: DataColumn<R>; sort: string; setSort(sort: string): void }) {
  const up = sort === column.id;
  const down = sort === `-${column.id}`;
  return (
    <div class="data-cell" role="columnheader" aria-sort={up ? "ascending" : down ? "descending" : "none"}>
      <button type="button" class="data-sort" title={column.hint} onClick={() => setSort(up ? `-${column.id}` : column.id)}>
        <span>{column.label}</span>
        {up || down ? <Icon name={up ? "up" : "down"} /> : null}
      </button>
    </div>
  );
}
