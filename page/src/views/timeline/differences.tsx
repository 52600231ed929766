/** What changed between two revisions. */
import { useEffect, useState } from "preact/hooks";
import { announce } from "../../a11y/live";
import { useFeed } from "../../link/hooks";
import { logical } from "../../state/place";
import type { ObjectRef } from "../../state/refs";
import { select } from "../../state/selection";
import { revisionText } from "../../timeline/text";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { Failure, Loading } from "../../ui/notice";
import { visible } from "../../ui/text";
import { timeline as words } from "../../words/timeline";

interface Difference {
  sign: string;
  ref: ObjectRef;
  text: string;
}

interface Total {
  created: number;
  changed: number;
  deleted: number;
  more: number;
}

export interface DifferencesProps {
  range: readonly [number, number] | null;
  oldest: number;
  newest: number;
  choose(from: number, to: number): void;
  close(): void;
}

const DELAY = 250;

export function Differences({ range, oldest, newest, choose, close }: DifferencesProps) {
  // Compare when the range rests: while it is dragged it changes all the time.
  const [settled, setSettled] = useState(range);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(range), DELAY);
    return () => window.clearTimeout(timer);
  }, [range?.[0], range?.[1]]);
  const feed = useFeed<Difference | Total>("differences", settled ? { from: settled[0], to: settled[1] } : null, logical.value);
  const total = feed.items.get("total") as Total | undefined;
  const text = total ? words.rangeCounts(total.created, total.changed, total.deleted) : "";
  useEffect(() => {
    if (text) announce(text);
  }, [text]);
  const number = (label: string, value: number, set: (value: number) => void) => (
    <label>
      {label}
      <input
        class="field"
        type="number"
        min={oldest}
        max={newest}
        value={value}
        onChange={(event) => {
          const next = event.currentTarget.valueAsNumber;
          if (Number.isSafeInteger(next)) set(Math.min(newest, Math.max(oldest, next)));
        }}
      />
    </label>
  );
  const [from, to] = range ?? [oldest, newest];
  const found = [...feed.items].filter(([key]) => key !== "total").map(([key, item]) => [key, item as Difference] as const);
  return (
    <section class="timeline-range" aria-labelledby="timeline-range">
      <header>
        <h2 id="timeline-range">{range ? words.rangeTitle(revisionText(from), revisionText(to)) : words.comparing}</h2>
        <div class="timeline-range-fields">
          {number(words.rangeFrom, from, (value) => choose(Math.min(value, to), to))}
          {number(words.rangeTo, to, (value) => choose(from, Math.max(value, from)))}
          <Button small look="plain" aria-label={words.closeRange} onClick={close}>
            <Icon name="close" />
          </Button>
        </div>
      </header>
      {settled && feed.error ? <Failure error={feed.error} feature={words.feature} /> : null}
      {settled && !feed.synced ? <Loading /> : null}
      {text ? <p>{text}</p> : null}
      {found.length > 0 ? (
        <ul class="timeline-differences">
          {found.map(([key, one]) => (
            <li key={key}>
              <span class={`timeline-sign ${words.signs[one.sign] ?? ""}`} title={words.signs[one.sign]}>
                <span aria-hidden="true">{one.sign}</span>
                <span class="visually-hidden">{words.signs[one.sign]}</span>
              </span>
              <button type="button" class="timeline-link" onClick={() => select(one.ref)}>
                {one.ref.kind} {visible(one.ref.name)}
              </button>
              {one.ref.namespace ? <span class="faint">{visible(one.ref.namespace)}</span> : null}
              <span>{visible(one.text)}</span>
            </li>
          ))}
        </ul>
      ) : null}
      {total?.more ? <p class="faint">{words.rangeMore(total.more)}</p> : null}
    </section>
  );
}
