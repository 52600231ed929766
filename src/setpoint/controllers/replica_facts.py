"""Caches what a ReplicaSet needs to know of each Pod, computed once for each version of a Pod."""

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
    """The Pod is not finished and not being deleted."""
    finished: bool
    selected: bool
    terminating: bool
    has_template_labels: bool
    """The Pod has all labels of the template."""
    ready: Mapping[str, Any] | None
    """The Ready condition if it is true, otherwise None."""

    def is_available(self, min_ready_seconds: int, now: datetime) -> bool:
        return self.ready is not None and available_from(self.ready, min_ready_seconds, now) <= 0


class PodFactsCache:
    """Caches the facts about the Pods of one set. Cached objects are never modified, so facts stay valid."""

    def __init__(self, selector: Selector, template: Selector) -> None:
        self._selector = selector
        self._template = template
        self._facts: dict[int, PodFacts] = {}
        """The facts by identity of the Pod's object, which the entry keeps alive."""

    def of_all(self, pods: Iterable[Obj]) -> list[PodFacts]:
        """Return the facts about these Pods, and forget all others."""
        known, self._facts = self._facts, {}
        for pod in pods:
            self._facts[id(pod)] = known.get(id(pod)) or self.of(pod)
        return list(self._facts.values())

    def of(self, pod: Obj) -> PodFacts:
        meta = pod["metadata"]
        labels = meta.get("labels") or {}
        finished, terminating = phase(pod) in ("Succeeded", "Failed"), "deletionTimestamp" in meta
        selected = self._selector.matches(labels)
        return PodFacts(
            pod, selected and not finished and not terminating, finished, selected, terminating,
            self._template.matches(labels), ready_condition(pod),
        )  # fmt: skip
