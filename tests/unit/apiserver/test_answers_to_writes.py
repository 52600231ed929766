"""The response to a write shows that write, even if other clients write the same object at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from effort import tries
from interleaved_store import InterleavedStore
from server_harness import APPLY, Reply, ServerHarness, YieldingStore

from setpoint.store.interface import Delete, KeyValue, NotedCause, Op, Put
from setpoint.store.memory import MemoryStore
from setpoint.store.sqlite import SqliteStore

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PODS = "/api/v1/namespaces/default/pods"
SHARED_WRITERS, OTHER_WRITERS = 8, 64


@pytest.fixture(params=["yielding", "sqlite"])
async def conflicting_harness(
    request: pytest.FixtureRequest, tmp_path: Path, quiet_log: pytest.LogCaptureFixture
) -> AsyncIterator[ServerHarness]:
    """A server on a store that answers a transaction some turns of the event loop after its commit."""
    store = YieldingStore() if request.param == "yielding" else SqliteStore.open(tmp_path / "state.db")
    opened = await ServerHarness.open(store)
    yield opened
    await opened.close()


@pytest.fixture
async def interleaved_harness(
    quiet_log: pytest.LogCaptureFixture,
) -> AsyncIterator[tuple[ServerHarness, InterleavedStore]]:
    store = InterleavedStore()
    opened = await ServerHarness.open(store)
    yield opened, store
    await opened.close()


async def write(harness: ServerHarness, how: str, name: str, value: str) -> Reply:
    data = {"data": {"writer": value}}
    named = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **data}
    match how:
        case "patch":
            return await harness.patch(f"{CONFIGMAPS}/{name}", data)
        case "apply":
            return await harness.patch(f"{CONFIGMAPS}/{name}?fieldManager=m&force=true", named, APPLY)
        case _:
            return await harness.put(f"{CONFIGMAPS}/{name}", named)


async def test_every_writer_of_a_shared_object_is_answered_with_its_own_write(
    conflicting_harness: ServerHarness,
) -> None:
    harness = conflicting_harness
    for name in ("shared", *(f"own-{number}" for number in range(OTHER_WRITERS))):
        await harness.make(CONFIGMAPS, {"metadata": {"name": name}})
    wrong, revisions = list[Any](), Counter[str]()
    steps = tries(12, 1_250)

    async def write_shared(number: int) -> None:
        for step in range(steps):
            value = f"{number}-{step}"
            reply = await write(harness, ("patch", "apply", "put")[number % 3], "shared", value)
            assert reply.status == 200, reply.body
            revisions[reply.json["metadata"]["resourceVersion"]] += 1
            if reply.json["data"]["writer"] != value:
                wrong.append((value, reply.json["data"]["writer"]))

    async def write_others(number: int) -> None:
        step = 0
        while not done.is_set():
            reply = await write(harness, "patch", f"own-{number}", str(step))
            assert reply.json["data"]["writer"] == str(step)
            step += 1

    done = asyncio.Event()
    others = [asyncio.create_task(write_others(number)) for number in range(OTHER_WRITERS)]
    await asyncio.gather(*map(write_shared, range(SHARED_WRITERS)))
    done.set()
    await asyncio.gather(*others)
    assert not wrong, f"{len(wrong)} of {revisions.total()} answers show another write: {wrong[:5]}"
    assert max(revisions.values()) == 1, "two writes were given the same resourceVersion"
    assert revisions.total() == steps * SHARED_WRITERS


async def test_scale_and_status_are_answered_with_the_own_write(conflicting_harness: ServerHarness) -> None:
    harness = conflicting_harness
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await harness.make(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})

    async def scale(number: int) -> str:
        reply = await harness.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": number + 2}})
        assert reply.json["spec"]["replicas"] == number + 2
        return str(reply.json["metadata"]["resourceVersion"])

    async def report(number: int) -> str:
        reply = await harness.patch(f"{DEPLOYMENTS}/d/status", {"status": {"observedGeneration": number + 1}})
        assert reply.json["status"]["observedGeneration"] == number + 1
        return str(reply.json["metadata"]["resourceVersion"])

    revisions = await asyncio.gather(*map(scale, range(20)), *map(report, range(20)))
    assert len(set(revisions)) == 40


def is_about_pods(ops: Sequence[Op]) -> bool:
    return ops[0].key.startswith("core/pods/")


async def make_pod(harness: ServerHarness) -> dict[str, Any]:
    """A Pod on a node: only then is a deletion graceful."""
    await harness.make(
        PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}}
    )
    found: dict[str, Any] = (await harness.get(f"{PODS}/p")).json
    return found


async def test_a_deletion_considers_concurrent_changes(
    interleaved_harness: tuple[ServerHarness, InterleavedStore],
) -> None:
    """Between the mark and the removal somebody adds a finalizer: the object must stay until it is removed."""
    harness, store = interleaved_harness
    await make_pod(harness)
    store.selects = is_about_pods

    async def add_finalizer(ops: Sequence[Op]) -> None:
        """Written directly: the API refuses new finalizers on an object that is being deleted."""
        kept = await store.get("core/pods/default/p")
        assert kept is not None
        changed = kept.value.replace(b'"name":"p",', b'"name":"p","finalizers":["example.com/wait"],', 1)
        await store.txn([ops[0]._replace(value=changed, expect=None, stamp=None)])  # type: ignore[call-arg, arg-type]

    store.after_commit = add_finalizer
    reply = await harness.delete(f"{PODS}/p?gracePeriodSeconds=0")
    assert reply.status == 200, reply.body
    assert (await harness.get(f"{PODS}/p")).json["metadata"]["finalizers"] == ["example.com/wait"]


@pytest.mark.parametrize("preconditions", [(), ("uid",), ("resourceVersion",), ("uid", "resourceVersion")])
@pytest.mark.parametrize("recreated", [False, True])
async def test_a_deletion_that_the_node_completes_is_answered_with_the_last_object(
    interleaved_harness: tuple[ServerHarness, InterleavedStore], preconditions: tuple[str, ...], recreated: bool
) -> None:
    harness, store = interleaved_harness
    pod = await make_pod(harness)
    store.selects = is_about_pods

    async def node_deletes(ops: Sequence[Op]) -> None:
        reply = await harness.delete(f"{PODS}/p?gracePeriodSeconds=0")
        assert reply.status == 200, reply.body
        if recreated:
            await make_pod(harness)

    store.after_commit = node_deletes
    body = {"gracePeriodSeconds": 0, "preconditions": {name: pod["metadata"][name] for name in preconditions}}
    reply = await harness.delete(f"{PODS}/p", body)
    assert reply.status == 200, reply.body
    answered = reply.json
    assert (answered["kind"], answered["metadata"]["uid"]) == ("Pod", pod["metadata"]["uid"])
    assert answered["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await harness.get(f"{PODS}/p")).status == (200 if recreated else 404)


async def test_a_deletion_after_another_clients_deletion_is_not_found(
    interleaved_harness: tuple[ServerHarness, InterleavedStore],
) -> None:
    """Only an object that this request has marked counts as its own deletion."""
    harness, _ = interleaved_harness
    await harness.make(CONFIGMAPS, {"metadata": {"name": "c"}})
    statuses = [(await harness.delete(f"{CONFIGMAPS}/c")).status for _ in range(2)]
    assert statuses == [200, 404]


async def test_a_collection_is_deleted_while_nodes_complete_deletions(
    interleaved_harness: tuple[ServerHarness, InterleavedStore],
) -> None:
    harness, store = interleaved_harness
    await make_pod(harness)
    store.selects = is_about_pods

    async def node_deletes(ops: Sequence[Op]) -> None:
        assert (await harness.delete(f"{PODS}/p?gracePeriodSeconds=0")).status == 200

    store.after_commit = node_deletes
    reply = await harness.delete(f"{PODS}?gracePeriodSeconds=0")
    assert (reply.status, [item["metadata"]["name"] for item in reply.json["items"]]) == (200, ["p"])


class FleetingStore(MemoryStore):
    """Somebody else creates the object `fleeting` just before its first creation here, and deletes it just after."""

    armed = True

    async def txn(self, ops: Sequence[Op], cause: bytes | NotedCause = b"") -> tuple[int, Sequence[KeyValue | None]]:
        first = ops[0]
        if not (self.armed and isinstance(first, Put) and first.key.endswith("/fleeting")):
            return await super().txn(ops, cause)
        self.armed = False
        await super().txn([first])
        try:
            return await super().txn(ops, cause)
        finally:
            await super().txn([Delete(first.key)])


async def test_apply_creates_an_object_that_was_deleted_concurrently(quiet_log: pytest.LogCaptureFixture) -> None:
    harness = await ServerHarness.open(FleetingStore())
    reply = await write(harness, "apply", "fleeting", "mine")
    assert (reply.status, reply.json["data"]) == (201, {"writer": "mine"})
    await harness.close()
