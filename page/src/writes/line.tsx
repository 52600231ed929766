/** One write as a line: its part as a mark, the sentence, and when it was. */
import { select } from "../state/selection";
import { visible } from "../ui/text";
import { Ago } from "../ui/time";
import { story as words } from "../words/story";
import type { WriteEntry } from "./writes";
import "./line.css";

export function Line({ entry }: { entry: WriteEntry }) {
  const main = entry.objects[0];
  return (
    <span class={`write-line part-${main?.part ?? "status"}`}>
      <span class="write-part">{main?.part}</span>
      <button type="button" class="write-sentence" onClick={() => main && select(main, { tab: "why" })}>
        {visible(entry.sentence)}
      </button>
      <span class="faint write-when" title={words.revision(entry.revision)}>
        <Ago time={entry.at ? new Date(entry.at).toISOString() : undefined} />
      </span>
    </span>
  );
}
