"""The cache of the objects that a node's Pods refer to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from stopped_clock import settle

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.kinds.typed import Pod
from setpoint.meta.objects import Obj
from setpoint.node.host.referenced_objects import ReferencedObjects
from setpoint.reconcile import Manager
from setpoint.system import RandomIds

CONFIG_MAPS = builtin("configmaps")


def pod(uid: str = "u1", **spec: Any) -> Pod:
    meta = {"name": f"pod-{uid}", "namespace": "default", "uid": uid}
    return cast(Pod, {"metadata": meta, "spec": {"containers": [], **spec}})


def config_map(name: str, **data: str) -> Obj:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


@asynccontextmanager
async def objects(server: Any) -> AsyncIterator[tuple[ReferencedObjects, Client, list[str]]]:
    client: Client = server.client
    manager, changed = Manager(client, server.clock, RandomIds(1)), list[str]()
    found = ReferencedObjects(client, manager, server.clock, changed.append)
    running = asyncio.ensure_future(manager.run())
    try:
        yield found, client, changed
    finally:
        await found.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_objects_are_read_before_they_are_used_and_then_followed(local_server: Any) -> None:
    async with objects(local_server) as (found, client, changed):
        created = await client.create(config_map("settings", color="red"))
        user = pod(volumes=[{"name": "v", "projected": {"sources": [{"configMap": {"name": "settings"}}]}}])
        assert found.config_map("default", "settings") is None, "nothing is read before a Pod needs it"
        await found.prepare(user)
        assert (found.config_map("default", "settings") or {})["data"] == {"color": "red"}
        changed.clear()
        await client.update({**created, "data": {"color": "blue"}})
        await settle()
        assert (found.config_map("default", "settings") or {})["data"] == {"color": "blue"}
        assert changed == ["u1"]


async def test_a_missing_object_appears_later(local_server: Any) -> None:
    async with objects(local_server) as (found, client, changed):
        await found.prepare(pod(containers=[{"name": "c", "envFrom": [{"configMapRef": {"name": "late"}}], "env": []}]))
        assert found.config_map("default", "late") is None
        await client.create(config_map("late", a="b"))
        await settle()
        assert (found.config_map("default", "late") or {})["data"] == {"a": "b"}
        assert changed == ["u1"]


async def test_objects_are_watched_while_a_pod_refers_to_them(local_server: Any) -> None:
    async with objects(local_server) as (found, client, changed):
        await client.create(config_map("shared"))
        env = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "shared", "key": "x", "optional": True}}}]
        for uid in ("u1", "u2"):
            await found.prepare(pod(uid, containers=[{"name": "c", "env": env}]))
        found.forget("u1")
        assert found.config_map("default", "shared") is not None, "the other Pod still refers to it"
        await found.prepare(pod("u2"))
        assert found.config_map("default", "shared") is None, "no Pod refers to it any more"
        changed.clear()
        await client.delete(CONFIG_MAPS, "shared", "default")
        await settle()
        assert changed == []


async def test_claims_and_their_volumes_are_read_again_after_a_while(local_server: Any) -> None:
    async with objects(local_server) as (found, client, _):
        claim: Obj = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": "pv",
                "storageClassName": "",
            },
        }
        user = pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
        await found.prepare(user)
        assert found.claim("default", "data") is None
        await client.create(claim)
        await found.prepare(user)
        assert found.claim("default", "data") is None, "it was read a moment ago"
        await local_server.clock.advance(6)
        await found.prepare(user)
        assert found.claim("default", "data") is not None
        assert found.volume("pv") is None


async def test_the_handler_of_a_runtime_class(local_server: Any) -> None:
    async with objects(local_server) as (found, client, _):
        meta = {"name": "sandboxed"}
        await client.create(
            {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": meta, "handler": "gvisor"}
        )
        for uid, name, handler in (("u1", None, ""), ("u2", "sandboxed", "gvisor"), ("u3", "absent", None)):
            user = pod(uid, **({"runtimeClassName": name} if name else {}))
            await found.prepare(user)
            assert found.runtime_handler(user) == handler
