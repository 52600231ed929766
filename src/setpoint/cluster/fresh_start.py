"""Start states of new, empty clusters: nodes that are ready, and some objects, after half a minute of virtual time.

They are made in virtual time in a thread, and kept: a cluster that starts from one is ready at once, any number of
times."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import orjson

from setpoint.apiserver.shared_entries import SharedEntries
from setpoint.cluster.allinone import controller_options, faster_controllers, faster_fleet, faster_server
from setpoint.cluster.cluster_copy import ClusterCopy, copied_items
from setpoint.cluster.components import ComponentOptions
from setpoint.cluster.config import NO_DATA_DIR, ApiServerConfig
from setpoint.cluster.embedded import EmbeddedOptions, State, bootstrapped, embedded_cluster
from setpoint.cluster.virtual.time import VirtualClock, run_virtual
from setpoint.meta.clock import Ids
from setpoint.meta.errors import BadRequest
from setpoint.meta.objects import Obj
from setpoint.node.options import FleetOptions
from setpoint.node.pace import PACES
from setpoint.system import RandomIds
from setpoint.web.lessons.actions import create_objects

MAX_NODES = 100
MAX_OBJECTS = 200
_SERVICES = "10.96.0.0/12"
_PASSED = 30.0
"""Seconds of virtual time between the start of the cluster and its start state."""
_MAX_KEPT = 32


@dataclass(frozen=True, slots=True)
class FreshStart:
    """A new cluster."""

    nodes: int = 3
    pace: str = "learning"
    """The name of the pace of its nodes (`node/pace.py`)."""
    objects: tuple[Obj, ...] = ()
    """Objects that it has, created in this order."""

    def digest(self) -> str:
        return sha256(orjson.dumps([self.nodes, self.pace, self.objects])).hexdigest()

    def embedded_options(self) -> EmbeddedOptions:
        """Return the options of the cluster, with the periods that fit its pace."""
        pace = PACES[self.pace]
        config = ApiServerConfig(NO_DATA_DIR, store="memory", authorization_mode=["Node", "RBAC"])
        controllers = controller_options(None, nodes=self.nodes, services=_SERVICES)
        fleet = faster_fleet(FleetOptions(self.nodes, pace=pace, reject_misspelled_images=True))
        return EmbeddedOptions(
            ComponentOptions(
                nodes=self.nodes,
                controller_options=faster_controllers(controllers, pace.speed),
                # The same identity at every start: a Lease that it holds already is acquired at once.
                identity="control-plane",
                fleet=fleet,
            ),
            faster_server(config, pace.speed),
        )


def fresh_start(wanted: Mapping[str, Any]) -> FreshStart:
    """Return the new cluster that a request describes with `nodes`, `pace` and `apply`. Raises BadRequest."""
    nodes, pace, objects = wanted.get("nodes", 3), wanted.get("pace", "learning"), wanted.get("apply", [])
    if not 0 <= nodes <= MAX_NODES:
        raise BadRequest(f"nodes must be a number from 0 to {MAX_NODES}")
    if pace not in PACES:
        raise BadRequest(f"pace must be one of {', '.join(PACES)}")
    if len(objects) > MAX_OBJECTS or not all(isinstance(each, dict) for each in objects):
        raise BadRequest(f"apply must be a list of at most {MAX_OBJECTS} objects")
    if not all(isinstance(each.get(name), str) for each in objects for name in ("apiVersion", "kind")):
        raise BadRequest("apply: each object needs apiVersion and kind")
    return FreshStart(nodes, pace, tuple(objects))


class FreshStarts:
    """Makes start states and keeps the latest of them."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._kept: dict[str, ClusterCopy] = {}
        self._bootstrapped: State | None = None
        self._lock = asyncio.Lock()

    async def copy(self, wanted: FreshStart, now: datetime) -> ClusterCopy:
        """Return the state of a new cluster. Raises ApiError."""
        key = wanted.digest()
        async with self._lock:
            if key in self._kept:
                self._kept[key] = self._kept.pop(key)  # the latest
                return self._kept[key]
            begin, seed = now - timedelta(seconds=_PASSED), self._ids.below(1 << 30)
            made, self._bootstrapped = await asyncio.to_thread(
                run_virtual, _made, wanted, begin, seed, self._bootstrapped
            )
            self._kept[key] = made
            while len(self._kept) > _MAX_KEPT:
                self._kept.pop(next(iter(self._kept)))
            return made


async def _made(wanted: FreshStart, begin: datetime, seed: int, base: State | None) -> tuple[ClusterCopy, State]:
    clock, ids = VirtualClock.going_on(begin), RandomIds(seed)
    base = base or await bootstrapped(clock, ids)
    problem: BadRequest | None = None
    async with embedded_cluster(clock, ids, wanted.embedded_options(), base) as cluster:
        try:
            await create_objects(cluster.client, clock, wanted.objects)
        except BadRequest as error:  # raised below, because task groups would wrap it
            problem = error
        left = _PASSED - (clock.now() - begin).total_seconds()
        await clock.sleep(max(left, 0.0))
        copy = copied_items(cluster.store.entries().values(), cluster.store.revision, clock.now())
        copy.shared = SharedEntries(copy.objects.values(), base.shared)
    if problem is not None:
        raise problem
    return copy, base
