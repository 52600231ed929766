"""Plugin interfaces: a plugin filters or scores all nodes at once for one Pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from setpoint.scheduler.arrays import Ints, Mask
from setpoint.scheduler.cluster_events import ClusterEvent
from setpoint.scheduler.demand import Demand
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.node_table import NodeTable
from setpoint.scheduler.snapshot import Snapshot

Obj = dict[str, Any]
MAX_SCORE = 100


class Refusal(NamedTuple):
    """Nodes that a plugin rejects, and why."""

    reason: str
    where: Mask
    unresolvable: bool | Callable[[], Mask] = False
    """True, or a function that returns the mask of nodes, where preemption would not help; False means nowhere."""


class Rejected(Exception):
    """The Pod cannot be scheduled on any node, because of the Pod itself or objects it refers to."""

    def __init__(self, reason: str, *, unresolvable: bool = True) -> None:
        super().__init__(reason)
        self.unresolvable = unresolvable


@dataclass(slots=True)
class Cycle:
    """A scheduling attempt for one Pod."""

    pod: Obj
    demand: Demand
    snapshot: Snapshot
    state: dict[str, Any] = field(default_factory=dict)
    """State that a plugin keeps between its extension points, by plugin name."""

    @property
    def table(self) -> NodeTable:
        return self.snapshot.table


Hint = Callable[[Obj, Obj | None, Obj | None], bool]
"""Called with (unscheduled Pod, old object, new object); returns whether the event could make the Pod schedulable."""


class Interest(NamedTuple):
    """An event that could make a Pod schedulable which the plugin rejected."""

    event: ClusterEvent
    hint: Hint | None = None
    """Narrows the event; None means that it always applies."""


class Plugin(Protocol):
    name: str

    def interests(self) -> Iterable[Interest]: ...


class FilterPlugin(Plugin, Protocol):
    cumulative: bool
    """True if all reasons of a node are reported instead of only the first."""

    def prefilter(self, cycle: Cycle) -> frozenset[str] | None:
        """Return the only nodes to consider, or None for all. Raise Rejected."""
        ...

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        """Return the rejected nodes in the order in which reasons are reported."""
        ...

    def depends_on_pods(self, cycle: Cycle) -> bool:
        """Return whether the result for this Pod depends on the Pods on the nodes."""
        ...


class ScorePlugin(Plugin, Protocol):
    def score(self, cycle: Cycle, feasible: Mask) -> Ints | None:
        """Return 0 to 100 for every feasible slot, or None without a preference. Other slots are arbitrary; the caller
        does not modify the array."""
        ...


class Handle(NamedTuple):
    """The dependencies of plugins."""

    snapshot: Snapshot
    listers: Listers


class FilterBase:
    """Defaults of a filter plugin: considers every node and registers no events."""

    cumulative = False

    def prefilter(self, cycle: Cycle) -> frozenset[str] | None:
        return None

    def depends_on_pods(self, cycle: Cycle) -> bool:
        return False

    def interests(self) -> Iterable[Interest]:
        return ()


def normalized(scores: Ints, feasible: Mask, *, reverse: bool = False) -> Ints | None:
    """Scale the scores so that the maximum is 100; return None if all are zero."""
    greatest = int(scores[feasible].max(initial=0))
    if greatest == 0:
        return None
    scaled = scores * MAX_SCORE // greatest
    return MAX_SCORE - scaled if reverse else scaled
