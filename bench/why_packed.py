"""How long an answer of `setpoint why` takes and holds the event loop, with 100,000 revisions in memory.

`python bench/why.py [revisions]`. The history has 2,000 Deployments, each with a ReplicaSet and a Pod, whose writes
trigger each other. The first question of each kind is reported separately, because it indexes the history. Times are of
CPU, so that other processes of the machine do not count."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from urllib.parse import urlencode

import orjson

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.filters.authenticate import AuthenticatorChain, InProcessAuthenticator, in_process_peer
from setpoint.apiserver.server import ApiServer
from setpoint.cluster.components import MASTERS
from setpoint.cluster.config import NO_DATA_DIR, ApiServerConfig
from setpoint.cluster.wiring import build_server
from setpoint.meta.cause import Claim, WriteCause, encode
from setpoint.meta.objects import Obj
from setpoint.store.interface import Put
from setpoint.store.memory import MemoryStore
from setpoint.system import RandomIds, SystemClock
from setpoint.wire.message import Request, Response

OBJECTS = 2_000
QUESTIONS = 300
LIMIT_ANSWER, LIMIT_LOOP = 0.030, 0.005


class LoopProbe:
    """Records the longest time between two iterations of the event loop."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.process_time()
        self._timer = asyncio.get_running_loop().call_soon(self._beat)

    def _beat(self) -> None:
        now = time.process_time()
        self.longest = max(self.longest, now - self._last)
        self._last = now
        self._timer = asyncio.get_running_loop().call_soon(self._beat)

    def reset(self) -> None:
        self.longest, self._last = 0.0, time.process_time()

    def stop(self) -> None:
        self._timer.cancel()


def stored(name: str, owner: str, replicas: int, padding: str) -> bytes:
    meta: Obj = {"name": name, "namespace": "default", "uid": name, "labels": {"padding": padding}}
    if owner:
        meta["ownerReferences"] = [{"uid": owner, "name": owner, "kind": "Deployment", "controller": True}]
    containers = [{"name": "app", "image": "nginx", "env": [{"name": f"E{n}", "value": padding} for n in range(10)]}]
    return orjson.dumps({"metadata": meta, "spec": {"replicas": replicas, "containers": containers}, "status": {}})


async def fill(store: MemoryStore, revisions: int) -> None:
    """Write rounds of a person's change, and what two controllers do about it."""
    now = int(time.time() * 1000) - revisions
    padding = "x" * 40
    for number in range(revisions // 3):
        name = f"web-{number % OBJECTS}"
        person = WriteCause(now + number, "update", "alice", "kubectl")
        put = Put(f"apps/deployments/default/{name}", stored(name, "", number, padding))
        first, _ = await store.txn([put], encode(person))
        for plural, controller, owner in (("apps/replicasets", "deployment", name), ("core/pods", "replicaset", "")):
            claim = Claim(f"{controller}-controller/1.{number}", f"default/{name}", (first,), reason="1 is wanted")
            user = f"system:serviceaccount:kube-system:{controller}-controller"
            cause = encode(WriteCause(now + number, "update", user, "kube-controller-manager", claim))
            first, _ = await store.txn([Put(f"{plural}/default/{name}", stored(name, owner, number, padding))], cause)


async def ask(server: ApiServer, expected: str = "200", **question: str) -> float:
    peer = in_process_peer("admin", (MASTERS,))
    request = Request("GET", "/setpoint/v1/why", urlencode(question), {}, b"", peer)
    began = time.process_time()
    answer = await server.handle(request)
    elapsed = time.process_time() - began
    assert isinstance(answer, Response) and answer.status == int(expected), answer
    return elapsed


async def main(revisions: int) -> int:
    store, clock = MemoryStore(), SystemClock()
    resources = ApiResources(store, clock, RandomIds())
    config = ApiServerConfig(data_dir=NO_DATA_DIR, authorization_mode=["AlwaysAllow"])
    server = build_server(resources, config, AuthenticatorChain([InProcessAuthenticator()], True))
    await fill(store, revisions)
    while not store.pack(store.revision): pass
    await server.start()
    await ask(server, resource="nodes", name="none", expected="404")  # imports the modules
    probe, choose = LoopProbe(), random.Random(1)
    failed = 0
    print(f"{store.revision} revisions\n{'question':<28}{'first':>9}{'p50':>9}{'p95':>9}{'loop held':>12}")
    for label, group, resource, more in (
        ("Pod", "", "pods", {}),
        ("Deployment", "apps", "deployments", {}),
        ("field of a Deployment", "apps", "deployments", {"field": "spec.replicas"}),
        ("field, all values", "apps", "deployments", {"field": "spec.replicas", "all": "true"}),
        ("conflicts", "apps", "deployments", {"conflicts": "true"}),
        ("why not, Deployment", "apps", "deployments", {"not": "true"}),
    ):
        times = []
        await asyncio.sleep(0)
        probe.reset()
        for _ in range(QUESTIONS):
            name = f"web-{choose.randrange(OBJECTS)}"
            times.append(await ask(server, group=group, resource=resource, namespace="default", name=name, **more))
        held, first, ordered = probe.longest, times[0], sorted(times[1:])
        p50, p95 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)]
        failed += p95 > LIMIT_ANSWER or held > LIMIT_LOOP
        shown = "".join(f"{1000 * each:>7.1f}ms" for each in (first, p50, p95))
        print(f"{label:<28}{shown}{1000 * held:>10.1f}ms")
    probe.stop()
    await server.stop()
    print(f"goals: p95 at most {1000 * LIMIT_ANSWER:g} ms, loop held for at most {1000 * LIMIT_LOOP:g} ms")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)))
