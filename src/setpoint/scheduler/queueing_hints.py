"""The events that plugins of all profiles registered, indexed by resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from setpoint.scheduler.cluster_events import ClusterEvent

Obj = dict[str, Any]
Hint = Callable[[Obj, Obj | None, Obj | None], bool]


class QueueingHints:
    def __init__(self) -> None:
        self._by_resource: dict[str, list[tuple[str, str, ClusterEvent, Hint | None]]] = {}
        self._known: dict[ClusterEvent, dict[tuple[str, str], list[Hint | None]]] = {}

    def register(self, profile: str, plugin: str, interests: Iterable[tuple[ClusterEvent, Hint | None]]) -> None:
        for event, hint in interests:
            self._by_resource.setdefault(event.resource, []).append((profile, plugin, event, hint))
        self._known.clear()

    def interested(self, event: ClusterEvent) -> dict[tuple[str, str], list[Hint | None]]:
        """Return the hints of the event by profile and plugin."""
        found = self._known.get(event)
        if found is None:
            found = self._known[event] = {}
            for profile, plugin, wanted, hint in self._by_resource.get(event.resource, ()):
                if wanted.action & event.action:
                    found.setdefault((profile, plugin), []).append(hint)
        return found

    def could_help(
        self, profile: str, plugins: Iterable[str], pod: Obj, event: ClusterEvent, old: Obj | None, new: Obj | None
    ) -> bool:
        interested = self.interested(event)
        return any(
            hint is None or hint(pod, old, new) for plugin in plugins for hint in interested.get((profile, plugin), ())
        )
