"""What one request costs a component in the API server's own process: `python bench/inprocess.py [COUNT] [STORE]`.

Microseconds of CPU per request, the whole pipeline included: authentication, RBAC, admission, validation, the store
(`memory` or `sqlite`) and one watch that follows everything, as an informer would. The best of several rounds."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop
from apiserver import pod

from setpoint.apiserver.filters.authenticate import in_process_peer
from setpoint.client import Client
from setpoint.client.inprocess import SharingTransport
from setpoint.client.resources import builtin
from setpoint.cluster.apiserver import apiserver
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.inprocess import InProcess
from setpoint.meta.objects import Obj

PODS, EVENTS, LEASES = builtin("pods"), builtin("events"), builtin("leases", "coordination.k8s.io")
NAMESPACE = "bench"
AT_ONCE = 64
ROUNDS = 100


async def measure(what: str, count: int, do: Callable[[int], Awaitable[object]]) -> None:
    best = float("inf")
    for turn in range(ROUNDS):
        numbers = iter(range(turn * count, (turn + 1) * count))

        async def work(numbers: Any = numbers) -> None:
            for number in numbers:
                await do(number)

        began = time.process_time()
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        best = min(best, (time.process_time() - began) / count)
    print(f"{what:28} {best * 1e6:8.1f} us")


def event(about: str, number: int) -> Obj:
    stamp = "2026-11-01T00:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about}.{number:x}", "namespace": NAMESPACE},
        "involvedObject": {
            "kind": "Pod",
            "namespace": NAMESPACE,
            "name": about,
            "uid": "5d9d5a7c-3e0b-4d8c-8a57-6f0a2a3a4b5c",
            "apiVersion": "v1",
            "resourceVersion": "4711",
        },
        "reason": "Scheduled",
        "message": f"Successfully assigned {NAMESPACE}/{about} to node-17",
        "source": {"component": "default-scheduler"},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
        "type": "Normal",
        "reportingComponent": "default-scheduler",
        "reportingInstance": "",
    }


def status(ready: str) -> Obj:
    stamp = "2026-11-01T00:00:00Z"
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "startTime": stamp,
        "hostIP": "172.30.0.1",
        "hostIPs": [{"ip": "172.30.0.1"}],
        "podIP": "10.244.0.1",
        "podIPs": [{"ip": "10.244.0.1"}],
        "observedGeneration": 1,
        "conditions": [
            {"type": kind, "status": ready, "lastTransitionTime": stamp, "observedGeneration": 1} for kind in kinds
        ],
        "containerStatuses": [
            {
                "name": "main",
                "ready": ready == "True",
                "started": True,
                "restartCount": 0,
                "image": "registry.example/app:1",
                "imageID": "registry.example/app@sha256:0123456789abcdef",
                "containerID": "simulated://0123456789abcdef",
                "state": {"running": {"startedAt": stamp}},
                "lastState": {},
            }
        ],
    }


async def bench(client: Client, scheduler: Client, node: Client, count: int) -> None:
    async def create(number: int) -> None:
        obj = json.loads(template)
        obj["metadata"]["name"] = f"pod-{number}"
        obj["metadata"]["namespace"] = NAMESPACE
        await client.create(obj)

    async def bind(number: int) -> None:
        name = f"pod-{number}"
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "target": {"kind": "Node", "name": "node-1"},
        }
        await scheduler.create(binding, resource=PODS, subresource="binding")

    async def patch_status(number: int) -> None:
        change = {"status": status("True")}
        await node.patch(PODS, f"pod-{number}", change, NAMESPACE, kind="strategic", subresource="status")

    async def lease(number: int) -> None:
        made = await node.get(LEASES, f"lease-{number % 100}", NAMESPACE)
        renewed = {**made, "spec": {**made["spec"], "renewTime": f"2026-11-01T00:00:00.{number % 1000000:06}Z"}}
        await node.update(renewed)

    template = pod("x")
    for number in range(100):
        await node.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": f"lease-{number}", "namespace": NAMESPACE},
                "spec": {"holderIdentity": "x", "leaseDurationSeconds": 40, "renewTime": "2026-11-01T00:00:00.000000Z"},
            }
        )
    await measure("create a Pod", count, create)
    await measure("get a Pod", count, lambda n: client.get(PODS, f"pod-{n}", NAMESPACE))
    await measure("bind a Pod", count, bind)
    await measure("status patch, strategic", count, patch_status)
    await measure("create an Event", count, lambda n: scheduler.create(event(f"pod-{n}", n)))
    await measure("get and renew a Lease", count, lease)
    await measure("list 500 Pods", max(count // 50, 4), lambda n: client.list_page(PODS, NAMESPACE, limit=500))
    await measure("delete a Pod at once", count, lambda n: node.delete(PODS, f"pod-{n}", NAMESPACE, grace_period=0))


async def follow(client: Client, plural: str) -> None:
    async with client.watch(builtin(plural), resource_version="1") as watch:
        async for _ in watch:
            pass


async def main(count: int, store: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = ApiServerConfig(
            Path(directory), port=0, insecure_http=True, store=store, authorization_mode=["Node", "RBAC"]
        )
        async with apiserver(config) as server, InProcess(server.api.handle) as entrance:

            def client(user: str, *groups: str) -> Client:
                transport = SharingTransport(entrance.for_peer(in_process_peer(user, groups)))
                return Client(transport, server.api.resources.clock, user_agent=f"{user}/v1")

            admin = client("admin", "system:masters")
            await admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            account = {"name": "default", "namespace": NAMESPACE}
            await admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
            async with asyncio.TaskGroup() as tasks:
                watches = [tasks.create_task(follow(admin, plural)) for plural in ("pods", "events")]
                await bench(admin, client("system:kube-scheduler"), client("node", "system:masters"), count)
                for task in watches:
                    task.cancel()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50, sys.argv[2] if len(sys.argv) > 2 else "memory"))
