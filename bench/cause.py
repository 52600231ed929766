"""What recording the cause of each write costs: `python bench/cause.py [COUNT] [ROUNDS]`.

Microseconds of CPU per status patch of a Pod in the API server's own process, with recording and without. Every patch
belongs to a run of its own, the most expensive case. Both ways alternate in short batches, and the result is the median
difference of neighbouring batches, with the quartiles: the load of the machine changes less within a pair than between
pairs. Bytes per recorded cause of a
Deployment with its Pods. Microseconds per key that is added to a workqueue while an informer delivers a change."""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop
from apiserver import pod
from inprocess import NAMESPACE, PODS, status

from setpoint.apiserver.filters.authenticate import in_process_peer
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.transactions import Committed, Transactions
from setpoint.client import Client
from setpoint.client.inprocess import SharingTransport
from setpoint.cluster.apiserver import apiserver
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.inprocess import InProcess
from setpoint.reconcile.run import Run, current_run, delivery
from setpoint.reconcile.workqueue import RateLimitingQueue
from setpoint.store.interface import Op
from setpoint.system import SystemClock
from setpoint.testing import run_virtual, virtual_cluster

AT_ONCE = 16
BATCH = 48
"""Patches in a row of one way."""


async def unrecorded(self: Transactions, _: RequestContext, ops: Sequence[Op]) -> Committed:
    return await self._store.txn(ops, b"")


async def patch_some(node: Client, turn: int, pods: range, recorded: bool) -> float:
    """Return the seconds of CPU per patch."""
    numbers = iter(pods)

    async def work() -> None:
        for number in numbers:
            if recorded:
                current_run.set(Run("node", "1f2e", turn * 10_000 + number, f"{NAMESPACE}/pod-{number}", (turn + 1,)))
            change = {"status": status("True" if turn % 2 else "False")}
            await node.patch(PODS, f"pod-{number}", change, NAMESPACE, kind="strategic", subresource="status")

    began = time.process_time()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return (time.process_time() - began) / len(pods)


async def writes(count: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = ApiServerConfig(
            Path(directory), port=0, insecure_http=True, store="memory", authorization_mode=["Node", "RBAC"]
        )
        async with apiserver(config) as server, InProcess(server.api.handle) as entrance:
            transport = SharingTransport(entrance.for_peer(in_process_peer("node", ("system:masters",))))
            node = Client(transport, server.api.resources.clock, user_agent="kubelet/v1")
            await node.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            account = {"name": "default", "namespace": NAMESPACE}
            await node.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
            for number in range(count):
                obj = json.loads(pod("x"))
                obj["metadata"] = {**obj["metadata"], "name": f"pod-{number}", "namespace": NAMESPACE}
                await node.create(obj)
            commit = Transactions.commit
            batches = [range(begin, min(begin + BATCH, count)) for begin in range(0, count, BATCH)]
            differences, without = [], []
            gc.collect()
            gc.disable()  # a collection would belong to one batch, and is the work of all
            for turn in range(rounds):
                for at, pods in enumerate(batches):
                    took = {}
                    order = (True, False) if (turn + at) % 2 else (False, True)
                    for step, recorded in enumerate(order):
                        setattr(Transactions, "commit", commit if recorded else unrecorded)  # noqa: B010
                        took[recorded] = await patch_some(node, 2 * turn + step, pods, recorded)
                    differences.append((took[True] - took[False]) * 1e6)
                    without.append(took[False] * 1e6)
            gc.enable()
            setattr(Transactions, "commit", commit)  # noqa: B010
    low, middle, high = statistics.quantiles(differences, n=4)
    print(
        f"status patch: {statistics.median(without):.1f} us without the cause, {middle:+.1f} us for it "
        f"(quartiles {low:+.1f} and {high:+.1f}, {len(differences)} pairs of {BATCH} patches)"
    )


async def sizes() -> None:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/app:1"}]},
    }
    spec = {"replicas": 200, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    async with virtual_cluster(nodes=20) as cluster:
        store = cluster.embedded.api.resources.store
        begin = store.revision
        meta = {"name": "web", "namespace": "default"}
        await cluster.client.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
        await cluster.settle()
        causes = [len(each.cause) for each in await store.causes(begin)]
    print(f"cause of a write: {statistics.mean(causes):.0f} bytes on average of {len(causes)}, at most {max(causes)}")


def enqueues(count: int) -> None:
    keys = [f"default/pod-{number}" for number in range(count)]
    best = {"first": float("inf"), "merged": float("inf"), "unknown": float("inf")}
    for _ in range(20):
        for name, cause in (("unknown", None), ("first", 5)):
            queue = RateLimitingQueue(SystemClock())
            delivery.cause = cause
            began = time.process_time()
            for key in keys:
                queue.add(key)
            best[name] = min(best[name], time.process_time() - began)
        began = time.process_time()
        for number, key in enumerate(keys, 6):
            delivery.cause = number
            queue.add(key)
        best["merged"] = min(best["merged"], time.process_time() - began)
    delivery.cause = None
    shown = ", ".join(f"{name} {seconds / count * 1e6:.2f} us" for name, seconds in best.items())
    print(f"add to a queue, by its trigger: {shown}")


if __name__ == "__main__":
    enqueues(20_000)
    run_virtual(sizes)
    uvloop.run(writes(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, int(sys.argv[2]) if len(sys.argv) > 2 else 20))
