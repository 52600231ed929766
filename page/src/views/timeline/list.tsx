/** The text form of the timeline: the writes, the newest first. */
import { useMemo, useState } from "preact/hooks";
import { settle } from "../../timeline/scrub";
import { spanAt } from "../../timeline/spans";
import type { Span } from "../../timeline/spans";
import { describeSpan, revisionText, timeText } from "../../timeline/text";
import { findKind } from "../../state/kinds";
import { select } from "../../state/selection";
import { Button } from "../../ui/button";
import { visible } from "../../ui/text";
import { timeline as words } from "../../words/timeline";
import { Mark } from "./marks";

const AT_ONCE = 100;

function matches(span: Span, wanted: readonly string[]): boolean {
  if (wanted.length === 0) return true;
  const text = [
    ...Object.keys(span.lanes),
    describeSpan(span),
    span.write?.verb ?? "",
    ...(span.write?.objects.map((one) => `${one.resource}/${one.namespace}/${one.name}`) ?? []),
    String(span.last),
  ]
    .join(" ")
    .toLowerCase();
  return wanted.every((word) => text.includes(word));
}

export function WriteList({ spans, current }: { spans: readonly Span[]; current: number | null }) {
  const [filter, setFilter] = useState("");
  const [shown, setShown] = useState(AT_ONCE);
  const wanted = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = useMemo(() => spans.filter((span) => matches(span, wanted)).toReversed(), [spans, filter]);
  const currentSpan = current === null ? null : spans[spanAt(spans, current)];
  return (
    <section class="timeline-list" aria-labelledby="timeline-list">
      <header>
        <h2 id="timeline-list">{words.list}</h2>
        <input
          class="field"
          type="search"
          aria-label={words.filter}
          placeholder={words.filterHint}
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
      </header>
      <table>
        <thead>
          <tr>
            <th scope="col">{words.columns.when}</th>
            <th scope="col">{words.columns.who}</th>
            <th scope="col">{words.columns.what}</th>
            <th scope="col">{words.columns.revision}</th>
          </tr>
        </thead>
        <tbody>
          {found.slice(0, shown).map((span) => (
            <WriteRow key={span.first} span={span} current={span === currentSpan} />
          ))}
        </tbody>
      </table>
      {found.length === 0 ? <p class="faint">{words.listEmpty}</p> : null}
      {found.length > shown ? (
        <Button small onClick={() => setShown(shown + 5 * AT_ONCE)}>
          {words.more(Math.min(5 * AT_ONCE, found.length - shown))}
        </Button>
      ) : null}
    </section>
  );
}

function WriteRow({ span, current }: { span: Span; current: boolean }) {
  const { write } = span;
  const object = write?.objects[0];
  const kind = object ? findKind(object.group, object.resource) : null;
  const open = () => {
    if (!object || !kind) return;
    const { group, version, resource } = kind;
    select({ group, version, resource, kind: kind.kind, namespace: object.namespace, name: object.name });
  };
  const who = write ? write.lane : Object.keys(span.lanes).join(", ");
  return (
    <tr class={current ? "current" : ""} aria-current={current ? "true" : undefined}>
      <td class="number">{span.end ? <time dateTime={new Date(span.end).toISOString()}>{timeText(span.end)}</time> : "–"}</td>
      <td>{visible(who)}</td>
      <td>
        <span class="timeline-what">
          {write ? <Mark part={write.part} /> : null}
          {object && kind ? (
            <button type="button" class="timeline-link" onClick={open}>
              {describeSpan(span)}
            </button>
          ) : (
            <span>{describeSpan(span)}</span>
          )}
        </span>
      </td>
      <td>
        <Button small look="plain" aria-label={words.goTo(revisionText(span.last))} onClick={() => settle(span.last)}>
          <span class="number">{revisionText(span.last)}</span>
        </Button>
      </td>
    </tr>
  );
}
