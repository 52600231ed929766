/** Completions of a line: what they have in common, and how they are listed. */
import { printable } from "../ui/text";
import { textWidth } from "./width";

export interface Completions {
  start: number;
  words: readonly (readonly [string, string])[];
  space: boolean;
  total: number;
}

const COLUMN_GAP = 2;

export function commonStart(a: string, b: string): string {
  let at = 0;
  while (at < a.length && a[at] === b[at]) at += 1;
  return a.slice(0, at);
}

export function unquoted(text: string): string {
  return text.replace(/['"\\]/g, "");
}

export function quoted(text: string): string {
  return /[\s'"\\$`;&|<>()*?[\]]/.test(text) ? `'${text.replaceAll("'", "'\\''")}'` : text;
}

export function columns(found: Completions, width: number): string[] {
  const names = found.words.map(([word]) => printable(word));
  const size = Math.max(...names.map(textWidth)) + COLUMN_GAP;
  const count = Math.max(Math.floor(width / size), 1);
  const rows = Math.ceil(names.length / count);
  return Array.from({ length: rows }, (_, row) =>
    Array.from({ length: count }, (_unused, column) => names[column * rows + row])
      .filter((name) => name !== undefined)
      .map((name) => name + " ".repeat(size - textWidth(name)))
      .join("")
      .trimEnd(),
  );
}

export function described(found: Completions, width: number): string[] {
  const shown = found.words.map(([word, about]) => [printable(word), printable(about)] as const);
  const size = Math.min(Math.max(...shown.map(([word]) => textWidth(word))), 40) + COLUMN_GAP;
  return shown.map(([word, about]) => {
    const left = width - size - 1;
    const text = about.length > left ? `${about.slice(0, Math.max(left - 1, 0))}…` : about;
    return `${word}${" ".repeat(Math.max(size - textWidth(word), 1))}\x1b[2m${text}\x1b[0m`;
  });
}
