/** The tab with the events about the selected object. */
import { useFeed } from "../../link/hooks";
import { EventList, latestFirst } from "../../ui/event-list";
import type { EventItem } from "../../ui/event-list";
import { Failure, Loading, Notice } from "../../ui/notice";
import { events as words } from "../../words/events";
import type { TabProps } from "../catalog";

export default function Events({ target }: TabProps) {
  const { kind, namespace, name } = target;
  const feed = useFeed<EventItem>("events", { kind, namespace, name });
  if (feed.error) return <Failure error={feed.error} feature={words.title} />;
  if (!feed.synced) return <Loading />;
  if (feed.items.size === 0) {
    return (
      <Notice title={words.none} small>
        <p>{words.noneAbout}</p>
      </Notice>
    );
  }
  return <EventList items={latestFirst(feed.items)} about={false} />;
}
