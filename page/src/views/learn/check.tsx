/** A task: what is to be true, whether it is, what is wrong with the present state, and hints in steps. */
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { visible } from "../../ui/text";
import { learn as words } from "../../words/learn";
import { Blocks } from "./markdown";
import { current, say } from "./session";

export function CheckPart({ id, title, hints }: { id: string; title: string; hints: number }) {
  const state = current.value;
  const verdict = state?.checks[id];
  const met = id in (state?.progress.checks ?? {});
  const shown = state?.hints[id] ?? [];
  const offered = state?.offered === id;
  return (
    <div class={met ? "learn-check met" : "learn-check"} role="group" aria-label={words.check} data-check={id} data-met={met}>
      <span class="learn-mark">{met ? <Icon name="check" /> : null}</span>
      <div>
        <p class="learn-check-text" role="status">
          <span class="visually-hidden">{met ? words.done : words.open}: </span>
          {visible(verdict?.message ?? title)}
        </p>
        {!met && verdict?.note ? <p class="learn-note">{visible(verdict.note)}</p> : null}
        {shown.map((blocks, index) => (
          <div key={index} class="learn-hint">
            <Blocks blocks={blocks} />
          </div>
        ))}
        {!met && shown.length < hints ? (
          <div class="learn-actions">
            {offered ? <span>{words.offer}</span> : null}
            <Button small look={offered ? "primary" : "plain"} onClick={() => say({ hint: id })}>
              {shown.length > 0 ? words.moreHint : words.hint}
            </Button>
          </div>
        ) : null}
      </div>
    </div>
  );
}
