/** The difference of two texts, with parts that are the same folded away. */
import { visible } from "../../ui/text";
import { editor as words } from "../../words/editor";
import { diffLines } from "./diff";
import type { DiffLine } from "./diff";
import "./difference.css";

const CONTEXT = 3;

export function Difference(props: { title: string; before: string; after: string }) {
  const lines = diffLines(props.before, props.after);
  const shown = folded(lines);
  return (
    <section class="editor-diff" aria-label={visible(props.title)}>
      <h3>{visible(props.title)}</h3>
      {lines.every((line) => line.mark === " ") ? (
        <p class="faint">{words.noDifference}</p>
      ) : (
        <pre tabIndex={0}>
          {shown.map((line, index) =>
            typeof line === "number" ? (
              <div key={index} class="diff-fold">
                {words.unchangedLines(line)}
              </div>
            ) : (
              <div key={index} class={line.mark === "+" ? "diff-added" : line.mark === "-" ? "diff-removed" : "diff-same"}>
                {`${line.mark} ${visible(line.text)}`}
              </div>
            ),
          )}
        </pre>
      )}
    </section>
  );
}

/** Lines near a change; a number stands for so many others. */
function folded(lines: DiffLine[]): (DiffLine | number)[] {
  const near = lines.map((_, at) => lines.slice(Math.max(at - CONTEXT, 0), at + CONTEXT + 1).some((line) => line.mark !== " "));
  const found: (DiffLine | number)[] = [];
  lines.forEach((line, at) => {
    const last = found.at(-1);
    if (near[at]) found.push(line);
    else if (typeof last === "number") found[found.length - 1] = last + 1;
    else found.push(1);
  });
  return found;
}
