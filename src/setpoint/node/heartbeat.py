"""Registers nodes, and keeps their Node objects, CSINodes and Leases up to date. A `NodeReporter` provides what is
reported: that of simulated nodes is in `registration.py`, that of real nodes in `host/node_report.py`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, ApiError, Conflict, NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_micro
from setpoint.node.node_state import NodeState
from setpoint.node.options import NodeTemplate
from setpoint.node.registration import (
    IMAGES_UPDATE_PERIOD,
    LEASE_NAMESPACE,
    MANAGED_ATTACH_ANNOTATION,
    STATUS_REPORT_PERIOD,
    STATUS_UPDATE_PERIOD,
    Endpoint,
    NodeReporter,
    SimulatedNodeReporter,
    csi_node,
    lease_object,
    updated_csi_node,
)
from setpoint.node.simulation_annotations import RUNNING
from setpoint.reconcile import EventRecorder
from setpoint.reconcile.run import current_run, periodic_run

log = logging.getLogger("setpoint.node")


NODES, LEASES = builtin("nodes"), builtin("leases", "coordination.k8s.io")
CSI_NODES = builtin("csinodes", "storage.k8s.io")
_LOOP = "node-heartbeat"
_MAX_CONCURRENT_REQUESTS = 32
_GROUPS_PER_PERIOD = 40
"""Nodes of a large fleet are visited in so many groups in each period."""
_MAX_GROUP_SIZE = 16
"""Nodes that are visited at once. A group occupies the loop for a few milliseconds, and the store commits its writes
in one transaction."""
_RENEWALS_PER_LEASE = 4
"""The number of renewals of a Lease within its duration, as a kubelet does."""
_MAX_NODES_WITH_START_EVENTS = 100
"""The largest fleet for which the start of every node is recorded as Events."""


class Heartbeat:
    """Registers nodes, renews their Leases, and reports their status when it changes and periodically."""

    def __init__(
        self,
        nodes: dict[str, NodeState],
        client_for: Callable[[str], Client],
        clock: Clock,
        events: EventRecorder,
        *,
        template: NodeTemplate,
        versions: tuple[str, str] = ("", ""),
        reporter: NodeReporter | None = None,
    ) -> None:
        """Create the heartbeat. `nodes` may grow and shrink; `client_for(node)` returns a client with the identity of
        the node. Without a reporter, the nodes are simulated; `versions` are then those of kubelet and runtime."""
        self._nodes = nodes
        self._client_for = client_for
        self._clock = clock
        self._events = events
        self._template = template
        self._reporter = reporter or SimulatedNodeReporter(template, versions, clock)
        self._leases: dict[str, Obj] = {}
        self._urgent: asyncio.Queue[str] = asyncio.Queue()
        """Names of nodes whose status is reported without delay. Each is in it at most once."""
        self._urgent_names: set[str] = set()
        self.endpoint: Endpoint | None = None
        """Address and port of the kubelet API of all nodes; None where it is reached within the process."""
        self.registered = asyncio.Event()
        """Set when all nodes that the fleet began with are registered and ready."""

    async def run(self) -> None:
        current_run.set(periodic_run(_LOOP, self._clock.now(), "start"))
        await self._register_all([node for node in self._nodes.values() if not node.adopted])
        self.registered.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                self._run_periodically(
                    self._template.lease_seconds / _RENEWALS_PER_LEASE, self._renew, lambda: self._nodes.values()
                )
            )
            tasks.create_task(self._run_periodically(STATUS_REPORT_PERIOD, self._refresh, lambda: self._nodes.values()))
            tasks.create_task(self._run_periodically(STATUS_UPDATE_PERIOD, self._refresh, self._nodes_with_changes))
            tasks.create_task(self._run_periodically(IMAGES_UPDATE_PERIOD, self._refresh, self._nodes_with_images))
            tasks.create_task(self._report_urgent())

    def report_soon(self, name: str) -> None:
        """Report the status of a node without waiting for the next period, such as when it became ready."""
        if name not in self._urgent_names:
            self._urgent_names.add(name)
            self._urgent.put_nowait(name)

    async def _report_urgent(self) -> None:
        current_run.set(periodic_run(_LOOP, self._clock.now(), "status"))
        while True:
            name = await self._urgent.get()
            self._urgent_names.discard(name)
            node = self._nodes.get(name)
            if node is not None and node.state == RUNNING and not await self._attempt(node, self._refresh):
                node.status_changed = True  # the next period repeats it

    def _nodes_with_changes(self) -> Iterable[NodeState]:
        return [node for node in self._nodes.values() if node.status_changed]

    def _nodes_with_images(self) -> Iterable[NodeState]:
        return [node for node in self._nodes.values() if node.images_changed]

    async def _register_all(self, nodes: Iterable[NodeState]) -> None:
        limit = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)

        async def run_one(number: int, node: NodeState) -> None:
            async def register(node: NodeState) -> None:
                await self._register(node, number)

            async with limit:
                while not await self._attempt(node, register):
                    await self._clock.sleep(1.0)

        async with asyncio.TaskGroup() as tasks:
            for number, node in enumerate(nodes):
                tasks.create_task(run_one(number, node))

    async def _run_periodically(
        self,
        period: float,
        do: Callable[[NodeState], Awaitable[None]],
        nodes_to_visit: Callable[[], Iterable[NodeState]],
    ) -> None:
        """Call `do` for each node once per period, evenly spaced; in a large fleet for a group of nodes at a time.

        A call alone costs several times as much as one of many: the processor's caches hold other things by then, and
        the store has to commit it in a transaction of its own.

        Calls run concurrently, so that a slow response for one node does not delay the others until they appear dead. A
        node whose previous call has not returned is skipped; so are the calls that were missed while the process was
        paused."""
        current_run.set(periodic_run(_LOOP, self._clock.now(), f"timer:{period:g}"))
        due = self._clock.monotonic()
        limit = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)
        waiting: set[NodeState] = set()

        async def run_one(node: NodeState) -> None:
            try:
                await self._attempt(node, do)
            finally:
                waiting.discard(node)
                limit.release()

        async with asyncio.TaskGroup() as tasks:
            while True:
                nodes = tuple(nodes_to_visit())
                size = max(1, min(_MAX_GROUP_SIZE, len(nodes) // _GROUPS_PER_PERIOD))
                for start in range(0, len(nodes) or 1, size):
                    group = nodes[start : start + size]
                    seconds = period * len(group) / len(nodes) if nodes else period
                    due = max(due + seconds, self._clock.monotonic() - period)
                    await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
                    for node in group:
                        if node.state != RUNNING or node in waiting or self._nodes.get(node.name) is not node:
                            continue
                        await limit.acquire()
                        waiting.add(node)
                        tasks.create_task(run_one(node))

    async def _attempt(self, node: NodeState, do: Callable[[NodeState], Awaitable[None]]) -> bool:
        try:
            await do(node)
        except (ApiError, Unreachable) as error:
            log.warning("cannot report node %s to the API server: %s", node.name, error)
            return False
        except Exception:  # a failure of one node must not stop the others
            log.exception("the heartbeat of node %s failed", node.name)
            return False
        return True

    # -- Nodes ---------------------------------------------------------------------------------------------------------

    async def _register(self, node: NodeState, number: int) -> None:
        client = self._client_for(node.name)
        try:
            node.object = await client.create(self._reporter.node(node, number, self.endpoint))
        except AlreadyExists:
            node.object = await client.get(NODES, node.name)
            await self._label(node)
            await self._resume(node)
        await self._attempt(node, self._publish_csi_node)
        await self._renew(node)
        self._record_start_events(node)

    async def adopt(self, node: NodeState) -> None:
        """Take charge of a Node that a client created, or that is running again."""
        await self._attempt(node, self._label)
        await self._attempt(node, self._resume)
        await self._attempt(node, self._publish_csi_node)
        await self._attempt(node, self._renew)
        self._record_start_events(node)

    async def _label(self, node: NodeState) -> None:
        """Set the labels that a kubelet sets on a Node that another client created."""
        if node.object is None:
            return
        labels, wanted = node.object["metadata"].get("labels") or {}, self._reporter.labels(node)
        if any(labels.get(key) != value for key, value in wanted.items()):
            with suppress(NotFound):  # deleted: the informer reports it
                node.object = await self._client_for(node.name).patch(
                    NODES, node.name, {"metadata": {"labels": wanted}}
                )

    def _record_start_events(self, node: NodeState) -> None:
        if len(self._nodes) > _MAX_NODES_WITH_START_EVENTS or node.object is None:
            return
        self._events.normal(node.object, "Starting", "Starting kubelet.", host=node.name)
        for reason in self._reporter.start_events():
            self._events.normal(node.object, reason, f"Node {node.name} status is now: {reason}", host=node.name)
        text = "Updated Node Allocatable limit across pods"
        self._events.normal(node.object, "NodeAllocatableEnforced", text, host=node.name)

    async def _refresh(self, node: NodeState) -> None:
        await self._report(node, {})

    async def _resume(self, node: NodeState) -> None:
        """Report the status of an existing Node, as a kubelet does when it starts."""
        await self._report(node, {MANAGED_ATTACH_ANNOTATION: "true"})

    async def _report(self, node: NodeState, annotations: dict[str, str]) -> None:
        if node.object is None:
            return
        node.status_changed = node.images_changed = False
        before = node.object.get("status") or {}
        status = self._reporter.status(node, before, self.endpoint)
        # Only what has changed, as a kubelet does: the server then merges and compares less.
        change: Obj = {"status": {name: value for name, value in status.items() if before.get(name) != value}}
        if annotations:
            change["metadata"] = {"annotations": annotations}
        with suppress(NotFound):  # deleted: the informer reports it
            node.object = await self._client_for(node.name).patch(
                NODES, node.name, change, kind="strategic", subresource="status"
            )
            for each in self._reporter.transitions(node, before, status):
                record = self._events.warning if each.warning else self._events.normal
                record(node.object, each.reason, each.message, host=node.name)

    # -- CSINodes ------------------------------------------------------------------------------------------------------

    async def _publish_csi_node(self, node: NodeState) -> None:
        """Create the node's CSINode, or update an existing one so that it lists the drivers and is owned by the
        Node."""
        if node.object is None:
            return
        client, fresh = self._client_for(node.name), csi_node(node.object, self._template.drivers)
        try:
            await client.create(fresh)
        except AlreadyExists:
            with suppress(NotFound, Conflict):  # deleted with its former Node, or edited by a client: leave it
                found = await client.get(CSI_NODES, node.name)
                updated = updated_csi_node(found, fresh)
                if updated != found:
                    await client.update(updated)

    # -- Leases --------------------------------------------------------------------------------------------------------

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
                self._leases.pop(name, None)  # `forget` or another renewal may have removed it
        fresh = lease_object(node.object, self._template.lease_seconds, now)
        try:
            self._leases[name] = await client.create(fresh)
        except AlreadyExists:
            lease = await client.get(LEASES, name, LEASE_NAMESPACE)
            self._leases[name] = await client.update({**lease, "spec": {**lease["spec"], **fresh["spec"]}})

    def forget(self, name: str) -> None:
        self._leases.pop(name, None)
