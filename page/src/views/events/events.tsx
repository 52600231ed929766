/** The events of the namespace, or of the cluster. */
import { useMemo } from "preact/hooks";
import { useFeed } from "../../link/hooks";
import { route, setParam } from "../../router";
import { namespace } from "../../state/place";
import { Button } from "../../ui/button";
import { EventList, latestFirst } from "../../ui/event-list";
import type { EventItem } from "../../ui/event-list";
import { Failure, Loading, Notice } from "../../ui/notice";
import { events as words } from "../../words/events";

export default function Events() {
  const feed = useFeed<EventItem>("events", { namespace: namespace.value });
  const { filter = "", warnings = "" } = route.value.params;
  const all = useMemo(() => latestFirst(feed.items), [feed.revision, feed.items]);
  const shown = useMemo(() => {
    const wanted = filter.toLowerCase();
    return all.filter(([, event]) => {
      if (warnings && event.type !== "Warning") return false;
      const { reason, message, source, about } = event;
      return `${reason} ${message} ${source} ${about.kind}/${about.namespace}/${about.name}`.toLowerCase().includes(wanted);
    });
  }, [all, filter, warnings]);
  if (feed.error) return <Failure error={feed.error} feature={words.title} />;
  const warned = all.filter(([, event]) => event.type === "Warning").length;
  return (
    <div class="events-view">
      <div class="events-bar">
        <h2>
          {words.title} <span class="visually-hidden">{words.count(all.length, warned)}</span>
        </h2>
        <input
          class="field"
          type="search"
          aria-label={words.filter}
          placeholder={words.filter}
          autocomplete="off"
          value={filter}
          onInput={(event) => setParam("filter", event.currentTarget.value)}
        />
        <Button aria-pressed={warnings !== ""} onClick={() => setParam("warnings", warnings ? null : "1")}>
          {words.onlyWarnings}
        </Button>
      </div>
      <div class="events-scroll" tabIndex={0} role="region" aria-label={words.list}>
        {!feed.synced ? (
          <Loading />
        ) : shown.length === 0 ? (
          <Notice title={words.none}>
            <p>{words.noneHere}</p>
          </Notice>
        ) : (
          <EventList items={shown} about namespaces={namespace.value === ""} />
        )}
      </div>
    </div>
  );
}
