"""Delivery of events to subscriptions. Routes are cached by key folder, so an event does not visit every
subscription."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from setpoint.store.interface import Event, Sink

_log = logging.getLogger(__name__)

_MAX_ROUTES = 8_192


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
            self._owner.remove(self)

    def deliver(self, events: Sequence[Event], revision: int) -> None:
        if self.closed:
            return
        if events[0].revision <= self.after:
            # Only a subscription that starts at a future revision gets here.
            events = [event for event in events if event.revision > self.after]
            if not events:
                return
        try:
            self.sink(events, revision)
        except Exception:
            # A sink that raises must affect neither the other subscribers nor the writers.
            _log.exception("a subscriber of %r failed on revision %d", self.prefix, revision)


class _Route:
    """The subscriptions that keys of one folder can match: all of its keys (`matching`), or some (`narrower`)."""

    __slots__ = ("matching", "narrower")

    def __init__(self, folder: str, subscriptions: Sequence[PrefixSubscription]) -> None:
        self.matching = [each for each in subscriptions if folder.startswith(each.prefix)]
        self.narrower = [
            each for each in subscriptions if len(each.prefix) > len(folder) and each.prefix.startswith(folder)
        ]


class Subscriptions:
    __slots__ = ("_all", "_routes")

    def __init__(self) -> None:
        self._all: list[PrefixSubscription] = []
        # Folder (a key up to its last slash) -> route. Cleared whenever `_all` changes.
        self._routes: dict[str, _Route] = {}

    def add(self, prefix: str, after: int, sink: Sink) -> PrefixSubscription:
        subscription = PrefixSubscription(self, prefix, after, sink)
        self._all.append(subscription)
        self._routes.clear()
        return subscription

    def remove(self, subscription: PrefixSubscription) -> None:
        self._all.remove(subscription)
        self._routes.clear()

    def publish(self, events: Sequence[Event], revision: int) -> None:
        """Call the sink of each subscription that matches an event, once.

        The deliveries are determined before the first call: a sink may open and close subscriptions."""
        if not self._all:
            return
        routes = self._routes
        deliveries: dict[PrefixSubscription, list[Event]] = {}
        for event in events:
            key = event.key
            folder = key[: key.rfind("/") + 1]
            route = routes.get(folder)
            if route is None:
                if len(routes) >= _MAX_ROUTES:
                    routes.clear()
                route = routes[folder] = _Route(folder, self._all)
            for subscription in route.matching:
                deliveries.setdefault(subscription, []).append(event)
            for subscription in route.narrower:
                if key.startswith(subscription.prefix):
                    deliveries.setdefault(subscription, []).append(event)
        for subscription, subscribed in deliveries.items():
            subscription.deliver(subscribed, revision)
