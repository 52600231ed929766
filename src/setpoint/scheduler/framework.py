"""Plugin interfaces, of which each filters or scores all nodes at once for one Pod, and the diagnosis of a failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from setpoint.scheduler.cluster_events import ClusterEvent, Hint
from setpoint.scheduler.demand import Demand
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.node_table import Ints, Mask, NodeTable
from setpoint.scheduler.snapshot import Snapshot
from setpoint.scheduler.writes import NO_NODES

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

MAX_SCORE = 100


class NoNodes(Exception):
    """The cluster has no nodes."""

    def __init__(self) -> None:
        super().__init__(NO_NODES)


@dataclass(slots=True)
class Diagnosis:
    nodes: int
    """The number of nodes."""
    reasons: Counter[str] = field(default_factory=Counter)
    """The number of nodes by reason."""
    plugins: dict[str, None] = field(default_factory=dict)
    """The plugins that rejected nodes, without duplicates, in order."""
    rejected: str = ""
    """The reason why no node was considered; empty if nodes were."""
    unresolvable: Mask | None = None
    """Nodes on which preemption would not help; None means all."""
    preemption: str = ""
    """The result of preemption, for the message."""
    nominate: str | None = ""
    """The node to nominate: empty clears the nomination, None leaves it unchanged."""

    def message(self) -> str:
        text = summary(self.nodes, self.reasons, self.rejected)
        return f"{text} {self.preemption}" if self.preemption else text


def summary(nodes: int, reasons: Counter[str], rejected: str = "") -> str:
    text = f"0/{nodes} nodes are available:"
    if rejected:
        return f"{text} {rejected}."
    lines = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"{text} {', '.join(lines)}." if lines else text


class FitError(Exception):
    """No node fits the Pod at present."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.message())
        self.diagnosis = diagnosis


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

    pod: Pod
    demand: Demand
    snapshot: Snapshot
    state: dict[str, Any] = field(default_factory=dict)
    """State that a plugin keeps between its extension points, by plugin name."""

    @property
    def table(self) -> NodeTable:
        return self.snapshot.table


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
    """Whether all reasons of a node are reported instead of only the first."""

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
    highest = int(scores[feasible].max(initial=0))
    if highest == 0:
        return None
    scaled = scores * MAX_SCORE // highest
    return MAX_SCORE - scaled if reverse else scaled
