"""Concurrent writers: no write is lost or repeated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from server_harness import APPLY, STRATEGIC, ServerHarness, private_ids

from setpoint.meta.clock import Ids

STORES = ("memory", "lagging")

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


async def test_a_hundred_concurrent_patches_of_one_object(contended_harness: ServerHarness) -> None:
    harness = contended_harness
    await harness.make(CONFIGMAPS, {"metadata": {"name": "c"}})
    watcher = await harness.watch(f"{CONFIGMAPS}?resourceVersion={harness.store.revision}")

    async def patch(number: int) -> None:
        reply = await harness.patch(f"{CONFIGMAPS}/c", {"data": {f"k{number}": str(number)}})
        assert reply.status == 200, reply.body
        assert reply.json["data"][f"k{number}"] == str(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(100):
            tasks.create_task(patch(number))
    assert (await harness.get(f"{CONFIGMAPS}/c")).json["data"] == {f"k{number}": str(number) for number in range(100)}
    sizes = [len(event["object"]["data"]) for event in watcher.events]
    assert sizes == list(range(1, 101))


async def test_of_a_hundred_conditional_updates_one_wins(contended_harness: ServerHarness) -> None:
    harness = contended_harness
    made = await harness.make(CONFIGMAPS, {"metadata": {"name": "c"}})
    bodies = [{**made, "data": {"winner": str(number)}} for number in range(100)]
    replies = await asyncio.gather(*(harness.put(f"{CONFIGMAPS}/c", body) for body in bodies))
    assert sorted(reply.status for reply in replies) == [200] + [409] * 99
    winner = next(reply for reply in replies if reply.status == 200)
    assert (await harness.get(f"{CONFIGMAPS}/c")).json == winner.json


async def test_of_a_hundred_concurrent_creates_one_succeeds(contended_harness: ServerHarness) -> None:
    bodies = [{"metadata": {"name": "c"}, "data": {"n": str(number)}} for number in range(100)]
    replies = await asyncio.gather(*(contended_harness.post(CONFIGMAPS, body) for body in bodies))
    assert sorted(reply.status for reply in replies) == [201] + [409] * 99


async def test_concurrent_deletes_and_patches(contended_harness: ServerHarness) -> None:
    harness = contended_harness
    for number in range(10):
        await harness.make(CONFIGMAPS, {"metadata": {"name": f"c{number}"}})
    calls = [harness.delete(f"{CONFIGMAPS}/c{number % 10}") for number in range(30)]
    calls += [harness.patch(f"{CONFIGMAPS}/c{number % 10}", {"data": {"a": str(number)}}) for number in range(30)]
    replies = await asyncio.gather(*calls)
    assert {reply.status for reply in replies} <= {200, 404}
    assert sum(reply.status == 200 for reply in replies[:30]) == 10
    assert (await harness.get(CONFIGMAPS)).json["items"] == []


async def test_a_hundred_concurrent_applies(contended_harness: ServerHarness) -> None:
    harness = contended_harness

    async def apply(number: int) -> None:
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {f"k{number}": "x"}}
        reply = await harness.patch(f"{CONFIGMAPS}/c?fieldManager=m{number}", config, APPLY)
        assert reply.status in (200, 201), reply.body

    # Two who both find nothing both try to create; the loser starts over.
    results = await asyncio.gather(*(apply(number) for number in range(40)), return_exceptions=True)
    assert not [result for result in results if result is not None]
    assert len((await harness.get(f"{CONFIGMAPS}/c")).json["data"]) == 40


class FewSuffixes:
    """Ids that run out of names soon."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._next = 0

    def uid(self) -> str:
        return self._ids.uid()

    def suffix(self) -> str:
        self._next += 1
        return f"{self._next // 3 % 2:05d}"

    def below(self, limit: int) -> int:
        return self._ids.below(limit)


async def test_generated_names_that_exist_already() -> None:
    harness = await ServerHarness.open(ids=FewSuffixes(private_ids()))
    seen = set()
    for _ in range(2):
        made = await harness.make(CONFIGMAPS, {"metadata": {"generateName": "g-"}})
        seen.add(made["metadata"]["name"])
    assert seen == {"g-00000", "g-00001"}
    reply = await harness.post(CONFIGMAPS, {"metadata": {"generateName": "g-"}})
    assert (reply.status, reply.json["reason"]) == (409, "AlreadyExists")
    assert reply.json["details"]["retryAfterSeconds"] == 1
    assert reply.header("retry-after") == "1"
    await harness.close()


