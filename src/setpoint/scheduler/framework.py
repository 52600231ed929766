"""What a plugin is: it refuses nodes, or prefers some, for one Pod at a time and for all nodes at once."""

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
    """Nodes that will not do, and why."""

    reason: str
    where: Mask
    unresolvable: bool | Callable[[], Mask] = False
    """Taking Pods off the node would not help: everywhere, or where the mask says so."""


class Rejected(Exception):
    """No node will do, whatever it has: the Pod itself, or what it refers to, is the reason."""

    def __init__(self, reason: str, *, unresolvable: bool = True) -> None:
        super().__init__(reason)
        self.unresolvable = unresolvable


@dataclass(slots=True)
class Cycle:
    """One attempt to place one Pod."""

    pod: Obj
    demand: Demand
    snapshot: Snapshot
    state: dict[str, Any] = field(default_factory=dict)
    """What a plugin has found out before and needs again later, by its name."""

    @property
    def table(self) -> NodeTable:
        return self.snapshot.table


Hint = Callable[[Obj, Obj | None, Obj | None], bool]
"""(the waiting Pod, what was before, what is now): whether this could have made the Pod fit."""


class Interest(NamedTuple):
    """An event that could help a Pod which the plugin refused."""

    event: ClusterEvent
    hint: Hint | None = None
    """None: it always could."""


class Plugin(Protocol):
    name: str

    def interests(self) -> Iterable[Interest]: ...


class FilterPlugin(Plugin, Protocol):
    cumulative: bool
    """All reasons of a node are told, not only the first."""

    def prefilter(self, cycle: Cycle) -> frozenset[str] | None:
        """The only nodes to look at, if it knows. Raises Rejected."""
        ...

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        """In the order in which a node hears them."""
        ...

    def depends_on_pods(self, cycle: Cycle) -> bool:
        """Whether it would say something else about this Pod if other Pods were on the nodes."""
        ...


class ScorePlugin(Plugin, Protocol):
    def score(self, cycle: Cycle, feasible: Mask) -> Ints | None:
        """0 to 100 for every feasible slot, anything for the others; None if it has no preference. The array is read
        and not changed."""
        ...


class Handle(NamedTuple):
    """What plugins are made with."""

    snapshot: Snapshot
    listers: Listers


class FilterBase:
    """A plugin that looks at every node and wakes nobody."""

    cumulative = False

    def prefilter(self, cycle: Cycle) -> frozenset[str] | None:
        return None

    def depends_on_pods(self, cycle: Cycle) -> bool:
        return False

    def interests(self) -> Iterable[Interest]:
        return ()


def normalized(scores: Ints, feasible: Mask, *, reverse: bool = False) -> Ints | None:
    """Scaled so that the greatest becomes 100; None if they are all equal to nothing."""
    greatest = int(scores[feasible].max(initial=0))
    if greatest == 0:
        return None
    scaled = scores * MAX_SCORE // greatest
    return MAX_SCORE - scaled if reverse else scaled
