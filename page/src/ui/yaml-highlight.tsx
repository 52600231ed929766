/** Colours for YAML. Each line is looked at alone, so texts of several lines stay plain. */
import { visible } from "./text";
import "./yaml-highlight.css";

interface Part {
  text: string;
  kind: "" | "key" | "text" | "number" | "comment" | "mark";
}

const LINE = /^(\s*)((?:- +)*)((?:"[^"]*"|'[^']*'|[^\s#:'"[\]{},&*!|>%@`-][^:#]*?|[\w.-]+\/[\w./-]+)(?=\s*:(?:\s|$)))?(\s*:)?(.*)$/;
const NUMBER = /^(?:-?\d+(?:\.\d+)?|true|false|null|~)$/;

/** A line of YAML with its colours. */
export function YamlLine({ line }: { line: string }) {
  return (
    <>
      {parts(line).map((part, index) =>
        part.kind ? (
          <span key={index} class={`code-${part.kind}`}>
            {visible(part.text)}
          </span>
        ) : (
          visible(part.text)
        ),
      )}
    </>
  );
}

function parts(line: string): Part[] {
  if (/^\s*#/.test(line)) return [{ text: line, kind: "comment" }];
  if (/^(?:---|\.\.\.)/.test(line)) return [{ text: line, kind: "mark" }];
  const match = LINE.exec(line);
  if (!match) return [{ text: line, kind: "" }];
  const [, indent = "", dashes = "", key = "", colon = "", rest = ""] = match;
  const found: Part[] = [];
  const add = (text: string, kind: Part["kind"]) => {
    if (text) found.push({ text, kind });
  };
  add(indent, "");
  add(dashes, "mark");
  if (!colon) {
    value(key + rest, add);
    return found;
  }
  add(key, "key");
  add(colon, "mark");
  value(rest, add);
  return found;
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
