"""Checks every node periodically and updates conditions, Pods and taints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.controllers.conditions import condition
from setpoint.controllers.node_lifecycle.health import Health, observe, unknown_conditions
from setpoint.controllers.node_lifecycle.pods_not_ready import mark_not_ready
from setpoint.controllers.node_lifecycle.taints import (
    EVICTING,
    NODES,
    evicting_taint,
    ids_of,
    swap_taints,
    taints_of,
)
from setpoint.controllers.node_lifecycle.zones import Change, Zones, zone_of
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pods_by_node import PodsByNode
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.reconcile import EventRecorder, Informer

log = logging.getLogger("setpoint.controllers")

Obj = dict[str, Any]

LEASES = builtin("leases", "coordination.k8s.io")
LEASE_NAMESPACE = "kube-node-lease"
_EXCLUDED = "node.kubernetes.io/exclude-disruption"
_AT_ONCE = 8
_ATTEMPTS, _PAUSE = 5, 0.02
_YIELD_EVERY = 500
"""The number of nodes after which the loop yields to other tasks."""


class StaleLeases(Exception):
    """The cache of Leases is stale: a missing renewal proves nothing."""


class NodeMonitor:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        nodes: Informer,
        leases: Informer,
        pods: PodsByNode,
        zones: Zones,
        options: ControllerOptions,
        taint: Callable[[str, str], None],
    ) -> None:
        """Create the monitor. `taint(zone, node)` adds a node to the queue of its zone; an empty name only wakes the
        queue."""
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._nodes = nodes
        self._leases = leases
        self._pods = pods
        self._zones = zones
        self._options = options
        self._taint = taint
        self.health: dict[str, Health] = {}
        self._known: dict[str, str] = {}
        """Uids of the nodes at the previous check, by name."""
        self._unmarked: set[str] = set()
        """Nodes some of whose Pods may still be marked as ready."""
        self._leases_until = 0
        """The revision that the cache of Leases must have reached."""

    async def run(self) -> None:
        while True:
            try:
                await self.check_nodes()
            except StaleLeases:
                log.info("node lifecycle: waiting until the cache of Leases has caught up")
            except (ApiError, Unreachable) as error:
                log.warning("node lifecycle: %s", error)
            except Exception:
                log.exception("node lifecycle: the check of the nodes failed; retrying in the next period")
            await self._clock.sleep(self._options.node_monitor_period)

    def ready(self, name: str) -> str:
        """Return the status of the node's Ready condition as last seen or written; empty if there is none."""
        health = self.health.get(name)
        return str((health.ready or {}).get("status") or "") if health is not None else ""

    async def check_nodes(self) -> None:
        if int(self._leases.resource_version or 0) < self._leases_until:
            raise StaleLeases
        nodes = sorted(self._nodes.items.values(), key=lambda node: str(node["metadata"]["name"]))
        self._record_membership(nodes)
        before: dict[str, str] = {}
        overdue: list[Obj] = []
        for count, node in enumerate(nodes):
            if count and count % _YIELD_EVERY == 0:
                await self._clock.sleep(0)
            if self._is_overdue(node):
                overdue.append(node)
            name = node["metadata"]["name"]
            before[name] = self.ready(name) or "Unknown"
        failed = await self._all(overdue, self._mark_unknown)
        ready_by_zone: dict[str, list[bool]] = {}
        active = []
        for count, node in enumerate(nodes):
            if count and count % _YIELD_EVERY == 0:
                await self._clock.sleep(0)
            name = node["metadata"]["name"]
            if name in failed:
                continue
            if _EXCLUDED not in (node["metadata"].get("labels") or {}):
                ready_by_zone.setdefault(zone_of(node), []).append(self.ready(name) == "True")
            if self._needs_attention(node, before[name]):
                active.append(node)

        async def attend(node: Obj) -> None:
            await self._handle(node, before[node["metadata"]["name"]])

        await self._all(active, attend)
        await self._assess_zones(ready_by_zone, nodes)

    async def _all(self, nodes: list[Obj], do: Callable[[Obj], Any]) -> set[str]:
        """Run `do` for the nodes with limited concurrency. Return the names of those for which it failed."""
        limit, failed = asyncio.Semaphore(_AT_ONCE), set()

        async def one(node: Obj) -> None:
            async with limit:
                try:
                    await do(node)
                except (ApiError, Unreachable) as error:
                    log.warning("node lifecycle: node %s: %s", node["metadata"]["name"], error)
                    failed.add(node["metadata"]["name"])

        outcomes = await asyncio.gather(*(one(node) for node in nodes), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return failed

    # -- added and removed nodes --------------------------------------------------------------------------------------

    def _record_membership(self, nodes: list[Obj]) -> None:
        current = {node["metadata"]["name"]: node["metadata"]["uid"] for node in nodes}
        for name, uid in current.items():
            if name not in self._known:
                self._record(name, uid, "RegisteredNode", f"Registered Node {name} in Controller")
                self._unmarked.add(name)
        for name, uid in self._known.items():
            if name not in current:
                self._record(name, uid, "RemovingNode", f"Removing Node {name} from Controller")
                self._unmarked.discard(name)
                self.health.pop(name, None)
        self._known = current

    def _record(self, name: str, uid: str, reason: str, message: str) -> None:
        about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid}}
        self._recorder.normal(about, reason, f"Node {name} event: {message}")

    # -- health -------------------------------------------------------------------------------------------------------

    def _is_overdue(self, node: Obj) -> bool:
        name = node["metadata"]["name"]
        lease = self._leases.get(f"{LEASE_NAMESPACE}/{name}")
        at = self._clock.monotonic()
        health = self.health[name] = observe(self.health.get(name), node, lease, at, self._clock.now())
        options = self._options
        grace = options.node_startup_grace_period if health.ready is None else options.node_monitor_grace_period
        return at > health.last_heartbeat + grace and self.ready(name) != "Unknown"

    async def _mark_unknown(self, node: Obj) -> None:
        name = node["metadata"]["name"]
        await self._check_lease(name)
        for attempt in range(_ATTEMPTS):
            conditions = unknown_conditions(node, self._clock.now())
            if conditions is None:
                return
            changed = {**node, "status": {**(node.get("status") or {}), "conditions": conditions}}
            try:
                node = await self._client.update(changed, subresource="status")
                self.health[name].ready = condition(node, "Ready")
                return
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
            await self._clock.sleep(_PAUSE)
            node = await self._client.get(NODES, name)
            if not self._is_overdue(node):
                return

    async def _check_lease(self, name: str) -> None:
        """Read the Lease from the server before a node is declared unhealthy, because the cache may have stalled."""
        try:
            live = await self._client.get(LEASES, name, LEASE_NAMESPACE)
        except NotFound:
            return
        cached = self._leases.get(f"{LEASE_NAMESPACE}/{name}")
        version = live["metadata"]["resourceVersion"]
        if cached is None or cached["metadata"]["resourceVersion"] != version:
            self._leases_until = int(version)
            raise StaleLeases

    # -- taints and Pods ----------------------------------------------------------------------------------------------

    def _needs_attention(self, node: Obj, before: str) -> bool:
        """Return whether anything must be done for the node; most are healthy and were before."""
        now = self.ready(node["metadata"]["name"])
        if now == before == "True" and (not taints_of(node) or ids_of(taints_of(node)).isdisjoint(EVICTING)):
            self._unmarked.discard(node["metadata"]["name"])
            return False
        return bool(now)

    async def _handle(self, node: Obj, before: str) -> None:
        name, ready = node["metadata"]["name"], self.ready(node["metadata"]["name"])
        await self._apply_taint(node, ready)
        if ready != "True" and before == "True":
            about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": node["metadata"]["uid"]}}
            self._recorder.normal(about, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
            self._unmarked.add(name)
        if ready == "Unknown" and name in self._unmarked:
            await mark_not_ready(self._client, self._clock, self._recorder, self._pods.on(name))
        self._unmarked.discard(name)

    async def _apply_taint(self, node: Obj, ready: str) -> None:
        there, wanted = ids_of(taints_of(node)), evicting_taint(ready)
        if wanted is None:
            await swap_taints(self._client, self._clock, node, (), EVICTING)
        elif not there.isdisjoint(each for each in EVICTING if each != wanted):
            # It is tainted already: only the reason has changed.
            opposite = [each for each in EVICTING if each != wanted]
            await swap_taints(self._client, self._clock, node, (wanted,), opposite)
        elif wanted not in there:
            self._taint(zone_of(node), node["metadata"]["name"])

    async def _assess_zones(self, ready_by_zone: dict[str, list[bool]], nodes: list[Obj]) -> None:
        change = self._zones.assess(ready_by_zone)
        if change is Change.ALL_DOWN:
            log.warning("node lifecycle: no node is ready; evictions are suspended until one is")

            async def untaint(node: Obj) -> None:
                await swap_taints(self._client, self._clock, node, (), EVICTING)

            await self._all([node for node in nodes if not ids_of(taints_of(node)).isdisjoint(EVICTING)], untaint)
        elif change is Change.UP_AGAIN:
            log.warning("node lifecycle: some nodes are ready again; evictions resume")
            now = self._clock.monotonic()
            for health in self.health.values():
                health.last_heartbeat = now
        for zone in ready_by_zone:
            self._taint(zone, "")
