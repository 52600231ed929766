"""Who hears of which key. An event finds its subscribers by the folder of its key, not by asking each of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from setpoint.store.interface import Event, Sink

_log = logging.getLogger(__name__)

_MOST_ROUTES = 8_192


class PrefixSubscription:
    __slots__ = ("_owner", "after", "closed", "prefix", "sink")

    def __init__(self, owner: Subscriptions, prefix: str, after: int, sink: Sink) -> None:
        self._owner = owner
        self.prefix = prefix
        self.after = after
        self.sink = sink
        self.closed = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._owner.forget(self)

    def deliver(self, events: Sequence[Event], revision: int) -> None:
        if self.closed:
            return
        if events[0].revision <= self.after:
            # Only a subscription that began in the future comes here.
            events = [event for event in events if event.revision > self.after]
            if not events:
                return
        try:
            self.sink(events, revision)
        except Exception:
            # A sink that breaks its word must harm neither the other subscribers nor the writers.
            _log.exception("a subscriber of %r failed on revision %d", self.prefix, revision)


class _Route:
    """The subscriptions that keys of one folder can concern."""

    __slots__ = ("always", "deeper")

    def __init__(self, folder: str, subscriptions: Sequence[PrefixSubscription]) -> None:
        self.always = [each for each in subscriptions if folder.startswith(each.prefix)]
        self.deeper = [
            each for each in subscriptions if len(each.prefix) > len(folder) and each.prefix.startswith(folder)
        ]


class Subscriptions:
    __slots__ = ("_all", "_routes")

    def __init__(self) -> None:
        self._all: list[PrefixSubscription] = []
        # Folder (a key up to its last slash) -> route. Emptied whenever `_all` changes.
        self._routes: dict[str, _Route] = {}

    def add(self, prefix: str, after: int, sink: Sink) -> PrefixSubscription:
        subscription = PrefixSubscription(self, prefix, after, sink)
        self._all.append(subscription)
        self._routes.clear()
        return subscription

    def forget(self, subscription: PrefixSubscription) -> None:
        self._all.remove(subscription)
        self._routes.clear()

    def publish(self, events: Sequence[Event], revision: int) -> None:
        """One call for each subscription that has something to hear. Who hears what is settled before the first call:
        a sink may open and close subscriptions."""
        if not self._all:
            return
        routes = self._routes
        heard: dict[PrefixSubscription, list[Event]] = {}
        for event in events:
            key = event.key
            folder = key[: key.rfind("/") + 1]
            route = routes.get(folder)
            if route is None:
                if len(routes) >= _MOST_ROUTES:
                    routes.clear()
                route = routes[folder] = _Route(folder, self._all)
            for subscription in route.always:
                heard.setdefault(subscription, []).append(event)
            for subscription in route.deeper:
                if key.startswith(subscription.prefix):
                    heard.setdefault(subscription, []).append(event)
        for subscription, its_events in heard.items():
            subscription.deliver(its_events, revision)
