"""A cluster as it was at one moment, for others to begin with.

@prepared(nodes=5)
async def busy(cluster):                         # runs once, when a test first asks for it
    await cluster.client.create(deployment)
    await cluster.settle()

@pytest.mark.cluster(start=busy)
async def test_something(cluster): ...           # on a copy of its own, every time the same
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, TypedDict, Unpack

from setpoint.cluster.embedded import State, bootstrapped
from setpoint.controllers.options import ControllerOptions
from setpoint.node.options import FleetOptions
from setpoint.system import RandomIds
from setpoint.testing.virtual_time import EPOCH, run_virtual

if TYPE_CHECKING:
    from setpoint.testing.cluster import VirtualCluster


class ClusterOptions(TypedDict, total=False):
    nodes: int
    """Three, if nothing else is said."""
    fleet: FleetOptions
    """What the nodes are like: capacity, rules for images, the pace of containers. `nodes` still says how many."""
    seed: int
    controllers: Collection[str] | None
    """The names of those that run; all by default."""
    scheduler: bool
    controller_options: ControllerOptions | None
    control_plane_pods: bool
    """The components are Pods too, and have logs."""
    leader_elect: bool
    """Controllers and scheduler hold Leases, as they always do outside of tests: renewing them every other second is
    most of what a quiet hour costs."""
    audit: str | Mapping[str, object]
    """An audit policy (audit.k8s.io/v1), in YAML or as an object: `VirtualCluster.audited` tells what it wants told."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """It never changes. Clusters that begin with it share what is stored, until they change it; components begin anew,
    as after a restart, at the moment at which it was taken."""

    state: State
    now: datetime
    options: ClusterOptions

    def next_seed(self) -> int:
        """Another than before, so that nothing is called as what is there already; always the same one."""
        digest = sha256(f"{self.options.get('seed', 1)} {self.state.store.revision}".encode()).digest()
        return int.from_bytes(digest[:8])


class _Still:
    """It is always the same moment."""

    def now(self) -> datetime:
        return EPOCH

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise RuntimeError("the first objects are made at once")


_SEED = 0x5E7901A7
"""Of the objects that every cluster begins with. They are the same in all: a test's seed is for what comes after."""
_first: list[State] = []


async def first_state() -> State:
    """Made once in a process, whatever the loop and the moment; so the first cluster is as all others."""
    if not _first:
        _first.append(await bootstrapped(_Still(), RandomIds(_SEED)))
    return _first[0]


class Prepared:
    """What a function makes of a fresh cluster: made once in a process, when it is first asked for."""

    def __init__(self, prepare: Callable[[VirtualCluster], Awaitable[None]], options: ClusterOptions) -> None:
        self._prepare = prepare
        self._options = options
        self._snapshot: Snapshot | None = None

    def snapshot(self) -> Snapshot:
        """Not from a running loop: it takes one of its own."""
        if self._snapshot is None:
            self._snapshot = run_virtual(self._made)
        return self._snapshot

    async def _made(self) -> Snapshot:
        from setpoint.testing.cluster import virtual_cluster

        async with virtual_cluster(**self._options) as cluster:
            await self._prepare(cluster)
            return cluster.snapshot()


def prepared(**options: Unpack[ClusterOptions]) -> Callable[[Callable[[VirtualCluster], Awaitable[None]]], Prepared]:
    """The function runs on a cluster with these options; what it leaves is what others `start` with."""
    return lambda prepare: Prepared(prepare, options)
