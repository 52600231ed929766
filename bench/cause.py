"""What recording the cause of each write costs: `bench/cause.py [COUNT] [ROUNDS] [PAIRS] [--pods N] [--nodes N]`.

Microseconds of CPU per status patch of a Pod in the API server's own process, with recording and without, where the
server commits an empty cause: for a request that belongs to no run, and, as the most expensive case, for one that
belongs to a run of its own, which claims it. The run exists both ways, because it is shown too; what it costs is
measured besides. Everything else, such as the comparison of Leases, is done both ways. Both ways alternate in short
batches, and the result is the median difference of neighbouring batches, with the quartiles: the load of the machine
changes less within a pair than between pairs. The same is measured without any difference, which shows the error of the
measurement. Between two writes, the processor's caches are filled with everything else that a write needs; the same
steps alone, one after the other in a loop, show what that costs.

Also bytes per recorded cause of a Deployment with its Pods; the rate of all loops together, with causes and without
(their runs exist both ways, because they are shown too); and microseconds per key that is added to a workqueue while an
informer delivers a change."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
from apiserver import pod
from inprocess import NAMESPACE, PODS, status

from setpoint.apiserver.filters.authenticate import in_process_peer
from setpoint.apiserver.request_causes import RequestCauses
from setpoint.apiserver.request_context import RequestContext
from setpoint.client import Client
from setpoint.client.inprocess import SharingTransport
from setpoint.cluster import inprocess
from setpoint.cluster.apiserver import apiserver
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.inprocess import InProcess
from setpoint.reconcile.run import Run, current_run, delivery
from setpoint.reconcile.workqueue import RateLimitingQueue
from setpoint.store.interface import NotedCause
from setpoint.system import SystemClock
from setpoint.testing import run_virtual, virtual_cluster
from setpoint.wire.message import ObjectRequest

AT_ONCE = 16
BATCH = 48
"""Patches in a row of one way."""


RECORD, CLAIM = RequestCauses.note, inprocess._claim


class Way(NamedTuple):
    """A way to make writes."""

    runs: bool
    """Whether each belongs to a run of its own."""
    records: bool
    """Whether it is claimed and recorded."""


class Switch:
    """Switches recording on and off. Replacing methods between batches would slow down all code that calls them."""

    records = True


def switched_cause(self: RequestCauses, ctx: RequestContext, term: str) -> bytes | NotedCause:
    return RECORD(self, ctx, term) if Switch.records else b""


def switched_claim(method: str) -> tuple[Any, ...]:
    return CLAIM(method) if Switch.records else ()


async def patch_some(node: Client, turn: int, pods: range, way: Way) -> float:
    """Return the seconds of CPU per patch."""
    numbers = iter(pods)
    Switch.records = way.records

    async def work() -> None:
        for number in numbers:
            key = f"{NAMESPACE}/pod-{number}"
            if way.runs:
                current_run.set(Run("node", "1f2e", turn * 10_000 + number, key, (turn + 1,)))
            change = {"status": status("True" if turn % 2 else "False")}
            await node.patch(PODS, f"pod-{number}", change, NAMESPACE, kind="strategic", subresource="status")

    began = time.process_time()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return (time.process_time() - began) / len(pods)


async def compare(node: Client, count: int, rounds: int, what: str, first: Way, second: Way) -> None:
    """Print what patches cost more the second way than the first."""
    batches = [range(begin, min(begin + BATCH, count)) for begin in range(0, count, BATCH)]
    differences, base = [], []
    gc.collect()
    gc.disable()  # a collection would belong to one batch, and is the work of all
    for turn in range(rounds):
        for at, pods in enumerate(batches):
            took = [0.0, 0.0]
            for step, way in enumerate((1, 0) if (turn + at) % 2 else (0, 1)):
                took[way] = await patch_some(node, 2 * turn + step, pods, second if way else first)
            differences.append((took[1] - took[0]) * 1e6)
            base.append(took[0] * 1e6)
    gc.enable()
    low, middle, high = statistics.quantiles(differences, n=4)
    print(
        f"status patch: {statistics.median(base):.1f} us, {middle:+.1f} us {what} "
        f"(quartiles {low:+.1f} and {high:+.1f}, {len(differences)} pairs of {BATCH} patches)"
    )


async def alone(node: Client) -> None:
    """Print what the steps of recording cost if nothing else runs between them."""
    found: list[tuple[RequestCauses, RequestContext]] = []

    def noted(self: RequestCauses, ctx: RequestContext, term: str) -> bytes | NotedCause:
        found.append((self, ctx))
        return RECORD(self, ctx, term)

    setattr(RequestCauses, "note", noted)  # noqa: B010
    await patch_some(node, 0, range(1), Way(True, True))
    await patch_some(node, 1, range(1), Way(True, True))
    setattr(RequestCauses, "note", switched_cause)  # noqa: B010
    causes, ctx = found[-1]
    request = ctx.request
    assert isinstance(request, ObjectRequest)
    best = float("inf")
    for _ in range(20):
        began = time.process_time()
        for number in range(5_000):
            run = Run("node", "1f2e", number, "bench/pod-1", (number,))
            current_run.set(run)
            request.claim = run.claim_write_in_process()
            causes.encode(RECORD(causes, ctx, ""))
        best = min(best, (time.process_time() - began) / 5_000)
    print(f"the steps of recording alone: {best * 1e6:.1f} us")


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
            await alone(node)
            await compare(node, count, rounds, "with the cause", Way(False, False), Way(False, True))
            await compare(node, count, rounds, "with claim and cause", Way(True, False), Way(True, True))
            await compare(node, count, rounds, "with a run", Way(False, False), Way(True, False))
            await compare(node, count, rounds, "with no difference", Way(False, False), Way(False, False))


async def deploy(pods: int, nodes: int) -> tuple[float, list[int]]:
    """Create a Deployment in virtual time, and return the CPU seconds until all its Pods run, and the sizes of the
    recorded causes."""
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/app:1"}]},
    }
    spec = {"replicas": pods, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    async with virtual_cluster(nodes=nodes) as cluster:
        store = cluster.embedded.api.resources.store
        begin, began = store.revision, time.process_time()
        meta = {"name": "web", "namespace": "default"}
        await cluster.client.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
        await cluster.settle()
        took = time.process_time() - began
        return took, [len(each.cause) for each in await store.causes(begin)]


def sizes(pods: int, nodes: int) -> None:
    _, causes = run_virtual(partial(deploy, pods, nodes))
    print(f"cause of a write: {statistics.mean(causes):.0f} bytes on average of {len(causes)}, at most {max(causes)}")


def loops(pairs: int, pods: int, nodes: int) -> None:
    """Print what recording costs all loops together: the same work in virtual time, with causes and without."""
    ratios = []
    for pair in range(pairs):
        took = [0.0, 0.0]
        for recorded in (pair % 2, 1 - pair % 2):
            Switch.records = bool(recorded)
            gc.collect()
            took[recorded], _ = run_virtual(partial(deploy, pods, nodes))
        ratios.append(took[0] / took[1])
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"a Deployment of {pods} Pods on {nodes} nodes: {100 * middle:.1f} % of the rate without causes "
        f"(quartiles {100 * low:.1f} and {100 * high:.1f}, {pairs} pairs)"
    )


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=1_000, help="Pods whose status is patched")
    parser.add_argument("rounds", type=int, nargs="?", default=20, help="rounds of patches")
    parser.add_argument("pairs", type=int, nargs="?", default=12, help="Deployments with causes and without")
    parser.add_argument("--pods", type=int, default=200, help="Pods of a Deployment")
    parser.add_argument("--nodes", type=int, default=20)
    options = parser.parse_args()
    setattr(RequestCauses, "note", switched_cause)  # noqa: B010
    setattr(inprocess, "_claim", switched_claim)  # noqa: B010
    enqueues(20_000)
    sizes(options.pods, options.nodes)
    loops(options.pairs, options.pods, options.nodes)
    if options.rounds:
        uvloop.run(writes(options.count, options.rounds))
