"""Many simulated nodes behind one agent: one watch, one queue, one heap of timers for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict, NotFound
from setpoint.node.addresses import NODES, PODS, AddressPool
from setpoint.node.annotations import RUNNING, STOPPED
from setpoint.node.fleet_nodes import FleetNodes
from setpoint.node.heartbeat import Heartbeat
from setpoint.node.lookup import InformerLookup
from setpoint.node.network.cluster_network import FleetNetwork
from setpoint.node.network.directory import Directory
from setpoint.node.node_state import NodeState
from setpoint.node.options import FleetOptions
from setpoint.node.pod_status import changes
from setpoint.node.pod_worker import PodWorker
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.node.service_tokens import ServiceTokens
from setpoint.node.stage_player import add_stages
from setpoint.node.static_pods import StaticPod, StaticPods, is_mirror
from setpoint.node.tools import Tools
from setpoint.node.volumes import node_owner
from setpoint.reconcile import Controller, Informer, Manager, Result, key_of

Obj = Mapping[str, Any]

_PODS, _NODES, _CLAIMS = builtin("pods"), builtin("nodes"), builtin("persistentvolumeclaims")
_WORKERS = 64
_MOST_TURNS = 100
_SLEW = 1.0
"""Seconds by which a wall clock may be behind without having been set back: it is adjusted all the time."""
_ON_NODE = "node"


def node_names(count: int) -> list[str]:
    return [f"node-{number}" for number in range(1, count + 1)]


def add_fleet(
    manager: Manager,
    options: FleetOptions | int,
    runtime: SimulatedRuntime,
    *,
    client_for: Callable[[str], Client],
    stage_client: Client,
    version: str,
    runtime_version: str,
    static_pods: Sequence[StaticPod] | None = (),
) -> Fleet:
    """`client_for(node)` writes under the node's own name; the manager's client sees the Pods of all; stages are played
    by one of their own. The first node runs the static Pods; None: those that are set later."""
    if isinstance(options, int):
        options = FleetOptions(options)
    hosts, shared = AddressPool(NODES), AddressPool(PODS)
    nodes = {name: NodeState(name, hosts.take(name), shared) for name in node_names(options.nodes)}
    recorder = manager.recorder("kubelet")
    tools = Tools(runtime, recorder, InformerLookup(manager), manager.ids, nodes)
    pods = manager.informer(_PODS, field_selector="spec.nodeName!=")
    pods.add_index(_ON_NODE, lambda pod: (pod["spec"].get("nodeName", ""),))
    heartbeat = Heartbeat(
        nodes, client_for, manager.clock, recorder, template=options.template, versions=(version, runtime_version)
    )
    directory = Directory(manager)
    network = FleetNetwork(directory, runtime, nodes, manager.ids, lambda node: pods.by_index(_ON_NODE, node))
    runtime.network = network
    stages = add_stages(manager, stage_client, options.stages, recorder)
    fleet = Fleet(
        tools, pods, manager.informer(_CLAIMS), client_for, manager.clock, heartbeat, stages.handles_pod, network
    )
    control = FleetNodes(
        nodes, manager.informer(_NODES), heartbeat, manager.clock, hosts, shared, recorder, fleet.node_changed
    )
    control.watch()
    fleet.watch()
    if (static_pods or static_pods is None) and nodes:
        first = next(iter(nodes.values()))
        fleet.static = StaticPods(first.name, first.address, static_pods or (), pods, client_for, manager.clock)
        fleet.static.watch()
        manager.add(fleet.static.controller)
    for part in (directory, heartbeat, control.controller, fleet.controller):
        manager.add(part)
    return fleet


class Fleet:
    def __init__(
        self,
        tools: Tools,
        pods: Informer,
        claims: Informer,
        client_for: Callable[[str], Client],
        clock: Clock,
        heartbeat: Heartbeat,
        staged: Callable[[Obj], bool],
        network: FleetNetwork,
    ) -> None:
        """`staged(pod)`: somebody else says how this Pod lives."""
        self._tools = tools
        self._pods = pods
        self._claims = claims
        self._client_for = client_for
        self._clock = clock
        self.heartbeat = heartbeat
        self.tokens = ServiceTokens(client_for, clock)
        self.network = network
        self.static: StaticPods | None = None
        self._staged = staged
        self._workers: dict[str, PodWorker] = {}
        """By the uid of the Pod."""
        self._latest, self._asked_at = clock.now().timestamp(), clock.monotonic()
        """What `_now` returned last, and when that was by the monotonic clock."""
        self.controller = Controller("node", self.sync, clock, workers=_WORKERS)
        tools.runtime.changed = self._look_again

    @property
    def registered(self) -> asyncio.Event:
        """Set when all nodes that the fleet began with are there and ready."""
        return self.heartbeat.registered

    # -- for those who ask the nodes ----------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        return self._tools.nodes

    @property
    def runtime(self) -> SimulatedRuntime:
        """For logs, commands and usage."""
        return self._tools.runtime

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        pod = self._pods.get(f"{namespace}/{name}")
        return self._workers.get(pod["metadata"]["uid"]) if pod is not None else None

    def workers(self) -> Iterable[PodWorker]:
        return self._workers.values()

    def workers_on(self, node: str) -> list[PodWorker]:
        found = (self._workers.get(pod["metadata"]["uid"]) for pod in self._pods.by_index(_ON_NODE, node))
        return [worker for worker in found if worker is not None]

    # -- hearing ------------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        self._pods.add_handler(self._pod_changed)
        self._claims.add_handler(self._claim_changed)

    def _pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        pod = new or old or {}
        node = self._tools.nodes.get(pod["spec"].get("nodeName"))
        if node is None or is_mirror(pod):
            return
        uid = pod["metadata"]["uid"]
        if new is None:
            self._drop(uid, node)
        elif uid not in self._workers:
            self._meet(new, node)
        elif self._workers[uid].update(new):
            self.controller.enqueue(key_of(new))

    def _claim_changed(self, old: Obj | None, new: Obj | None) -> None:
        if new is None and old is not None:
            self._tools.runtime.forget_volumes(old["metadata"]["uid"])

    def _meet(self, pod: Obj, node: NodeState) -> None:
        if not self._staged(pod):
            self._workers[pod["metadata"]["uid"]] = PodWorker(pod, node, self._tools, self._now())
            self.controller.enqueue(key_of(pod))

    def _drop(self, uid: str, node: NodeState) -> None:
        worker = self._workers.pop(uid, None)
        if worker is not None:
            worker.give_back()
        self._tools.runtime.forget(uid)
        node.release(uid)

    def node_changed(self, node: NodeState, what: str) -> None:
        now = self._now()
        if what == "removed":
            self._tools.runtime.forget_volumes(node_owner(node.name))
        for pod in self._pods.by_index(_ON_NODE, node.name):
            uid = pod["metadata"]["uid"]
            worker = self._workers.get(uid)
            if is_mirror(pod):
                continue
            if what == "removed":
                self._drop(uid, node)
            elif worker is None:
                self._meet(pod, node)
            elif what == STOPPED:
                worker.power_lost(now)
            elif what == RUNNING:
                worker.update(pod)
                self.controller.enqueue(key_of(pod))

    def _look_again(self, uid: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            self.controller.enqueue(key_of(worker.pod))

    # -- doing --------------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        """The time by which Pods live: that of the wall clock, but it never goes back. A wall clock that was set back
        would keep probes, restarts and grace periods waiting for as long again."""
        wall, at = self._clock.now().timestamp(), self._clock.monotonic()
        steady = self._latest + at - self._asked_at
        self._latest, self._asked_at = (wall if steady - wall < _SLEW else steady), at
        return self._latest

    async def sync(self, key: str) -> Result | None:
        pod = self._pods.get(key)
        worker = self._workers.get(pod["metadata"]["uid"]) if pod is not None else None
        if worker is None:
            return None
        if not worker.initialized and not worker.ending:
            await self.tokens.provide(worker)
            await self.network.prepare(worker.spec)
        for _ in range(_MOST_TURNS):
            if worker.node.state != RUNNING:
                return None  # nobody hears it, and it hears nobody
            again = worker.step(self._now())
            try:
                await self._report(worker)
                if worker.finished and worker.deleting:
                    await self._remove(worker)
                    return None
            except (NotFound, Conflict):
                return None  # gone, or gone and made again: the watch will tell
            if not again:
                break
        if worker.due_at is None:
            return None
        return Result(requeue_after=max(0.001, worker.due_at - self._now()))

    async def _report(self, worker: PodWorker) -> None:
        new = changes(worker.reported, worker.status(self._now()))
        if not new:
            worker.shown(worker.reported, worker.reported_version)
            return
        meta, version = worker.pod["metadata"], 0
        heard: list[int] = []
        worker.heard = heard
        try:
            written = await self._client_for(worker.node.name).patch(
                _PODS, meta["name"], {"metadata": {"uid": meta["uid"]}, "status": new}, meta["namespace"],
                kind="strategic", subresource="status",
            )  # fmt: skip
            version = int(written["metadata"]["resourceVersion"])
            worker.shown(written.get("status") or {}, version)
        finally:
            worker.heard = None
            if any(each != version for each in heard):
                # Somebody else has changed the Pod meanwhile.
                self.controller.enqueue(key_of(worker.pod))

    async def _remove(self, worker: PodWorker) -> None:
        meta = worker.pod["metadata"]
        with suppress(NotFound):
            await self._client_for(worker.node.name).delete(
                _PODS, meta["name"], meta["namespace"], grace_period=0, uid=meta["uid"]
            )
