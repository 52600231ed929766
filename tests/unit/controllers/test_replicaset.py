"""ReplicaSets against a real API server, with a cache as stale as the test wants."""

from __future__ import annotations

import asyncio
from typing import Any

from stopped_clock import StoppedClock, settle

from setpoint.client.resources import builtin
from setpoint.controllers.expectations import Expectations
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.replicaset import replicaset_controller
from setpoint.meta.objects import Obj
from setpoint.reconcile import Controller, Manager
from setpoint.system import RandomIds

STORES = ("memory", "lagging", "two-views")
PODS, SETS = builtin("pods"), builtin("replicasets", "apps")
SPACE = "default"


def a_set(replicas: int, **spec: Any) -> Obj:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": SPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
            **spec,
        },
    }


def a_pod(name: str, **labels: str) -> Obj:
    meta = {"name": name, "namespace": SPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "c", "image": "i"}]}}


class Loop:
    """The controller, which reconciles only when the test calls it."""

    def __init__(self, server: Any) -> None:
        self.client = server.client
        self.manager = Manager(server.client, server.clock, RandomIds(1))
        self.controller: Controller = replicaset_controller(self.manager, ControllerOptions())
        self.informers = [self.manager.informer(SETS), self.manager.informer(PODS)]
        self.tasks: list[asyncio.Future[None]] = []

    async def __aenter__(self) -> Loop:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": SPACE}}
        await self.client.create(account)
        for informer in self.informers:
            self.tasks.append(asyncio.ensure_future(informer.run()))
            await informer.synced.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def reconcile(self, *, stale: bool = False) -> None:
        """`stale`: with the caches as they were, whatever has happened since."""
        if not stale:
            await settle()
        await self.controller._reconcile(f"{SPACE}/web")

    async def pods(self) -> list[Obj]:
        return list((await self.client.list(PODS, SPACE)).items)

    async def status(self) -> Obj:
        found: Obj = (await self.client.get(SETS, "web", SPACE))["status"]
        return found


async def test_missing_pods_are_created_once_even_with_a_stale_cache(local_server: Any) -> None:
    async with Loop(local_server) as loop:
        await loop.client.create(a_set(3))
        await settle()
        pods = loop.manager.informer(PODS)
        put, pods._put = pods._put, lambda key, obj, besides="": None  # type: ignore[method-assign]
        await loop.reconcile()
        assert len(await loop.pods()) == 3
        await loop.reconcile(stale=True)
        await loop.reconcile()
        assert len(await loop.pods()) == 3, "what was made and not yet seen must not be made again"
        pods._put = put  # type: ignore[method-assign]
        for pod in await loop.pods():
            pods._put(f"{SPACE}/{pod['metadata']['name']}", pod)
        await loop.reconcile()
        assert len(await loop.pods()) == 3
        assert (await loop.status())["replicas"] == 3


async def test_the_status_has_the_observed_generation(local_server: Any) -> None:
    async with Loop(local_server) as loop:
        await loop.client.create(a_set(2))
        await loop.reconcile()
        await loop.reconcile()
        status = await loop.status()
        assert status["observedGeneration"] == 1
        assert (status["replicas"], status["fullyLabeledReplicas"]) == (2, 2)
        await loop.client.patch(SETS, "web", {"spec": {"replicas": 1}}, SPACE)
        await loop.reconcile()
        await loop.reconcile()
        status = await loop.status()
        assert (status["observedGeneration"], status["replicas"]) == (2, 1)


async def test_surplus_pods_are_deleted_newest_and_least_ready_first(local_server: Any) -> None:
    async with Loop(local_server) as loop:
        await loop.client.create(a_set(2))
        await loop.reconcile()
        kept = (await loop.pods())[0]["metadata"]["name"]
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await loop.client.patch(PODS, kept, ready, SPACE, subresource="status")
        await loop.client.patch(SETS, "web", {"spec": {"replicas": 1}}, SPACE)
        await loop.reconcile()
        assert [pod["metadata"]["name"] for pod in await loop.pods()] == [kept]


async def test_matching_orphans_are_adopted_and_others_released(local_server: Any) -> None:
    async with Loop(local_server) as loop:
        await loop.client.create(a_pod("orphan", app="web"))
        await loop.client.create(a_pod("unrelated", app="other"))
        made = await loop.client.create(a_set(1))
        await loop.reconcile()
        await settle()
        orphan = await loop.client.get(PODS, "orphan", SPACE)
        assert [ref["uid"] for ref in orphan["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]
        assert len(await loop.pods()) == 2, "the orphan was enough"
        await loop.client.patch(PODS, "orphan", {"metadata": {"labels": {"app": "debug"}}}, SPACE)
        await loop.reconcile()
        orphan = await loop.client.get(PODS, "orphan", SPACE)
        assert "ownerReferences" not in orphan["metadata"]
        assert len(await loop.pods()) == 3, "a replacement was made"


async def test_a_failed_creation_is_reported(local_server: Any) -> None:
    async with Loop(local_server) as loop:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q", "namespace": SPACE},
            "spec": {"hard": {"pods": "1"}},
        }
        await loop.client.create(quota)
        status = {"status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}}
        await loop.client.patch(builtin("resourcequotas"), "q", status, SPACE, subresource="status")
        await loop.client.create(a_set(3))
        for _ in range(3):
            await asyncio.gather(loop.reconcile(), return_exceptions=True)
        assert len(await loop.pods()) == 1
        (condition,) = (await loop.status())["conditions"]
        assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
        assert "exceeded quota" in condition["message"]


async def test_a_pod_is_available_after_min_ready_seconds(local_server: Any) -> None:
    async with Loop(local_server) as loop:
        await loop.client.create(a_set(1, minReadySeconds=10))
        await loop.reconcile()
        name = (await loop.pods())[0]["metadata"]["name"]
        since = {"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}
        ready = {"status": {"phase": "Running", "conditions": [since]}}
        await loop.client.patch(PODS, name, ready, SPACE, subresource="status")
        await loop.reconcile()
        status = await loop.status()
        assert (status["readyReplicas"], status.get("availableReplicas", 0)) == (1, 0)
        await local_server.clock.advance(10)
        await loop.reconcile()
        assert (await loop.status())["availableReplicas"] == 1


def test_expectations_are_met_or_expire() -> None:
    clock = StoppedClock()
    expected = Expectations(clock)
    assert expected.satisfied("a")
    expected.expect_creations("a", 2)
    expected.creation_observed("a")
    assert not expected.satisfied("a")
    expected.creation_observed("a")
    assert expected.satisfied("a")
    expected.expect_deletions("a", ["u1", "u2"])
    expected.deletion_observed("a", "u1")
    expected.deletion_observed("a", "u1")
    assert not expected.satisfied("a")
    clock._elapsed += 301
    assert expected.satisfied("a")
