"""What a set of thousands of Pods asks of each of them, read once for each version of a Pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from setpoint.controllers.pods import available_from, phase, ready_condition
from setpoint.meta.selectors import Selector

Obj = dict[str, Any]


class PodFacts(NamedTuple):
    pod: Obj
    active: bool
    """It counts."""
    over: bool
    selected: bool
    leaving: bool
    labelled: bool
    """It has all labels of the template."""
    ready: Mapping[str, Any] | None
    """The condition that says so."""

    def is_available(self, min_ready_seconds: int, now: datetime) -> bool:
        return self.ready is not None and available_from(self.ready, min_ready_seconds, now) <= 0


class Glance:
    """The Pods of one set. Objects of a cache are never changed, so that what was read from one of them stays true."""

    def __init__(self, selector: Selector, template: Selector) -> None:
        self._selector = selector
        self._template = template
        self._known: dict[int, PodFacts] = {}
        """By the identity of the Pod's object, which is kept alive by being in here."""

    def over(self, pods: Iterable[Obj]) -> list[PodFacts]:
        known, self._known = self._known, {}
        for pod in pods:
            self._known[id(pod)] = known.get(id(pod)) or self.of(pod)
        return list(self._known.values())

    def of(self, pod: Obj) -> PodFacts:
        meta = pod["metadata"]
        labels = meta.get("labels") or {}
        over, leaving = phase(pod) in ("Succeeded", "Failed"), "deletionTimestamp" in meta
        selected = self._selector.matches(labels)
        return PodFacts(
            pod, selected and not over and not leaving, over, selected, leaving, self._template.matches(labels),
            ready_condition(pod),
        )  # fmt: skip
