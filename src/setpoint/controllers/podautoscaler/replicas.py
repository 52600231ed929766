"""Computes replicas from metrics with upstream's arithmetic and applies stabilization and scaling policies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil, inf, nan
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.controllers.podautoscaler.metrics import MetricsFailure, PodMetric, PodMetrics
from setpoint.controllers.pods import is_ready, phase
from setpoint.kinds.core.pod_demand import pod_requests
from setpoint.meta.conditions import condition_of
from setpoint.meta.quantity import milli_value
from setpoint.meta.times import parse_time

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_MAX = 2**31 - 1
NO_PODS = "no pods returned by selector while calculating replica count"
_NO_METRICS = "did not receive metrics for targeted pods (pods might be unready)"
Rules = Mapping[str, Any]
_RETENTION = 3600.0
"""Seconds for which history is retained, the longest stabilization window and policy period."""
_IN_RANGE = "the desired count is within the acceptable range"
_TOO_FEW = "the desired replica count is less than the minimum replica count"
_TOO_MANY = "the desired replica count is more than the maximum replica count"
_TOO_FAST_UP = "the desired replica count is increasing faster than the maximum scale rate"
_TOO_FAST_DOWN = "the desired replica count is decreasing faster than the maximum scale rate"


class Tolerances(NamedTuple):
    """The tolerated deviation of usage from the target, as a fraction."""

    down: float = 0.1
    up: float = 0.1

    def allow(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


@dataclass(frozen=True, slots=True)
class StartupGrace:
    """Grace periods after the start of a Pod, in seconds."""

    cpu_initialization: float = 300.0
    """During this time only samples taken while the Pod was ready count."""
    initial_readiness: float = 30.0
    """A Pod that became unready within this time was never really ready."""


class Groups(NamedTuple):
    ready: int
    unready: set[str]
    """Pods without metrics yet, or whose metrics do not count yet."""
    missing: set[str]
    """Pods that should have metrics but do not."""
    ignored: set[str]


def group_pods(
    pods: Collection[Pod], metrics: Mapping[str, PodMetric], resource: str, startup_grace: StartupGrace, now: datetime
) -> Groups:
    groups = Groups(0, set(), set(), set())
    ready = 0
    for pod in pods:
        name = pod["metadata"]["name"]
        if "deletionTimestamp" in pod["metadata"] or phase(pod) == "Failed":
            groups.ignored.add(name)
        elif phase(pod) == "Pending":
            groups.unready.add(name)
        elif name not in metrics:
            groups.missing.add(name)
        elif resource == "cpu" and _is_starting(pod, metrics[name], startup_grace, now):
            groups.unready.add(name)
        else:
            ready += 1
    return groups._replace(ready=ready)


def _is_starting(pod: Pod, metric: PodMetric, startup_grace: StartupGrace, now: datetime) -> bool:
    readiness, started = condition_of(pod, "Ready"), pod["status"].get("startTime")
    if readiness is None or not started:
        return True
    start, since = parse_time(started), parse_time(readiness["lastTransitionTime"])
    unready = readiness["status"] == "False"
    if start + timedelta(seconds=startup_grace.cpu_initialization) > now:
        return unready or metric.at is None or metric.at < since + timedelta(seconds=metric.window)
    return unready and start + timedelta(seconds=startup_grace.initial_readiness) > since


# -- resource usage --------------------------------------------------------------------------------------------------


def by_utilization(
    current: int,
    target: int,
    metrics: PodMetrics,
    groups: Groups,
    requests: Mapping[str, int],
    tolerances: Tolerances,
) -> tuple[int, int, int]:
    """Compute replicas for a `target` in percent of the requests. Return replicas, percent in use and average usage."""
    believed = _usable(metrics, groups)

    def utilization(measured: Mapping[str, PodMetric]) -> tuple[int, int]:
        known = [name for name in measured if name in requests]
        requested = sum(requests[name] for name in known)
        if not requested:
            raise MetricsFailure("no metrics returned matched known pods")
        used = sum(measured[name].value for name in known)
        return used * 100 // requested, used // len(known)

    percent, average = utilization(believed)
    replicas = _decide(
        current,
        believed,
        groups,
        lambda measured: utilization(measured)[0] / target,
        lambda name: requests[name] * max(100, target) // 100,
        tolerances,
    )
    return replicas, percent, average


def by_usage(current: int, target: int, metrics: PodMetrics, groups: Groups, tolerances: Tolerances) -> tuple[int, int]:
    """Compute replicas for an average `target` per Pod. Return replicas and average usage."""
    believed = _usable(metrics, groups)

    def average(measured: Mapping[str, PodMetric]) -> int:
        return sum(metric.value for metric in measured.values()) // len(measured)

    ratio = lambda measured: average(measured) / target  # noqa: E731
    return _decide(current, believed, groups, ratio, lambda name: target, tolerances), average(believed)


def _usable(metrics: PodMetrics, groups: Groups) -> PodMetrics:
    left = {name: metric for name, metric in metrics.items() if name not in groups.ignored | groups.unready}
    if not left:
        raise MetricsFailure(_NO_METRICS)
    return left


def _decide(
    current: int,
    metrics: PodMetrics,
    groups: Groups,
    ratio_of: Callable[[Mapping[str, PodMetric]], float],
    fallback: Callable[[str], int],
    tolerances: Tolerances,
) -> int:
    ratio = ratio_of(metrics)
    up_in_spite_of_unready = bool(groups.unready) and ratio > 1.0
    if not up_in_spite_of_unready and not groups.missing:
        return current if tolerances.allow(ratio) else _whole(ratio * groups.ready)
    # Assume for unmeasured Pods the usage that changes the result least.
    filled = dict(metrics)
    if ratio != 1.0:
        filled |= {name: PodMetric(fallback(name) if ratio < 1.0 else 0) for name in groups.missing}
    if up_in_spite_of_unready:
        filled |= {name: PodMetric(0) for name in groups.unready}
    after = ratio_of(filled)
    if tolerances.allow(after) or ratio < 1.0 < after or after < 1.0 < ratio:
        return current
    replicas = _whole(after * len(filled))
    if (after < 1.0 and replicas > current) or (after > 1.0 and replicas < current):
        return current
    return replicas


def requests_of(pods: Collection[Pod], resource: str, container: str) -> dict[str, int]:
    """Return the requests by Pod; all Pods must have one."""
    return {pod["metadata"]["name"]: _request(pod, resource, container) for pod in pods}


def _request(pod: Pod, resource: str, container: str) -> int:
    spec, name = pod["spec"], pod["metadata"]["name"]
    if not container and (spec.get("resources") or {}).get("requests"):
        amounts = pod_requests(pod)
        if resource not in amounts:
            raise MetricsFailure(f"missing pod-level request for {resource} in Pod {name}")
        return milli_value(amounts[resource])
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    total = 0
    for each in (*spec["containers"], *sidecars):
        if container in ("", each["name"]):
            amount = ((each.get("resources") or {}).get("requests") or {}).get(resource)
            if amount is None:
                raise MetricsFailure(f"missing request for {resource} in container {each['name']} of Pod {name}")
            total += milli_value(amount)
        if container == each["name"]:
            return total
    if container:
        raise MetricsFailure(f"container {container} not found in Pod {name}")
    return total


# -- object and external metrics ------------------------------------------------------------------------------------


def by_value(current: int, usage: int, target: int, pods: Collection[Pod], tolerances: Tolerances) -> int:
    """Compute replicas for `usage` of something that all ready Pods share."""
    ratio = usage / target
    if current == 0:
        return _whole(ratio)
    if tolerances.allow(ratio):
        return current
    if not pods:
        raise MetricsFailure(f"unable to calculate ready pods: {NO_PODS}")
    return _whole(ratio * sum(phase(pod) == "Running" and is_ready(pod) for pod in pods))


def by_average_value(there: int, usage: int, target: int, tolerances: Tolerances) -> tuple[int, int]:
    """Compute replicas for a `target` per replica. Return replicas and the current value per replica."""
    ratio = usage / (target * there) if there else (inf if usage else nan)
    replicas = there if tolerances.allow(ratio) else _whole(usage / target)
    return replicas, ceil(usage / there) if there else usage


def _whole(replicas: float) -> int:
    return min(ceil(replicas), _MAX)


# -- behavior ---------------------------------------------------------------------------------------------------------


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
            replicas for at, replicas in self._recommended.get(key, ()) if at > since or (inclusive and at == since)
        ]

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


class Bounds(NamedTuple):
    """The bounds of an autoscaler's replicas and of their rate of change."""

    least: int
    most: int
    up: Rules
    down: Rules


def limit_rate(history: History, key: str, current: int, wanted: int, bounds: Bounds, now: float) -> Limited:
    least, most, up, down = bounds
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
