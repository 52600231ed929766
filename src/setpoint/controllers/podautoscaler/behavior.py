"""Applies stabilization windows and scaling policies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

Rules = Mapping[str, Any]

_RETENTION = 3600.0
"""Seconds for which history is retained, the longest stabilization window and policy period."""


class Limited(NamedTuple):
    replicas: int
    reason: str
    message: str


class History:
    """Recent recommendations and scalings by key; times are monotonic seconds."""

    def __init__(self) -> None:
        self._recommended: dict[str, list[tuple[float, int]]] = {}
        self._changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
        """Replicas added (positive) or removed (negative) with their time."""

    def begin(self, key: str, replicas: int, now: float) -> None:
        """Start the history of a key with the current size, so that a restart does not cause a scale-down."""
        self._recommended.setdefault(key, [(now, replicas)])

    def recommend(self, key: str, replicas: int, now: float) -> None:
        retained = [each for each in self._recommended.get(key, ()) if each[0] >= now - _RETENTION]
        self._recommended[key] = [*retained, (now, replicas)]

    def rescaled(self, key: str, change: int, now: float) -> None:
        retained = [each for each in self._changes[key] if each[0] >= now - _RETENTION]
        self._changes[key] = [*retained, (now, change)]

    def forget(self, key: str) -> None:
        self._recommended.pop(key, None)
        self._changes.pop(key, None)

    def recommendations(self, key: str, since: float, *, inclusive: bool = False) -> list[int]:
        return [
            replicas
            for at, replicas in self._recommended.get(key, ())
            if at > since or (inclusive and at == since)
        ]  # fmt: skip

    def change(self, key: str, since: float) -> int:
        """Return the change in replicas since then."""
        return sum(change for at, change in self._changes[key] if at > since)


# -- without behavior ------------------------------------------------------------------------------------------------


def highest_recent(history: History, key: str, wanted: int, window: float, now: float) -> int:
    return max([wanted, *history.recommendations(key, now - window, inclusive=True)])


def limit(current: int, wanted: int, least: int, most: int) -> Limited:
    fastest = max(2 * current, 4)
    if wanted < least:
        return Limited(least, "TooFewReplicas", _TOO_FEW)
    if wanted > min(most, fastest):
        if most > fastest:
            return Limited(fastest, "ScaleUpLimit", _TOO_FAST_UP)
        return Limited(most, "TooManyReplicas", _TOO_MANY)
    return Limited(wanted, "DesiredWithinRange", _IN_RANGE)


# -- with behavior ---------------------------------------------------------------------------------------------------


def stabilize(history: History, key: str, current: int, wanted: int, up: Rules, down: Rules, now: float) -> Limited:
    """Limit the change to what was recommended throughout the stabilization window."""
    lowest = min([wanted, *history.recommendations(key, now - up["stabilizationWindowSeconds"])])
    highest = max([wanted, *history.recommendations(key, now - down["stabilizationWindowSeconds"])])
    replicas = min(max(current, lowest), highest)
    if wanted >= current:
        text = "recent recommendations were lower than current one, applying the lowest recent recommendation"
        return Limited(replicas, "ScaleUpStabilized", text)
    text = "recent recommendations were higher than current one, applying the highest recent recommendation"
    return Limited(replicas, "ScaleDownStabilized", text)


def limit_rate(
    history: History, key: str, current: int, wanted: int, least: int, most: int, up: Rules, down: Rules, now: float
) -> Limited:
    if wanted > current:
        fastest = max(current, _limit_up(history, key, current, up, now))
        if wanted > min(most, fastest):
            if most > fastest:
                return Limited(fastest, "ScaleUpLimit", _TOO_FAST_UP)
            return Limited(most, "TooManyReplicas", _TOO_MANY)
    elif wanted < current:
        slowest = min(current, _limit_down(history, key, current, down, now))
        if wanted < max(least, slowest):
            if least < slowest:
                return Limited(slowest, "ScaleDownLimit", _TOO_FAST_DOWN)
            return Limited(least, "TooFewReplicas", _TOO_FEW)
    return Limited(wanted, "DesiredWithinRange", _IN_RANGE)


def _limit_up(history: History, key: str, current: int, rules: Rules, now: float) -> int:
    if rules["selectPolicy"] == "Disabled":
        return current
    proposals: list[int] = []
    for policy in rules["policies"]:
        start = current - history.change(key, now - policy["periodSeconds"])
        if policy["type"] == "Pods":
            proposals.append(start + policy["value"])
        else:
            proposals.append(ceil(start * (1 + policy["value"] / 100)))
    return min(proposals) if rules["selectPolicy"] == "Min" else max(proposals)


def _limit_down(history: History, key: str, current: int, rules: Rules, now: float) -> int:
    if rules["selectPolicy"] == "Disabled":
        return current
    proposals: list[int] = []
    for policy in rules["policies"]:
        start = current - history.change(key, now - policy["periodSeconds"])
        if policy["type"] == "Pods":
            proposals.append(start - policy["value"])
        else:
            proposals.append(int(start * (1 - policy["value"] / 100)))
    return max(proposals) if rules["selectPolicy"] == "Min" else min(proposals)


_IN_RANGE = "the desired count is within the acceptable range"
_TOO_FEW = "the desired replica count is less than the minimum replica count"
_TOO_MANY = "the desired replica count is more than the maximum replica count"
_TOO_FAST_UP = "the desired replica count is increasing faster than the maximum scale rate"
_TOO_FAST_DOWN = "the desired replica count is decreasing faster than the maximum scale rate"
