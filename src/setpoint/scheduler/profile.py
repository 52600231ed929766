"""A profile: the plugins that decide for the Pods of one scheduler name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from setpoint.scheduler.framework import (
    Cycle,
    Diagnosis,
    FilterPlugin,
    FitError,
    NoNodes,
    Plugin,
    Refusal,
    Rejected,
    ScorePlugin,
)
from setpoint.scheduler.node_table import Ints, Mask
from setpoint.scheduler.nominations import Nominations


class Choice(NamedTuple):
    node: str
    feasible: int
    """The number of feasible nodes."""
    score: int | None = None
    """The score of the node; None if no other one was feasible, or nothing distinguishes them."""
    nominated: bool = False
    """Whether the node was nominated for the Pod, so that no other one was considered."""

    def reason(self, nodes: int) -> str:
        """Return why this node was chosen out of so many, in a sentence."""
        if self.nominated:
            return f"{self.node} is nominated for the Pod, and it fits there"
        if self.feasible == 1:
            return (
                f"1 of {nodes} nodes fits: {self.node}" if nodes > 1 else f"{self.node} is the only node, and it fits"
            )
        scored = f"; {self.node} has the highest score, {self.score}" if self.score is not None else ""
        return f"{self.feasible} of {nodes} nodes fit{scored}"


class Profile:
    def __init__(
        self,
        name: str,
        filters: Sequence[FilterPlugin],
        scorers: Sequence[tuple[ScorePlugin, int]],
        others: Sequence[Plugin] = (),
        *,
        preempts: bool = True,
    ) -> None:
        """Create a profile. `others` are plugins that only register events for the Pods they hold back."""
        self.name = name
        self.filters = tuple(filters)
        self.scorers = tuple(scorers)
        self.plugins: tuple[Plugin, ...] = tuple(
            {plugin.name: plugin for plugin in (*others, *filters, *(scorer for scorer, _ in scorers))}.values()
        )
        self.preempts = preempts

    def choose(self, cycle: Cycle, nominations: Nominations, below: Callable[[int], int]) -> Choice:
        """Return the best node; ties are broken by `below(count)`. Raise NoNodes or FitError."""
        if not len(cycle.table):
            raise NoNodes
        try:
            limits = self.prefilter(cycle)
        except Rejected as rejection:
            raise FitError(_rejected(cycle, rejection)) from None
        only = _only(cycle, limits)
        nominated = (cycle.pod.get("status") or {}).get("nominatedNodeName")
        if nominated:
            # The nominated node is used without considering others if the Pod fits there now.
            slot = cycle.table.slots.get(nominated)
            if slot is not None and (only is None or only[slot]) and self.fits(cycle, slot, nominations):
                return Choice(nominated, 1, nominated=True)
        feasible = self._feasible(cycle, only, nominations)
        number = int(np.count_nonzero(feasible))
        if not number:
            raise FitError(self._diagnose(cycle, limits, only, nominations))
        scores = self._scores(cycle, feasible) if number > 1 else None
        best = feasible
        if scores is not None:
            scores = np.where(feasible, scores, -1)
            best = scores == scores.max()
        slots = best.nonzero()[0]
        pick = slots[below(len(slots)) if len(slots) > 1 else 0]
        return Choice(cycle.table.name(int(pick)), number, None if scores is None else int(scores[pick]))

    # -- filters --------------------------------------------------------------------------------------------------

    def prefilter(self, cycle: Cycle) -> dict[str, frozenset[str]]:
        """Return the only nodes that each plugin accepts, by plugin. Raise Rejected."""
        limits: dict[str, frozenset[str]] = {}
        intersection: frozenset[str] | None = None
        later: Rejected | None = None
        for plugin in self.filters:
            try:
                found = plugin.prefilter(cycle)
            except Rejected as rejection:
                rejection.add_note(plugin.name)
                if rejection.unresolvable:
                    raise
                later = rejection  # run the other plugins first, because preemption needs their results
                continue
            if found is not None:
                limits[plugin.name] = found
                intersection = found if intersection is None else intersection & found
                if not intersection:
                    raise _no_common_node(limits)
        if later is not None:
            raise later
        return limits

    def _feasible(self, cycle: Cycle, only: Mask | None, nominations: Nominations) -> Mask:
        feasible = cycle.table.valid.copy() if only is None else cycle.table.valid & only
        for plugin in self.filters:
            for refusal in plugin.refusals(cycle):
                np.greater(feasible, refusal.where, out=feasible)  # and not
        for name in nominations.nodes():
            slot = cycle.table.slots.get(name)
            if slot is not None and feasible[slot] and self._reasons_with_nominated(cycle, slot, nominations):
                feasible[slot] = False
        return feasible

    def fits(self, cycle: Cycle, slot: int, nominations: Nominations) -> bool:
        """Return whether the Pod fits on this node, with and without its nominated Pods."""
        return not self.why_not(cycle, slot, nominations)

    def why_not(self, cycle: Cycle, slot: int, nominations: Nominations) -> tuple[str, ...]:
        """Return the reasons of the first plugin that rejects the node; empty if the Pod fits."""
        return self._reasons_with_nominated(cycle, slot, nominations) or self._reasons(cycle, slot)

    def _reasons(self, cycle: Cycle, slot: int) -> tuple[str, ...]:
        for plugin in self.filters:
            reasons = [refusal.reason for refusal in plugin.refusals(cycle) if refusal.where[slot]]
            if reasons:
                return tuple(reasons) if plugin.cumulative else (reasons[0],)
        return ()

    def _reasons_with_nominated(self, cycle: Cycle, slot: int, nominations: Nominations) -> tuple[str, ...]:
        name = cycle.table.name(slot)
        coming = nominations.before(cycle.pod, name)
        if not coming:
            return ()
        with cycle.snapshot.with_more(coming, name):
            return self._reasons(cycle, slot)

    # -- scores ---------------------------------------------------------------------------------------------------

    def _scores(self, cycle: Cycle, feasible: Mask) -> Ints | None:
        total: Ints | None = None
        for plugin, weight in self.scorers:
            scores = plugin.score(cycle, feasible)
            if scores is not None:
                part = scores * weight if weight != 1 else scores
                total = part if total is None else total + part
        return total

    # -- reasons --------------------------------------------------------------------------------------------------

    def _diagnose(
        self, cycle: Cycle, limits: dict[str, frozenset[str]], only: Mask | None, nominations: Nominations
    ) -> Diagnosis:
        table = cycle.table
        found = Diagnosis(len(table))
        unresolvable = ~table.valid
        remaining = table.valid.copy()
        if only is not None:
            outside = int(np.count_nonzero(remaining & ~only))
            if outside:
                found.reasons[f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(limits))}]"] += outside
            found.plugins.update(dict.fromkeys(sorted(limits)))
            unresolvable |= ~only
            remaining &= only
        nominated = [
            (slot, name)
            for name in nominations.nodes()
            if (slot := table.slots.get(name)) is not None and remaining[slot] and nominations.before(cycle.pod, name)
        ]
        for slot, name in nominated:
            # A node with nominated Pods is diagnosed with them on it.
            with cycle.snapshot.with_more(nominations.before(cycle.pod, name), name):
                one = np.zeros(table.capacity, dtype=np.bool_)
                one[slot] = True
                if self._add_reasons(cycle, one, unresolvable, found):
                    remaining[slot] = False
        self._add_reasons(cycle, remaining, unresolvable, found)
        found.unresolvable = unresolvable
        return found

    def _add_reasons(self, cycle: Cycle, remaining: Mask, unresolvable: Mask, found: Diagnosis) -> bool:
        """Add to the diagnosis why the `remaining` nodes were rejected, each by the first plugin that rejects it.
        Return whether any was."""
        found_any = False
        for plugin in self.filters:
            refused = np.zeros_like(remaining)
            for refusal in plugin.refusals(cycle):
                where = refusal.where & remaining if plugin.cumulative else refusal.where & remaining & ~refused
                count = int(np.count_nonzero(where))
                if count:
                    found.reasons[refusal.reason] += count
                    found.plugins[plugin.name] = None
                    unresolvable |= where & _unresolvable_mask(refusal)
                    refused |= where
                    found_any = True
            remaining = remaining & ~refused
            if not remaining.any():
                break
        return found_any


def _unresolvable_mask(refusal: Refusal) -> Mask | bool:
    return refusal.unresolvable if isinstance(refusal.unresolvable, bool) else refusal.unresolvable()


def _only(cycle: Cycle, limits: dict[str, frozenset[str]]) -> Mask | None:
    if not limits:
        return None
    only = np.zeros(cycle.table.capacity, dtype=np.bool_)
    for name in frozenset.intersection(*limits.values()):
        slot = cycle.table.slots.get(name)
        if slot is not None:
            only[slot] = True
    return only


def _no_common_node(limits: dict[str, frozenset[str]]) -> Rejected:
    names = sorted(limits)
    if len(names) == 1:
        rejection = Rejected(f"node(s) didn't satisfy plugin {names[0]}")
    else:
        rejection = Rejected(f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously")
    for name in names:
        rejection.add_note(name)
    return rejection


def _rejected(cycle: Cycle, rejection: Rejected) -> Diagnosis:
    return Diagnosis(
        len(cycle.table),
        plugins=dict.fromkeys(rejection.__notes__),
        rejected=str(rejection),
        unresolvable=None if rejection.unresolvable else ~cycle.table.valid,
    )
