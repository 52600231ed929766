"""Custom resources beside built-in ones: `python bench/custom.py [COUNT]`.

Microseconds of CPU per request as the wire hands it over, without the wire: authentication, RBAC, admission,
validation, memory store. A ConfigMap against a custom object of the same size with a schema for every field, and once
more with two CEL rules. Each round alternates between them; the best of several rounds counts."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import orjson
import uvloop

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.filters.authenticate import AuthenticatorChain, TokenFileAuthenticator
from setpoint.apiserver.server import ApiServer
from setpoint.cluster.config import NO_DATA_DIR, ApiServerConfig
from setpoint.cluster.wiring import build_server
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.objects import Obj
from setpoint.store.memory import MemoryStore
from setpoint.system import RandomIds, SystemClock
from setpoint.wire.message import Peer, Request, Response

ROUNDS = 7
DATA = {f"setting-{i}": "some text of a usual length" for i in range(12)}
RULES = [
    {"rule": "self.data.all(key, size(key) < 64)", "message": "keys are short"},
    {"rule": "!has(self.immutable) || !self.immutable || self.data == oldSelf.data", "message": "it stays as it is"},
]


def definition(plural: str, kind: str, rules: list[Obj]) -> Obj:
    data = {"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 1024}}
    spec = {"type": "object", "required": ["data"], "properties": {"data": data, "immutable": {"type": "boolean"}}}
    schema = {"type": "object", "properties": {"spec": {**spec, "x-kubernetes-validations": rules} if rules else spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.bench.example.com"},
        "spec": {
            "group": "bench.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [version],
        },
    }


class Kind:
    def __init__(self, name: str, path: str, make: Callable[[str], Obj], patch: Obj) -> None:
        self.name, self.path, self.make, self.patch = name, path, make, orjson.dumps(patch)


def custom(plural: str, kind: str) -> Callable[[str], Obj]:
    return lambda name: {
        "apiVersion": "bench.example.com/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"data": DATA},
    }


BASE = "/apis/bench.example.com/v1/namespaces/default"
KINDS = [
    Kind(
        "ConfigMap",
        "/api/v1/namespaces/default/configmaps",
        lambda name: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": DATA},
        {"data": {"setting-1": "another"}},
    ),
    Kind("custom", f"{BASE}/settings", custom("settings", "Setting"), {"spec": {"data": {"setting-1": "another"}}}),
    Kind(
        "custom, with rules", f"{BASE}/ruleds", custom("ruleds", "Ruled"), {"spec": {"data": {"setting-1": "another"}}}
    ),
]


class DirectServer:
    def __init__(self, api: ApiServer) -> None:
        self.api = api

    async def ask(self, method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> bytes:
        headers = {"authorization": "Bearer token", "user-agent": "bench", "accept": "application/json"}
        if body:
            headers["content-type"] = content_type
        answer = await self.api.handle(Request(method, path, "", headers, body, Peer()))
        assert isinstance(answer, Response) and answer.status < 300, getattr(answer, "body", answer)
        return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)


async def measured(count: int, do: Callable[[int], Awaitable[object]]) -> float:
    began = time.process_time()
    for number in range(count):
        await do(number)
    return (time.process_time() - began) / count * 1e6


async def bench(harness: DirectServer, count: int) -> None:
    best: dict[tuple[str, str], float] = {}
    for turn in range(ROUNDS):
        for kind in KINDS:
            names = [f"x-{turn}-{i}" for i in range(count)]
            bodies = [orjson.dumps(kind.make(name)) for name in names]
            size = len(await harness.ask("GET", kind.path)) if turn else 0
            for what, do, times in (
                ("create", lambda i, k=kind, b=bodies: harness.ask("POST", k.path, b[i]), count),
                ("get", lambda i, k=kind, n=names: harness.ask("GET", f"{k.path}/{n[i]}"), count),
                ("list", lambda i, k=kind: harness.ask("GET", k.path), 20),
                (
                    "patch",
                    lambda i, k=kind, n=names: harness.ask(
                        "PATCH", f"{k.path}/{n[i]}", k.patch, "application/merge-patch+json"
                    ),
                    count,
                ),
                ("delete", lambda i, k=kind, n=names: harness.ask("DELETE", f"{k.path}/{n[i]}"), count),
            ):
                cost = await measured(times, do)
                key = (kind.name, what)
                best[key] = min(best.get(key, cost), cost)
            assert size < 1 << 30
    print(f"{'us of CPU each':20} " + "".join(f"{what:>18}" for what in ("create", "get", f"list of {count}", "patch")))
    for kind in KINDS:
        row = ""
        for what in ("create", "get", "list", "patch"):
            cost, base = best[(kind.name, what)], best[("ConfigMap", what)]
            row += f"{cost:>10.0f} ({base / cost:4.2f}x)"
        print(f"{kind.name:20} {row}")


async def main(count: int) -> None:
    users = {"token": UserInfo("admin", "admin", ("system:masters", "system:authenticated"))}
    resources = ApiResources(MemoryStore(), SystemClock(), RandomIds(1))
    config = ApiServerConfig(
        NO_DATA_DIR, authorization_mode=["Node", "RBAC"], disable_admission_plugins=["ServiceAccount"]
    )
    api = build_server(resources, config, AuthenticatorChain([TokenFileAuthenticator(users)], True))
    await api.start()
    harness = DirectServer(api)
    async with asyncio.TaskGroup() as tasks:
        loops = [tasks.create_task(run()) for run in api.parts.background]
        await harness.ask("POST", "/api/v1/namespaces", orjson.dumps({"metadata": {"name": "default"}}))
        for plural, kind, rules in (("settings", "Setting", []), ("ruleds", "Ruled", RULES)):
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            await harness.ask("POST", path, orjson.dumps(definition(plural, kind, rules)))
        await asyncio.sleep(0.5)
        await bench(harness, count)
        for task in loops:
            task.cancel()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
