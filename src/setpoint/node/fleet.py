"""Many simulated nodes behind one agent: one watch, one queue, one heap of timers for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict, NotFound
from setpoint.node.addresses import NODES, PODS, AddressPool
from setpoint.node.heartbeat import Heartbeat
from setpoint.node.lookup import InformerLookup
from setpoint.node.node_state import NodeState
from setpoint.node.pod_status import differs
from setpoint.node.pod_worker import PodWorker
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.node.tools import Tools
from setpoint.reconcile import Controller, Informer, Manager, Result, key_of

Obj = Mapping[str, Any]

_PODS = builtin("pods")
_WORKERS = 64
_MOST_TURNS = 100


def node_names(count: int) -> list[str]:
    return [f"node-{number}" for number in range(1, count + 1)]


def add_fleet(
    manager: Manager,
    count: int,
    runtime: SimulatedRuntime,
    *,
    client_for: Callable[[str], Client],
    version: str,
    runtime_version: str,
) -> Fleet:
    """`client_for(node)` writes under the node's own name; the manager's client sees the Pods of all."""
    pool, shared = AddressPool(NODES), AddressPool(PODS)
    hosts = {name: pool.take(name) for name in node_names(count)}
    pods = manager.informer(_PODS, field_selector="spec.nodeName!=")
    tools = Tools(runtime, manager.recorder("kubelet"), InformerLookup(manager), manager.ids)
    tools.nodes = {name: NodeState(name, address, shared) for name, address in hosts.items()}
    fleet = Fleet(tools, pods, client_for, manager.clock)
    fleet.watch()
    fleet.heartbeat = Heartbeat(hosts, client_for, manager.clock, version=version, runtime_version=runtime_version)
    manager.add(fleet.heartbeat)
    manager.add(fleet.controller)
    return fleet


class Fleet:
    heartbeat: Heartbeat

    def __init__(self, tools: Tools, pods: Informer, client_for: Callable[[str], Client], clock: Clock) -> None:
        self._tools = tools
        self._pods = pods
        self._client_for = client_for
        self._clock = clock
        self._workers: dict[str, PodWorker] = {}
        """By the uid of the Pod."""
        self.controller = Controller("node", self.sync, clock, workers=_WORKERS)
        tools.runtime.changed = self._look_again

    # -- for those who ask the nodes ----------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        return self._tools.nodes

    @property
    def runtime(self) -> SimulatedRuntime:
        return self._tools.runtime

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        pod = self._pods.get(f"{namespace}/{name}")
        return self._workers.get(pod["metadata"]["uid"]) if pod is not None else None

    def workers(self) -> Iterable[PodWorker]:
        return self._workers.values()

    # -- the loop -----------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        self._pods.add_handler(self._changed)

    def _changed(self, old: Obj | None, new: Obj | None) -> None:
        pod = new or old or {}
        node = self._tools.nodes.get(pod["spec"].get("nodeName"))
        if node is None:
            return
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if new is None:
            if worker is not None:
                del self._workers[uid]
                worker.give_back()
            self._tools.runtime.forget(uid)
            node.release(uid)
        elif worker is None:
            self._workers[uid] = PodWorker(new, node, self._tools, self._clock.now().timestamp())
            self.controller.enqueue(key_of(new))
        elif worker.update(new):
            self.controller.enqueue(key_of(new))

    def _look_again(self, uid: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            self.controller.enqueue(key_of(worker.pod))

    async def sync(self, key: str) -> Result | None:
        pod = self._pods.get(key)
        worker = self._workers.get(pod["metadata"]["uid"]) if pod is not None else None
        if worker is None:
            return None
        for _ in range(_MOST_TURNS):
            again = worker.step(self._clock.now().timestamp())
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
        return Result(requeue_after=max(0.001, worker.due_at - self._clock.now().timestamp()))

    async def _report(self, worker: PodWorker) -> None:
        status = worker.status(self._clock.now().timestamp())
        meta = worker.pod["metadata"]
        if not differs(worker.reported, status):
            worker.shown(worker.reported, worker.reported_version)
            return
        change = {"metadata": {"uid": meta["uid"]}, "status": status}
        written = await self._client_for(worker.node.name).patch(
            _PODS, meta["name"], change, meta["namespace"], kind="strategic", subresource="status"
        )
        worker.shown(written.get("status") or {}, int(written["metadata"]["resourceVersion"]))

    async def _remove(self, worker: PodWorker) -> None:
        meta = worker.pod["metadata"]
        with suppress(NotFound):
            await self._client_for(worker.node.name).delete(
                _PODS, meta["name"], meta["namespace"], grace_period=0, uid=meta["uid"]
            )
