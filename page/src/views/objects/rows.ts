/** The rows and columns of the feed `objects`, as the table shows them. */
import { createElement } from "preact";
import type { ObjectRef } from "../../state/refs";
import type { DataColumn } from "../../ui/data-table";
import { Phase, PHASES } from "../../ui/phase";
import type { PhaseName } from "../../ui/phase";
import { visible } from "../../ui/text";
import { shownNow, shortDuration } from "../../ui/time";
import { objects as words } from "../../words/objects";

export interface ObjectRow {
  ref: ObjectRef;
  uid: string;
  cells: unknown[];
  phase: PhaseName | null;
  note: string;
  created: string;
  labels: Record<string, string>;
}

export interface TableColumns {
  columns: { name: string; type: string; format?: string; priority: number; description?: string }[];
  /** The index of the column with the age; -1 if there is none. */
  age: number;
  /** The number of objects that are not shown. */
  more: number;
}

export const COLUMNS = "columns";

const MOST_WIDTH = 44;
const MEASURED = 300;
/** The longest age that is likely to come: columns are measured now, and ages grow. */
const LONG_AGE = "9m59s";

const WIDE = /[<>=+%@mwMWOQ]/g;

/** The width of a cell in characters, with its padding. */
function charactersOf(text: string): number {
  return text.length + 3 + Math.ceil((text.match(WIDE)?.length ?? 0) / 2);
}

export function rowKey(row: ObjectRow): string {
  return `${row.ref.namespace}/${row.ref.name}`;
}

export function cellText(cell: unknown): string {
  if (cell === null || cell === undefined) return "";
  return visible(typeof cell === "object" ? JSON.stringify(cell) : String(cell));
}

/** Rows whose name, namespace, cells or labels contain each word of the filter. */
export function filterRows(rows: readonly ObjectRow[], filter: string): readonly ObjectRow[] {
  const wanted = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (wanted.length === 0) return rows;
  return rows.filter((row) => {
    const labels = Object.entries(row.labels).map(([key, value]) => `${key}=${value}`);
    const text = [row.ref.namespace, row.ref.name, row.phase ?? "", row.note, ...row.cells.map(cellText), ...labels].join(" ").toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

/**
 * The columns of the server, without those of low priority, with the phase after the name.
 *
 * `widest` remembers how wide each column has been. Columns only grow: they do not jump while objects change or while
 * the page moves through the past.
 */
export function columnsOf(
  table: TableColumns | undefined,
  rows: readonly ObjectRow[],
  namespaces: boolean,
  widest: Map<string, number>,
): DataColumn<ObjectRow>[] {
  const sample = rows.slice(0, MEASURED);
  const width = (label: string, texts: string[]) => {
    const wanted = Math.max(widest.get(label) ?? 5, label.length + 3, ...texts.map(charactersOf));
    widest.set(label, Math.min(MOST_WIDTH, wanted));
    return widest.get(label)!;
  };
  const columns: DataColumn<ObjectRow>[] = [];
  const definitions = table?.columns ?? [];
  for (const [index, column] of definitions.entries()) {
    if (column.priority > 0) continue;
    const isAge = index === table?.age;
    const text = (row: ObjectRow) => (isAge ? age(row) : cellText(row.cells[index]));
    const isName = index === 0;
    columns.push({
      id: column.name.toLowerCase().replaceAll(" ", "-"),
      label: visible(column.name),
      hint: visible(column.description ?? ""),
      width: width(column.name, isAge ? [LONG_AGE, ...sample.map(text)] : sample.map(text)) + (isName ? 2 : 0),
      grows: isName,
      cell: text,
      value: (row) => (isAge ? -Date.parse(row.created) || 0 : sortable(row.cells[index])),
    });
    if (!isName) continue;
    if (namespaces) {
      columns.push({
        id: "namespace",
        label: words.namespaceColumn,
        width: width(words.namespaceColumn, sample.map((row) => row.ref.namespace)),
        cell: (row) => visible(row.ref.namespace),
        value: (row) => row.ref.namespace,
      });
    }
    if (widest.has(words.phaseColumn) || sample.some((row) => row.phase)) {
      columns.push({
        id: "phase",
        label: words.phaseColumn,
        hint: words.phaseHint,
        // The notes come and go: they have a share of the free space instead of a width of their own.
        width: width(words.phaseColumn, Object.values(PHASES).map((phase) => `${phase.shape} ${phase.word}`)),
        grows: true,
        cell: (row) => (row.phase ? createElement(PhaseCell, row) : ""),
        value: (row) => row.phase ?? "",
      });
    }
  }
  return columns;
}

function PhaseCell({ phase, note }: ObjectRow) {
  const shape = createElement(Phase, { phase: phase! });
  if (!note) return shape;
  return createElement("span", { title: visible(note) }, shape, createElement("span", { class: "soft" }, ` · ${visible(note)}`));
}

function sortable(cell: unknown): string | number {
  return typeof cell === "number" ? cell : cellText(cell);
}

function age(row: ObjectRow): string {
  const created = Date.parse(row.created);
  return Number.isNaN(created) ? "" : shortDuration(shownNow.value - created);
}
