"""Many simulated nodes behind one agent: one watch, one queue, one timer for all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict, NotFound
from setpoint.node.addresses import NODES, PODS, AddressPool
from setpoint.node.heartbeat import Heartbeat
from setpoint.node.pod_status import Addresses, differs, pod_status
from setpoint.node.runtime.interface import Runtime
from setpoint.reconcile import Controller, Informer, Manager, key_of

Obj = dict[str, Any]

_PODS = builtin("pods")
_WORKERS = 64


def node_names(count: int) -> list[str]:
    return [f"node-{number}" for number in range(1, count + 1)]


def add_fleet(
    manager: Manager,
    count: int,
    runtime: Runtime,
    *,
    client_for: Callable[[str], Client],
    version: str,
    runtime_version: str,
) -> Heartbeat:
    """`client_for(node)` writes under the node's own name; the manager's client sees the Pods of all."""
    pool = AddressPool(NODES)
    hosts = {name: pool.take(name) for name in node_names(count)}
    pods = manager.informer(_PODS, field_selector="spec.nodeName!=")
    fleet = Fleet(hosts, runtime, pods, client_for, manager.clock)
    controller = Controller("node", fleet.sync, manager.clock, workers=_WORKERS)
    fleet.watch(controller)
    heartbeat = Heartbeat(hosts, client_for, manager.clock, version=version, runtime_version=runtime_version)
    manager.add(heartbeat)
    manager.add(controller)
    return heartbeat


class Fleet:
    def __init__(
        self, hosts: dict[str, str], runtime: Runtime, pods: Informer, client_for: Callable[[str], Client], clock: Clock
    ) -> None:
        self._hosts = hosts
        self._runtime = runtime
        self._pods = pods
        self._client_for = client_for
        self._clock = clock
        self._addresses = AddressPool(PODS)

    def watch(self, controller: Controller) -> None:
        def changed(old: Obj | None, new: Obj | None) -> None:
            pod = new or old or {}
            if pod["spec"].get("nodeName") not in self._hosts:
                return
            if new is None:
                uid = pod["metadata"]["uid"]
                self._runtime.forget(uid)
                self._addresses.release(uid)
            else:
                if old is None:
                    self._address_of(new)  # those that have one keep it, before anybody new is given one
                controller.enqueue(key_of(new))

        self._pods.add_handler(changed)

    def _address_of(self, pod: Obj) -> str:
        if pod["spec"].get("hostNetwork"):
            return self._hosts[pod["spec"]["nodeName"]]
        known = (pod.get("status") or {}).get("podIP") or ""
        return self._addresses.take(pod["metadata"]["uid"], known)

    async def sync(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or pod["spec"].get("nodeName") not in self._hosts:
            return
        if "deletionTimestamp" in pod["metadata"]:
            await self._end(pod)
        elif (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            await self._runtime.start(pod)
            await self._report(pod)

    async def _end(self, pod: Obj) -> None:
        meta = pod["metadata"]
        await self._runtime.stop(pod, float(meta.get("deletionGracePeriodSeconds", 0)))
        with suppress(NotFound, Conflict):  # gone, or gone and made again
            await self._report(pod)
            client = self._client_for(pod["spec"]["nodeName"])
            await client.delete(_PODS, meta["name"], meta["namespace"], grace_period=0, uid=meta["uid"])

    async def _report(self, pod: Obj) -> None:
        meta, node = pod["metadata"], pod["spec"]["nodeName"]
        report = self._runtime.status(meta["uid"])
        if report is None:
            return
        addresses = Addresses(self._hosts[node], self._address_of(pod))
        status = pod_status(pod, report, addresses, self._clock.now())
        if not differs(pod, status):
            return
        change = {"metadata": {"uid": meta["uid"]}, "status": status}
        await self._client_for(node).patch(
            _PODS, meta["name"], change, meta["namespace"], kind="strategic", subresource="status"
        )
