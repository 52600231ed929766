"""The stores of the servers and clusters that a test makes.

`pytest --store lagging` chooses the lagging store for a whole run. A module that names several in `STORES` runs on each
of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from dataclasses import replace
from random import Random
from unittest.mock import patch
from zlib import crc32

from lagging_store import LaggingStore, Medium
from store_choice import is_lagging, longest_lag, store_choice

from setpoint.cluster import embedded
from setpoint.cluster.embedded import EmbeddedCluster, EmbeddedOptions, State
from setpoint.meta.clock import Clock, Ids
from setpoint.store.interface import Store
from setpoint.store.memory import MemoryStore
from setpoint.store.quota import StoreQuota
from setpoint.testing import cluster

_TICK = 2e-9
"""Seconds of virtual time. The second view is up to the longest lag of them behind, and `VirtualCluster.instant` lasts
500."""

_seed = [1]


def new_store(start: MemoryStore | None = None) -> Store:
    """Return a store of the chosen kind with the content of `start`."""
    if is_lagging():
        return _new_view(_new_medium(start), shared=False)
    return MemoryStore() if start is None else start.fork()


@contextmanager
def on_lagging_stores(kind: str, seed: int = 1) -> Iterator[None]:
    """Let servers and clusters that are made in the block work on lagging stores, with lags that depend on `seed`.

    With the kind `two-views` the controllers, the scheduler and the nodes of a virtual cluster use a second server,
    which has a view of its own on the medium of the first."""
    with ExitStack() as stack:
        stack.enter_context(store_choice(3 if seed == 1 else Random(seed).randint(1, 12)))
        _seed.append(seed)
        stack.callback(_seed.pop)
        stack.enter_context(patch.object(embedded, "open_stores", _open_stores))
        if kind == "two-views":
            stack.enter_context(patch.object(cluster, "embedded_cluster", _cluster_with_two_servers))
        yield


def _cluster_with_two_servers(
    clock: Clock, ids: Ids, options: EmbeddedOptions, start: State
) -> AbstractAsyncContextManager[EmbeddedCluster]:
    if options.replica_delay is None:
        seed, longest = _seed[-1], longest_lag()
        options = replace(options, replica_delay=lambda revision: _mixed(seed, revision) % (longest + 1) * _TICK)
    return embedded.embedded_cluster(clock, ids, options, start)


def _mixed(seed: int, revision: int) -> int:
    return crc32(b"%d %d" % (seed, revision))


def _open_stores(
    start: MemoryStore | None, *, shared: bool = False, quota: StoreQuota | None = None
) -> tuple[MemoryStore, Store]:
    medium = _new_medium(start, quota)
    return medium, _new_view(medium, shared=shared)


def _new_medium(start: MemoryStore | None, quota: StoreQuota | None = None) -> Medium:
    return Medium(_seed[-1], start=None if start is None else start.copy_of_history(), quota=quota)


def _new_view(medium: Medium, *, shared: bool) -> LaggingStore:
    return LaggingStore(medium, lag=longest_lag(), shared=shared)
