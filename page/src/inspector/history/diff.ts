/** The differences between two objects as lines: YAML-like text, compared by the longest common subsequence. */

export interface DiffLine {
  sign: " " | "+" | "-";
  text: string;
}

const HIDDEN = new Set(["managedFields", "resourceVersion", "uid", "generation"]);
const MOST_CELLS = 4_000_000;

/** An object as indented lines, without metadata of the system. */
export function linesOf(value: unknown): string[] {
  const lines: string[] = [];
  write(value, "", "", lines, true);
  return lines;
}

function write(value: unknown, indent: string, lead: string, lines: string[], top = false): void {
  if (Array.isArray(value)) {
    if (value.length === 0) lines.push(`${indent}${lead}[]`);
    else if (lead) lines.push(`${indent}${lead.trimEnd()}`);
    for (const one of value) item(one, indent, lines);
  } else if (value !== null && typeof value === "object") {
    const entries = Object.entries(value).sort(([a], [b]) => rank(a, top) - rank(b, top) || (a < b ? -1 : 1));
    if (entries.length === 0) lines.push(`${indent}${lead}{}`);
    else if (lead) lines.push(`${indent}${lead.trimEnd()}`);
    const inner = lead ? `${indent}  ` : indent;
    for (const [name, one] of entries) {
      if (top && name === "metadata" && one !== null && typeof one === "object") {
        const shown = Object.fromEntries(Object.entries(one).filter(([field]) => !HIDDEN.has(field)));
        write(shown, inner, "metadata: ", lines);
      } else {
        write(one, inner, `${name}: `, lines);
      }
    }
  } else if (typeof value === "string" && value.includes("\n")) {
    lines.push(`${indent}${lead}|`);
    for (const line of value.split("\n")) lines.push(`${indent}  ${line}`);
  } else {
    lines.push(`${indent}${lead}${value === null ? "null" : String(value)}`);
  }
}

const FIRST = ["apiVersion", "kind", "metadata", "name", "namespace"];

/** Names first, and the status of an object last; others are in the order of the alphabet, so that it is always the same. */
function rank(name: string, top: boolean): number {
  const place = FIRST.indexOf(name);
  return top && name === "status" ? 100 : place < 0 ? 50 : place;
}

function item(value: unknown, indent: string, lines: string[]): void {
  const inner: string[] = [];
  write(value, "", "", inner);
  lines.push(`${indent}- ${inner[0] ?? ""}`);
  for (const line of inner.slice(1)) lines.push(`${indent}  ${line}`);
}

/** The lines of both texts in one list. Texts that are too long for the comparison are shown one after the other. */
export function diffLines(from: readonly string[], to: readonly string[]): DiffLine[] {
  let start = 0;
  while (start < from.length && start < to.length && from[start] === to[start]) start += 1;
  let end = 0;
  while (end < from.length - start && end < to.length - start && from[from.length - 1 - end] === to[to.length - 1 - end]) end += 1;
  const same = (text: string): DiffLine => ({ sign: " ", text });
  return [
    ...from.slice(0, start).map(same),
    ...middle(from.slice(start, from.length - end), to.slice(start, to.length - end)),
    ...from.slice(from.length - end).map(same),
  ];
}

function middle(from: readonly string[], to: readonly string[]): DiffLine[] {
  const [rows, columns] = [from.length, to.length];
  const found: DiffLine[] = [];
  if (rows * columns > MOST_CELLS) {
    return [...from.map((text): DiffLine => ({ sign: "-", text })), ...to.map((text): DiffLine => ({ sign: "+", text }))];
  }
  const width = columns + 1;
  const lengths = new Uint16Array((rows + 1) * width);
  for (let a = rows - 1; a >= 0; a -= 1) {
    for (let b = columns - 1; b >= 0; b -= 1) {
      lengths[a * width + b] =
        from[a] === to[b]
          ? lengths[(a + 1) * width + b + 1]! + 1
          : Math.max(lengths[(a + 1) * width + b]!, lengths[a * width + b + 1]!);
    }
  }
  let a = 0;
  let b = 0;
  while (a < rows || b < columns) {
    if (a < rows && b < columns && from[a] === to[b]) {
      found.push({ sign: " ", text: from[a]! });
      a += 1;
      b += 1;
    } else if (b >= columns || (a < rows && lengths[(a + 1) * width + b]! >= lengths[a * width + b + 1]!)) {
      found.push({ sign: "-", text: from[a]! });
      a += 1;
    } else {
      found.push({ sign: "+", text: to[b]! });
      b += 1;
    }
  }
  return found;
}

/** The changed lines with some around them; a number stands for lines that are left out. */
export function shortened(lines: readonly DiffLine[], around = 3): (DiffLine | number)[] {
  const shown = new Uint8Array(lines.length);
  lines.forEach((line, at) => {
    if (line.sign === " ") return;
    shown.fill(1, Math.max(0, at - around), Math.min(lines.length, at + around + 1));
  });
  const found: (DiffLine | number)[] = [];
  let hidden = 0;
  lines.forEach((line, at) => {
    if (shown[at]) {
      if (hidden) found.push(hidden);
      hidden = 0;
      found.push(line);
    } else {
      hidden += 1;
    }
  });
  if (hidden && found.length > 0) found.push(hidden);
  return found;
}
