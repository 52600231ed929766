/** Events, the latest first; warnings are marked by shape, word and colour. */
import { refOf } from "../state/kinds";
import { select } from "../state/selection";
import { events as words } from "../words/events";
import { Icon } from "./icon";
import { visible } from "./text";
import { Ago } from "./time";
import "./event-list.css";

export interface EventItem {
  type: string;
  reason: string;
  message: string;
  count: number;
  first: string;
  last: string;
  source: string;
  /** Orders events of the same second. */
  revision: number;
  about: { apiVersion: string; kind: string; namespace: string; name: string };
}

export function latestFirst(items: Iterable<[string, EventItem]>): [string, EventItem][] {
  // Some times have fractions of a second and others do not: within a second, the revision decides.
  return [...items].sort(([, a], [, b]) => {
    const [early, late] = [a.last.slice(0, 19), b.last.slice(0, 19)];
    return early < late ? 1 : early > late ? -1 : b.revision - a.revision;
  });
}

/** `about`: events of several objects name theirs; `namespaces`: those of several namespaces theirs. */
export function EventList(props: { items: readonly [string, EventItem][]; about: boolean; namespaces?: boolean }) {
  const { items, about, namespaces = false } = props;
  return (
    <ol class="event-list" aria-label={words.list}>
      {items.map(([key, event]) => (
        <EventEntry key={key} event={event} about={about} namespaces={namespaces} />
      ))}
    </ol>
  );
}

function EventEntry({ event, about, namespaces }: { event: EventItem; about: boolean; namespaces: boolean }) {
  const warning = event.type === "Warning";
  const target = about ? refOf(event.about) : null;
  const name = visible(`${event.about.kind.toLowerCase()}/${event.about.name}`);
  return (
    <li class={warning ? "event warning" : "event"}>
      <span class="event-mark">
        <Icon name={warning ? "warning" : "info"} />
        <span class="visually-hidden">{warning ? words.warning : words.normal}</span>
      </span>
      <div class="event-body">
        <p class="event-head">
          <strong>{visible(event.reason)}</strong>
          {about ? (
            target ? (
              <button type="button" class="event-about" onClick={() => select(target)}>
                {name}
              </button>
            ) : (
              <span>{name}</span>
            )
          ) : null}
          {event.count > 1 ? <span class="badge">{words.times(event.count)}</span> : null}
        </p>
        <p class="event-message">{visible(event.message)}</p>
        <p class="event-foot faint">
          <Ago time={event.last} />
          {event.source ? ` · ${visible(event.source)}` : ""}
          {namespaces && event.about.namespace ? ` · ${words.namespace(visible(event.about.namespace))}` : ""}
        </p>
      </div>
    </li>
  );
}
