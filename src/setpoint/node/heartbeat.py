"""Keeps the Node objects and Leases of a fleet fresh."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, ApiError, Conflict, NotFound
from setpoint.meta.times import format_micro
from setpoint.node.annotations import RUNNING
from setpoint.node.node_state import NodeState
from setpoint.node.options import NodeTemplate
from setpoint.node.registration import (
    CHANGE_EVERY,
    EVENTS,
    LEASE_NAMESPACE,
    MANAGED_ATTACHING,
    STATUS_EVERY,
    csi_node,
    default_labels,
    extended,
    lease_object,
    node_object,
    node_status,
    resumed_csi_node,
)
from setpoint.reconcile import EventRecorder

log = logging.getLogger("setpoint.node")

Obj = dict[str, Any]

NODES, LEASES = builtin("nodes"), builtin("leases", "coordination.k8s.io")
CSI_NODES = builtin("csinodes", "storage.k8s.io")
_AT_ONCE = 32
_RENEWALS = 4
"""In the life of a Lease, as a kubelet's."""
_MOST_TALKING = 100
"""A larger fleet does not tell of each node that it has started."""


class Heartbeat:
    def __init__(
        self,
        nodes: dict[str, NodeState],
        client_for: Callable[[str], Client],
        clock: Clock,
        events: EventRecorder,
        *,
        template: NodeTemplate,
        versions: tuple[str, str],
    ) -> None:
        """`nodes` may grow and shrink; `client_for(node)` writes under the node's own name."""
        self._nodes = nodes
        self._client_for = client_for
        self._clock = clock
        self._events = events
        self._template = template
        self._versions = versions
        self._leases: dict[str, Obj] = {}
        self.endpoint: tuple[str, int] | None = None
        """Address and port at which the nodes can be asked, where that is not within the process."""
        self.registered = asyncio.Event()
        """All nodes that the fleet began with are there and ready."""

    async def run(self) -> None:
        await self._register_all([node for node in self._nodes.values() if not node.adopted])
        self.registered.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                self._spread(self._template.lease_seconds / _RENEWALS, self._renew, lambda: self._nodes.values())
            )
            tasks.create_task(self._spread(STATUS_EVERY, self._refresh, lambda: self._nodes.values()))
            tasks.create_task(self._spread(CHANGE_EVERY, self._refresh, self._changed))

    def _changed(self) -> Iterable[NodeState]:
        return [node for node in self._nodes.values() if node.status_changed]

    async def _register_all(self, nodes: Iterable[NodeState]) -> None:
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(number: int, node: NodeState) -> None:
            async def register(node: NodeState) -> None:
                await self._register(node, number)

            async with limit:
                while not await self._attempt(node, register):
                    await self._clock.sleep(1.0)

        async with asyncio.TaskGroup() as tasks:
            for number, node in enumerate(nodes):
                tasks.create_task(one(number, node))

    async def _spread(
        self, period: float, do: Callable[[NodeState], Awaitable[None]], whom: Callable[[], Iterable[NodeState]]
    ) -> None:
        """Every node once in each period, evenly, so that a thousand of them make no waves. None waits for the answer
        that another one gets: with a server that is slow to answer they would all be late, and taken for dead. A node
        that still waits for its own answer is left out; so are the turns that were missed while the process was
        paused."""
        due = self._clock.monotonic()
        limit = asyncio.Semaphore(_AT_ONCE)
        waiting: set[NodeState] = set()

        async def one(node: NodeState) -> None:
            try:
                await self._attempt(node, do)
            finally:
                waiting.discard(node)
                limit.release()

        async with asyncio.TaskGroup() as tasks:
            while True:
                nodes = tuple(whom())
                for node in nodes or (None,):
                    due = max(due + period / (len(nodes) or 1), self._clock.monotonic() - period)
                    await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
                    if node is None or node.state != RUNNING or node in waiting:
                        continue
                    if self._nodes.get(node.name) is node:
                        await limit.acquire()
                        waiting.add(node)
                        tasks.create_task(one(node))

    async def _attempt(self, node: NodeState, do: Callable[[NodeState], Awaitable[None]]) -> bool:
        try:
            await do(node)
        except (ApiError, Unreachable) as error:
            log.warning("node %s cannot tell that it is well: %s", node.name, error)
            return False
        except Exception:  # of this node alone
            log.exception("the heartbeat of node %s failed", node.name)
            return False
        return True

    # -- nodes --------------------------------------------------------------------------------------------------------

    async def _register(self, node: NodeState, number: int) -> None:
        client = self._client_for(node.name)
        try:
            fresh = node_object(node.name, number, self._template, self._status(node, {}))
            node.object = await client.create(fresh)
        except AlreadyExists:
            node.object = await client.get(NODES, node.name)
            await self._resume(node)
        await self._attempt(node, self._offer_volumes)
        await self._renew(node)
        self._tell_of_start(node)

    async def take_over(self, node: NodeState) -> None:
        """A Node that somebody else made, or one that comes back: from now on it is alive."""
        await self._attempt(node, self._label)
        await self._attempt(node, self._resume)
        await self._attempt(node, self._offer_volumes)
        await self._attempt(node, self._renew)
        self._tell_of_start(node)

    async def _label(self, node: NodeState) -> None:
        """Give the Node the labels that a kubelet sets when it finds one that somebody else made."""
        if node.object is None:
            return
        labels, wanted = node.object["metadata"].get("labels") or {}, default_labels(node.name)
        if any(labels.get(key) != value for key, value in wanted.items()):
            with suppress(NotFound):  # removed: the watch will tell
                node.object = await self._client_for(node.name).patch(
                    NODES, node.name, {"metadata": {"labels": wanted}}
                )

    def _tell_of_start(self, node: NodeState) -> None:
        if len(self._nodes) > _MOST_TALKING or node.object is None:
            return
        self._events.normal(node.object, "Starting", "Starting kubelet.", host=node.name)
        for reason in EVENTS:
            self._events.normal(node.object, reason, f"Node {node.name} status is now: {reason}", host=node.name)
        text = "Updated Node Allocatable limit across pods"
        self._events.normal(node.object, "NodeAllocatableEnforced", text, host=node.name)

    def _status(self, node: NodeState, current: Obj) -> Obj:
        stated = current.get("capacity") or {}
        if not node.adopted:
            # A kubelet keeps extended resources that somebody else put into the capacity; the rest it measures itself.
            stated = extended(stated)
        capacity = {**self._template.capacity, **stated}
        return node_status(
            node.name, node.address, node.boots, capacity, node.reported_images(), self._versions, current,
            self._clock.now(), self.endpoint,
        )  # fmt: skip

    async def _refresh(self, node: NodeState) -> None:
        await self._report(node, {})

    async def _resume(self, node: NodeState) -> None:
        """Report on a Node that exists already, as a kubelet does when it starts."""
        await self._report(node, {MANAGED_ATTACHING: "true"})

    async def _report(self, node: NodeState, annotations: dict[str, str]) -> None:
        if node.object is None:
            return
        node.status_changed = False
        change: Obj = {"status": self._status(node, node.object.get("status") or {})}
        if annotations:
            change["metadata"] = {"annotations": annotations}
        with suppress(NotFound):  # removed: the watch will tell
            node.object = await self._client_for(node.name).patch(
                NODES, node.name, change, kind="strategic", subresource="status"
            )

    # -- volumes ------------------------------------------------------------------------------------------------------

    async def _offer_volumes(self, node: NodeState) -> None:
        """Make the node's CSINode, or see to it that the one that exists lists its drivers and belongs to it."""
        if node.object is None:
            return
        client, fresh = self._client_for(node.name), csi_node(node.object, self._template.drivers)
        try:
            await client.create(fresh)
        except AlreadyExists:
            with suppress(NotFound, Conflict):  # deleted with its former Node, or edited: neither is ours to undo
                found = await client.get(CSI_NODES, node.name)
                resumed = resumed_csi_node(found, fresh)
                if resumed != found:
                    await client.update(resumed)

    # -- leases -------------------------------------------------------------------------------------------------------

    async def _renew(self, node: NodeState) -> None:
        if node.object is None:
            return
        name, client, now = node.name, self._client_for(node.name), self._clock.now()
        lease = self._leases.get(name)
        if lease is not None:
            renewed = {**lease, "spec": {**lease["spec"], "renewTime": format_micro(now)}}
            try:
                self._leases[name] = await client.update(renewed)
                return
            except (Conflict, NotFound):
                self._leases.pop(name, None)  # perhaps forgotten already, by `forget` or another renewal
        fresh = lease_object(node.object, self._template.lease_seconds, now)
        try:
            self._leases[name] = await client.create(fresh)
        except AlreadyExists:
            lease = await client.get(LEASES, name, LEASE_NAMESPACE)
            self._leases[name] = await client.update({**lease, "spec": {**lease["spec"], **fresh["spec"]}})

    def forget(self, name: str) -> None:
        self._leases.pop(name, None)
