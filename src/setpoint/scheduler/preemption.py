"""DefaultPreemption: which Pods to evict so that a Pod of higher priority fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from setpoint.meta.conditions import condition_of
from setpoint.meta.selectors import from_label_selector
from setpoint.meta.times import parse_time
from setpoint.scheduler.config import ProfileConfig
from setpoint.scheduler.framework import Cycle, Diagnosis, Refusal, Rejected, summary
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.node_table import NodeTable
from setpoint.scheduler.nominations import Nominations, nominated_node
from setpoint.scheduler.plugins.node_resources_fit import NodeResourcesFit
from setpoint.scheduler.profile import Profile
from setpoint.scheduler.snapshot import PlacedPod, Snapshot

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NOT_EVALUATED = "not found"
NEVER = "not eligible due to preemptionPolicy=Never."
WAITING = "not eligible due to a terminating pod on the nominated node."
_NOT_STARTED = float("inf")
_PRIORITY_OFFSET = 2**31
"""Added to priorities before they are summed, so that none is negative."""


class Victims(NamedTuple):
    node: str
    pods: tuple[PlacedPod, ...]
    """The Pods to evict, in descending order of importance."""
    violations: int
    """The number of Pods whose eviction violates a disruption budget."""


class Preemption:
    def __init__(
        self, profile: Profile, snapshot: Snapshot, nominations: Nominations, listers: Listers, config: ProfileConfig
    ) -> None:
        self._profile = profile
        self._snapshot = snapshot
        self._nominations = nominations
        self._budgets = listers.disruption_budgets
        args = config.args("DefaultPreemption")
        self._percentage = int(args.get("minCandidateNodesPercentage", 10))
        self._absolute = int(args.get("minCandidateNodesAbsolute", 100))

    def evaluate(self, pod: Pod, diagnosis: Diagnosis, below: Callable[[int], int]) -> Victims | None:
        if diagnosis.rejected:
            # Upstream asks the plugin for devices first, which has not run yet, and stops here.
            diagnosis.preemption = NOT_EVALUATED
            diagnosis.nominate = None
            return None
        if not self._profile.preempts:
            return None
        why_not = self._ineligible(pod, diagnosis)
        if why_not:
            diagnosis.preemption = f"preemption: {why_not}"
            diagnosis.nominate = None
            return None
        reasons: Counter[str] = Counter()
        candidates = self._candidates(pod, diagnosis, below, reasons)
        if not candidates:
            rest = diagnosis.nodes - reasons.total()
            counts: Counter[str] = Counter()
            for reason, count in reasons.items():
                for part in reason.split("\n"):
                    counts[part] += count
            if rest:
                counts[NOT_HELPFUL] += rest
            diagnosis.preemption = f"preemption: {summary(diagnosis.nodes, counts)}"
            return None
        best = pick(candidates)
        diagnosis.preemption = (
            f"preemption: found a potential placement for pod on node {best.node}, preempting {len(best.pods)} victims"
        )
        return best

    def _ineligible(self, pod: Pod, diagnosis: Diagnosis) -> str:
        if pod["spec"].get("preemptionPolicy") == "Never":
            return NEVER
        node = self._nominations.node_of(pod) or nominated_node(pod)
        slot = self._snapshot.table.slots.get(node) if node else None
        if slot is None or diagnosis.unresolvable is None or diagnosis.unresolvable[slot]:
            return ""  # another node may be preempted if the nominated one no longer fits
        mine = int(pod["spec"].get("priority") or 0)
        for placed in self._snapshot.pods_on(node):
            leaves = self._nominations.is_victim(placed.pod) or is_being_preempted(placed.pod)
            if leaves and placed.demand.priority < mine:
                return WAITING
        return ""

    def _candidates(
        self, pod: Pod, diagnosis: Diagnosis, below: Callable[[int], int], reasons: Counter[str]
    ) -> list[Victims]:
        table = self._snapshot.table
        if diagnosis.unresolvable is None:
            return []
        resolvable = table.valid & ~diagnosis.unresolvable
        priority = int(pod["spec"].get("priority") or 0)
        slots = np.flatnonzero(resolvable & (self._snapshot.lowest < priority))
        without = int(np.count_nonzero(resolvable)) - len(slots)
        if without:
            reasons[NO_VICTIMS] += without
        if not len(slots):
            return []
        budgets = [_Budget(budget) for budget in self._budgets.items.values()]
        potential = int(np.count_nonzero(resolvable))
        enough = min(max(potential * self._percentage // 100, self._absolute), potential)
        offset = below(len(slots))
        cycle = Cycle(pod, self._snapshot.demands.of(pod), self._snapshot)
        good: list[Victims] = []
        violating: list[Victims] = []
        needs = self._resource_needs(cycle)
        for slot in (*slots[offset:], *slots[:offset]):
            found = self._victims_on(cycle, int(slot), priority, budgets, needs)
            if isinstance(found, str):
                reasons[found] += 1
                continue
            (violating if found.violations else good).append(found)
            if good and len(good) + len(violating) >= enough:
                break
        return [*good, *violating]

    def _victims_on(
        self, cycle: Cycle, slot: int, priority: int, budgets: Sequence[_Budget], needs: _ResourceNeeds | None
    ) -> Victims | str:
        """Return the smallest set of victims, or why no eviction helps."""
        name = cycle.table.name(slot)
        lower = [placed for placed in self._snapshot.pods_on(name) if placed.demand.priority < priority]
        lower.sort(key=importance)
        violating, escape_html = _by_violation(lower, budgets)
        if needs is not None and not self._nominations.before(cycle.pod, name):
            return needs.victims(name, slot, violating, escape_html)
        evicted = dict.fromkeys(lower)
        victims: list[PlacedPod] = []
        violations = 0
        for placed in lower:
            self._snapshot.detach(placed)
        try:
            why_not = self._why_not(cycle, slot)
            if why_not:
                return why_not
            # Reprieve victims one by one, the most important first, while the Pod still fits.
            for number, placed in enumerate((*violating, *escape_html)):
                self._snapshot.attach(placed)
                del evicted[placed]
                if self._why_not(cycle, slot):
                    self._snapshot.detach(placed)
                    evicted[placed] = None
                    victims.append(placed)
                    violations += number < len(violating)
        finally:
            for placed in evicted:
                self._snapshot.attach(placed)
        if not victims:
            return NO_VICTIMS
        victims.sort(key=importance)
        return Victims(name, tuple(victims), violations)

    def _resource_needs(self, cycle: Cycle) -> _ResourceNeeds | None:
        """Return the needed resources if the Pod lacks nothing else: victims then follow from sums. Else None."""
        others = [plugin for plugin in self._profile.filters if not isinstance(plugin, NodeResourcesFit)]
        fit = [plugin for plugin in self._profile.filters if isinstance(plugin, NodeResourcesFit)]
        if not fit or any(plugin.depends_on_pods(cycle) for plugin in others):
            return None
        self._profile.prefilter(cycle)
        refusals = [refusal for plugin in others for refusal in plugin.refusals(cycle)]
        return _ResourceNeeds(cycle.table, fit[0].needs(cycle), refusals)

    def _why_not(self, cycle: Cycle, slot: int) -> str:
        try:
            self._profile.prefilter(cycle)
        except Rejected as rejection:
            return str(rejection)
        return "\n".join(self._profile.why_not(cycle, slot, self._nominations))


class _ResourceNeeds:
    """The resources that must be free on a node, when nothing else depends on the Pods there."""

    def __init__(self, table: NodeTable, needs: Sequence[tuple[int, int, str]], refusals: Sequence[Refusal]) -> None:
        self._table = table
        self._needs = needs
        self._refusals = refusals

    def victims(self, name: str, slot: int, violating: list[PlacedPod], escape_html: list[PlacedPod]) -> Victims | str:
        for refusal in self._refusals:
            if refusal.where[slot]:
                return refusal.reason
        spare = {row: self._table.free.item(row, slot) - number for row, number, _ in self._needs}
        for placed in (*violating, *escape_html):
            for row in spare:
                spare[row] += placed.demand.usage_by_row.get(row, 0)
        short = [reason for row, _, reason in self._needs if spare[row] < 0]
        if short:
            return "\n".join(short)
        victims: list[PlacedPod] = []
        violations = 0
        for number, placed in enumerate((*violating, *escape_html)):
            left = {row: amount - placed.demand.usage_by_row.get(row, 0) for row, amount in spare.items()}
            if min(left.values()) >= 0:
                spare = left
            else:
                victims.append(placed)
                violations += number < len(violating)
        if not victims:
            return NO_VICTIMS
        victims.sort(key=importance)
        return Victims(name, tuple(victims), violations)


class _Budget:
    def __init__(self, budget: Mapping[str, Any]) -> None:
        status = budget.get("status") or {}
        self.namespace = budget["metadata"]["namespace"]
        self.selector = from_label_selector((budget.get("spec") or {}).get("selector"))
        self.allowed = int(status.get("disruptionsAllowed") or 0)
        self.disrupted = status.get("disruptedPods") or {}

    def covers(self, pod: Pod) -> bool:
        meta = pod["metadata"]
        return (
            meta["namespace"] == self.namespace
            and not self.selector.empty
            and self.selector.matches(meta.get("labels") or {})
            and meta["name"] not in self.disrupted
        )


def _by_violation(pods: Iterable[PlacedPod], budgets: Sequence[_Budget]) -> tuple[list[PlacedPod], list[PlacedPod]]:
    """Split the Pods into those whose eviction violates a budget and the others, in the given order."""
    left = [budget.allowed for budget in budgets]
    violating: list[PlacedPod] = []
    escape_html: list[PlacedPod] = []
    for placed in pods:
        violates = False
        for i, budget in enumerate(budgets if placed.demand.labels else ()):
            if budget.covers(placed.pod):
                left[i] -= 1
                if left[i] < 0:
                    violates = True
                    break
        (violating if violates else escape_html).append(placed)
    return violating, escape_html


def pick(candidates: Sequence[Victims]) -> Victims:
    """Choose by fewest violations, then lowest top priority, lowest sum of priorities, fewest victims, latest start."""
    return min(
        candidates,
        key=lambda victims: (
            victims.violations,
            victims.pods[0].demand.priority,
            sum(placed.demand.priority + _PRIORITY_OFFSET for placed in victims.pods),
            len(victims.pods),
            -_earliest_start(victims.pods),
        ),
    )


def _earliest_start(pods: Sequence[PlacedPod]) -> float:
    """Return the earliest start of the Pods with the highest priority."""
    top = pods[0].demand.priority
    return min(_started(placed.pod) for placed in pods if placed.demand.priority == top)


def _started(pod: Pod) -> float:
    stamp = (pod.get("status") or {}).get("startTime")
    # A Pod that has not started counts as starting now, later than any other.
    return parse_time(stamp).timestamp() if stamp else _NOT_STARTED


def importance(placed: PlacedPod) -> tuple[int, float, str]:
    """Return the sort key by importance: priority, then age."""
    return (-placed.demand.priority, _started(placed.pod), placed.key)


def is_being_preempted(pod: Pod) -> bool:
    if "deletionTimestamp" not in pod["metadata"]:
        return False
    target = condition_of(pod, "DisruptionTarget") or {}
    return target.get("status") == "True" and target.get("reason") == "PreemptionByScheduler"
