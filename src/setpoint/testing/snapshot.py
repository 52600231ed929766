"""A cluster as it was at one moment, for others to begin with.

@prepared(nodes=5)
async def busy(cluster):                         # runs once, when a test first asks for it
    await cluster.client.create(deployment)
    await cluster.settle()

@pytest.mark.cluster(start=busy)
async def test_something(cluster): ...           # on a copy of its own, every time the same
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, TypedDict, Unpack

from setpoint.cluster.components import ComponentOptions
from setpoint.cluster.embedded import EmbeddedOptions, State, bootstrapped, embedded_cluster
from setpoint.controllers.options import ControllerOptions
from setpoint.node.options import FleetOptions
from setpoint.system import RandomIds
from setpoint.testing.virtual_time import EPOCH, run_virtual

if TYPE_CHECKING:
    from setpoint.testing.cluster import VirtualCluster


class ClusterOptions(TypedDict, total=False):
    nodes: int
    """The number of nodes; the default is 3."""
    fleet: FleetOptions
    """The properties of the nodes: capacity, image rules, container timing. `nodes` still sets the number."""
    seed: int
    controllers: Collection[str] | None
    """The names of the controllers to run; None means all."""
    scheduler: bool
    controller_options: ControllerOptions | None
    control_plane_pods: bool
    """Whether the components are also Pods, with logs."""
    leader_elect: bool
    """Whether controllers and scheduler hold Leases, as they always do outside of tests. The default is false, because
    renewals every other second are most of the cost of a quiet hour."""
    replica_delay: Callable[[int], float]
    """Runs a second API server, which the controllers use, on a store that shows each revision this many seconds after
    its commit; see `VirtualCluster.second`. Without it there is one server."""
    audit: str | Mapping[str, object]
    """An audit policy (audit.k8s.io/v1), as YAML or as an object; read the recorded events with
    `VirtualCluster.audited`."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An immutable snapshot of a cluster.

    Clusters that start from it share the stored values until they change them; components start as after a restart, at
    the time of the snapshot.
    """

    state: State
    now: datetime
    options: ClusterOptions

    def next_seed(self) -> int:
        """Return a different, deterministic seed, so that generated names do not collide with existing ones."""
        digest = sha256(f"{self.options.get('seed', 1)} {self.state.store.revision}".encode()).digest()
        return int.from_bytes(digest[:8])


class _FrozenClock:
    """A clock that stands still."""

    def now(self) -> datetime:
        return EPOCH

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise RuntimeError("creating the initial objects must not wait")


_SEED = 0x5E7901A7
"""Seed of the objects that every cluster starts with. They are the same in all clusters: a test's seed applies to what
comes later."""
_first: list[State] = []
_settled: list[State] = []
_IDLE_ITERATIONS = 100
"""Iterations of the event loop without a write after which the controllers have nothing left to do."""


async def first_state() -> State:
    """Return the bootstrapped state, which is created once per process, independent of loop and time."""
    if not _first:
        _first.append(await bootstrapped(_FrozenClock(), RandomIds(_SEED)))
    return _first[0]


class _HeldClock(_FrozenClock):
    """A clock that stands still, on which everything that takes time waits forever."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.get_running_loop().create_future()


async def settled_state() -> State:
    """Return the bootstrapped state after all controllers have reconciled it: service accounts, aggregated roles and
    status. It is created once per process, and saves each cluster these writes."""
    if not _settled:
        options = EmbeddedOptions(ComponentOptions(nodes=0, leader_elect=False, identity="virtual"))
        start = await first_state()
        async with embedded_cluster(_HeldClock(), RandomIds(_SEED + 1), options, start) as cluster:
            revision, idle = cluster.store.revision, 0
            while idle < _IDLE_ITERATIONS:
                await asyncio.sleep(0)
                idle = idle + 1 if cluster.store.revision == revision else 0
                revision = cluster.store.revision
            _settled.append(cluster.state())
    return _settled[0]


class Prepared:
    """The state that a function creates on a fresh cluster; computed once per process, on first use."""

    def __init__(self, prepare: Callable[[VirtualCluster], Awaitable[None]], options: ClusterOptions) -> None:
        self._prepare = prepare
        self._options = options
        self._snapshot: Snapshot | None = None

    def snapshot(self) -> Snapshot:
        """Return the snapshot. Call this outside a running loop: it runs its own."""
        if self._snapshot is None:
            self._snapshot = run_virtual(self._take)
        return self._snapshot

    async def _take(self) -> Snapshot:
        from setpoint.testing.cluster import virtual_cluster  # it imports this module

        async with virtual_cluster(**self._options) as cluster:
            await self._prepare(cluster)
            return cluster.snapshot()


def prepared(**options: Unpack[ClusterOptions]) -> Callable[[Callable[[VirtualCluster], Awaitable[None]]], Prepared]:
    """Return a decorator for a function that prepares a cluster with these options; other clusters `start` from the
    result."""
    return lambda prepare: Prepared(prepare, options)
