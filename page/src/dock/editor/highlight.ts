/** Splits a line of YAML into parts for colours. It looks at the line alone, so texts of several lines stay plain. */

export interface Part {
  text: string;
  kind: "" | "key" | "text" | "number" | "comment" | "mark";
}

const LINE = /^(\s*)((?:- +)*)((?:"[^"]*"|'[^']*'|[^\s#:'"[\]{},&*!|>%@`-][^:#]*?|[\w.-]+\/[\w./-]+)(?=\s*:(?:\s|$)))?(\s*:)?(.*)$/;
const NUMBER = /^(?:-?\d+(?:\.\d+)?|true|false|null|~)$/;

export function highlight(line: string): Part[] {
  if (/^\s*#/.test(line)) return [{ text: line, kind: "comment" }];
  if (/^(?:---|\.\.\.)/.test(line)) return [{ text: line, kind: "mark" }];
  const match = LINE.exec(line);
  if (!match) return [{ text: line, kind: "" }];
  const [, indent = "", dashes = "", key = "", colon = "", rest = ""] = match;
  const parts: Part[] = [];
  const add = (text: string, kind: Part["kind"]) => {
    if (text) parts.push({ text, kind });
  };
  add(indent, "");
  add(dashes, "mark");
  if (!colon) {
    value(key + rest, add);
    return parts;
  }
  add(key, "key");
  add(colon, "mark");
  value(rest, add);
  return parts;
}

function value(text: string, add: (text: string, kind: Part["kind"]) => void): void {
  const comment = /(?:^|\s)#.*$/.exec(text);
  const bare = comment && !/^\s*["']/.test(text) ? text.slice(0, comment.index) : text;
  const trimmed = bare.trim();
  if (NUMBER.test(trimmed)) add(bare, "number");
  else if (/^["']/.test(trimmed)) add(bare, "text");
  else if (/^[|>&*!]/.test(trimmed)) add(bare, "mark");
  else add(bare, trimmed ? "text" : "");
  add(text.slice(bare.length), "comment");
}