async def test_finalizers_delay_the_deletion(harness: ServerHarness) -> None:
    await harness.make(CONFIGMAPS, {"metadata": {"name": "c", "finalizers": ["a.b/c", "d.e/f"]}})
    marked = await harness.delete(f"{CONFIGMAPS}/c")
    assert marked.status == 200 and marked.json["metadata"]["deletionTimestamp"]
    again = await harness.delete(f"{CONFIGMAPS}/c")
    assert again.json["metadata"] == marked.json["metadata"]
    more = await harness.patch(f"{CONFIGMAPS}/c", {"metadata": {"finalizers": ["a.b/c", "d.e/f", "g.h/i"]}})
    assert more.status == 422
    revived = await harness.patch(f"{CONFIGMAPS}/c", {"metadata": {"deletionTimestamp": None}})
    assert revived.json["metadata"]["deletionTimestamp"]
    assert (await harness.patch(f"{CONFIGMAPS}/c", {"metadata": {"finalizers": ["d.e/f"]}})).status == 200
    watcher = await harness.watch(f"{CONFIGMAPS}?resourceVersion={harness.store.revision}")
    last = await harness.patch(f"{CONFIGMAPS}/c", {"metadata": {"finalizers": None}})
    assert last.status == 200
    assert (await harness.get(f"{CONFIGMAPS}/c")).status == 404
    assert watcher.summary == [("DELETED", "c")]


@pytest.mark.parametrize(
    ("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan"), ("Background", "")]
)
async def test_policies_of_deletion(harness: ServerHarness, policy: str, finalizer: str) -> None:
    await harness.make(CONFIGMAPS, {"metadata": {"name": "c"}})
    reply = await harness.delete(f"{CONFIGMAPS}/c", {"propagationPolicy": policy})
    if finalizer:
        assert reply.json["metadata"]["finalizers"] == [finalizer]
        assert (await harness.get(f"{CONFIGMAPS}/c")).status == 200
    else:
        assert (await harness.get(f"{CONFIGMAPS}/c")).status == 404


async def test_a_collection_is_deleted_by_selection(harness: ServerHarness) -> None:
    for number in range(6):
        await harness.make(CONFIGMAPS, {"metadata": {"name": f"c{number}", "labels": {"odd": str(number % 2)}}})
    await harness.make("/api/v1/namespaces/other/configmaps", {"metadata": {"name": "c1", "labels": {"odd": "1"}}})
    reply = await harness.delete(f"{CONFIGMAPS}?labelSelector=odd%3D1")
    assert [item["metadata"]["name"] for item in reply.json["items"]] == ["c1", "c3", "c5"]
    assert [item["metadata"]["name"] for item in (await harness.get(CONFIGMAPS)).json["items"]] == ["c0", "c2", "c4"]
    assert len((await harness.get("/api/v1/configmaps")).json["items"]) == 4
    assert (await harness.delete(f"{CONFIGMAPS}?labelSelector=((")).status == 400
    assert (await harness.delete(f"{CONFIGMAPS}?fieldSelector=metadata.name%3Dc2")).status == 200
    assert len((await harness.get(CONFIGMAPS)).json["items"]) == 2


async def test_pods_are_deleted_after_their_grace_period(harness: ServerHarness) -> None:
    pods = "/api/v1/namespaces/default/pods"
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}
    await harness.make(pods, {"metadata": {"name": "p"}, "spec": spec})
    watcher = await harness.watch(f"{pods}?resourceVersion={harness.store.revision}")
    marked = (await harness.delete(f"{pods}/p")).json["metadata"]
    assert (marked["deletionGracePeriodSeconds"], marked["deletionTimestamp"]) == (30, "2026-01-01T00:00:30Z")
    assert (await harness.get(f"{pods}/p")).status == 200
    await harness.delete(f"{pods}/p?gracePeriodSeconds=0")
    assert (await harness.get(f"{pods}/p")).status == 404
    assert [event["type"] for event in watcher.events] == ["MODIFIED", "MODIFIED", "DELETED"]


async def test_lists_keyed_by_name_merge_under_contention(contended_harness: ServerHarness) -> None:
    harness = contended_harness
    services = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    await harness.make(services, body)

    async def patch(number: int) -> None:
        container = {"name": f"c{number}", "image": "i"}
        change = {"spec": {"template": {"spec": {"containers": [container]}}}}
        assert (await harness.patch(f"{services}/d", change, STRATEGIC)).status == 200

    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(patch(number))
    obj = (await harness.get(f"{services}/d")).json
    assert len(obj["spec"]["template"]["spec"]["containers"]) == 21
    assert obj["metadata"]["generation"] == 21


async def test_a_resource_version_on_creation_is_rejected_last(harness: ServerHarness) -> None:
    maps, services = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/services"
    reply = await harness.post(maps, {"metadata": {"name": "No Name", "resourceVersion": "5"}})
    assert reply.status == 422
    reply = await harness.post(maps, {"metadata": {"name": "a", "resourceVersion": "5"}})
    assert (reply.status, reply.message) == (500, "resourceVersion should not be set on objects to be created")
    assert (await harness.get(f"{maps}/a")).status == 404
    meant = {"metadata": {"name": "a"}, "spec": {"clusterIP": "10.96.0.77", "ports": [{"port": 80}]}}
    reply = await harness.post(services, {**meant, "metadata": {"name": "a", "resourceVersion": "5"}})
    assert reply.status == 500
    assert (await harness.post(services, meant)).status == 201
