"""LIST: consistent pages while others write, exact revisions, and the matrix of resourceVersion and its match."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from server_harness import ServerHarness

STORES = ("memory", "lagging")

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


async def names(harness: ServerHarness, query: str = "") -> list[str]:
    reply = await harness.get(f"{CONFIGMAPS}?{query}")
    assert reply.status == 200, reply.body
    return [item["metadata"]["name"] for item in reply.json["items"]]


async def pages(harness: ServerHarness, path: str, limit: int, between: Any = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    more = ""
    joint = "&" if "?" in path else "?"
    while True:
        reply = await harness.get(f"{path}{joint}limit={limit}" + (f"&continue={more}" if more else ""))
        assert reply.status == 200, reply.body
        found.append(reply.json)
        more = reply.json["metadata"].get("continue", "")
        if not more:
            return found
        if between is not None:
            await between(len(found))


@pytest.fixture
async def ten(harness: ServerHarness) -> ServerHarness:
    for number in range(10):
        await harness.make(CONFIGMAPS, {"metadata": {"name": f"c{number}", "labels": {"odd": str(number % 2)}}})
    return harness


async def test_pages_and_the_remaining_item_count(ten: ServerHarness) -> None:
    found = await pages(ten, CONFIGMAPS, 4)
    assert [len(page["items"]) for page in found] == [4, 4, 2]
    assert [page["metadata"].get("remainingItemCount") for page in found] == [6, 2, None]
    assert len({page["metadata"]["resourceVersion"] for page in found}) == 1
    exact = await pages(ten, CONFIGMAPS, 5)
    assert [len(page["items"]) for page in exact] == [5, 5]


async def test_pages_with_selectors_have_no_remaining_item_count(ten: ServerHarness) -> None:
    found = await pages(ten, f"{CONFIGMAPS}?labelSelector=odd%3D1", 2)
    assert [[item["metadata"]["name"] for item in page["items"]] for page in found] == [
        ["c1", "c3"],
        ["c5", "c7"],
        ["c9"],
    ]
    assert all("remainingItemCount" not in page["metadata"] for page in found)


async def test_pages_show_one_revision_despite_writes(ten: ServerHarness) -> None:
    async def disturb(page: int) -> None:
        await ten.make(CONFIGMAPS, {"metadata": {"name": f"c0{page}"}})
        await ten.make(CONFIGMAPS, {"metadata": {"name": f"zz{page}"}})
        await ten.delete(f"{CONFIGMAPS}/c{9 - page}")
        await ten.patch(f"{CONFIGMAPS}/c{page}", {"data": {"touched": "yes"}})

    before = (await ten.get(CONFIGMAPS)).json["items"]
    found = await pages(ten, CONFIGMAPS, 2, disturb)
    assert [item for page in found for item in page["items"]] == before


@pytest.mark.parametrize("query", ["labelSelector=odd%3D1", "labelSelector=odd%3D1&limit=40", "limit=40"])
async def test_a_list_shows_one_revision_although_others_write_meanwhile(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    for number in range(100):
        await harness.make(CONFIGMAPS, {"metadata": {"name": f"c{number:02}", "labels": {"odd": str(number % 2)}}})
    slicer = harness.api.resources.registries[("", "v1", "configmaps")].env.slicer
    before = await harness.get(f"{CONFIGMAPS}?{query}")

    async def write(cost: float) -> None:
        monkeypatch.undo()
        await harness.make(CONFIGMAPS, {"metadata": {"name": "c50-a", "labels": {"odd": "1"}}})
        await harness.delete(f"{CONFIGMAPS}/c61")
        await harness.patch(f"{CONFIGMAPS}/c71", {"data": {"touched": "yes"}})

    monkeypatch.setattr(slicer, "over_budget", lambda: True)
    monkeypatch.setattr(slicer, "wait", write)
    assert (await harness.get(f"{CONFIGMAPS}?{query}")).body == before.body


async def test_an_expired_continue_token_comes_with_an_inconsistent_one(ten: ServerHarness) -> None:
    first = (await ten.get(f"{CONFIGMAPS}?limit=4")).json
    await ten.delete(f"{CONFIGMAPS}/c5")
    await ten.store.compact(ten.store.revision)
    reply = await ten.get(f"{CONFIGMAPS}?limit=4&continue={first['metadata']['continue']}")
    assert (reply.status, reply.json["reason"]) == (410, "Expired")
    onwards = reply.json["metadata"]["continue"]
    assert await names(ten, f"continue={onwards}") == ["c4", "c6", "c7", "c8", "c9"]


async def test_exact_revisions(ten: ServerHarness) -> None:
    revision = (await ten.get(CONFIGMAPS)).json["metadata"]["resourceVersion"]
    await ten.delete(f"{CONFIGMAPS}/c0")
    exact = f"resourceVersion={revision}&resourceVersionMatch=Exact"
    assert len(await names(ten, exact)) == 10
    assert len(await names(ten)) == 9
    assert await names(ten, f"{exact}&limit=2") == ["c0", "c1"]
    await ten.store.compact(ten.store.revision)
    reply = await ten.get(f"{CONFIGMAPS}?{exact}")
    assert (reply.status, reply.json["reason"]) == (410, "Expired")


# What a real server answers: how many of the two first objects and the third one come, or the code of the refusal. The
# revision `N` is one at which the third object was not there yet.
_REVISIONS, _MATCHES, _LIMITS = ("", "0", "N"), ("", "Exact", "NotOlderThan"), ("", "1")
MATRIX: dict[tuple[str, str, str], int] = {
    ("", "", ""): 3,
    ("", "", "1"): 1,
    ("", "Exact", ""): 422,
    ("", "Exact", "1"): 422,
    ("", "NotOlderThan", ""): 422,
    ("", "NotOlderThan", "1"): 422,
    ("0", "", ""): 3,
    ("0", "", "1"): 3,
    ("0", "Exact", ""): 422,
    ("0", "Exact", "1"): 422,
    ("0", "NotOlderThan", ""): 3,
    ("0", "NotOlderThan", "1"): 3,
    ("N", "", ""): 3,
    ("N", "", "1"): 1,
    ("N", "Exact", ""): 2,
    ("N", "Exact", "1"): 1,
    ("N", "NotOlderThan", ""): 3,
    ("N", "NotOlderThan", "1"): 1,
}


def query_of(revision: str, match: str, limit: str, at: str) -> str:
    pairs = {"resourceVersion": at if revision == "N" else revision, "resourceVersionMatch": match, "limit": limit}
    return "&".join(f"{name}={value}" for name, value in pairs.items() if value)


@pytest.mark.parametrize("asked", list(itertools.product(_REVISIONS, _MATCHES, _LIMITS)), ids=str)
async def test_the_matrix(harness: ServerHarness, asked: tuple[str, str, str]) -> None:
    for name in ("a", "b"):
        at = (await harness.make(CONFIGMAPS, {"metadata": {"name": name}}))["metadata"]["resourceVersion"]
    await harness.make(CONFIGMAPS, {"metadata": {"name": "c"}})
    reply = await harness.get(f"{CONFIGMAPS}?{query_of(*asked, at)}")
    got = len(reply.json["items"]) if reply.status == 200 else reply.status
    assert got == MATRIX[asked]
    if reply.status == 200:
        shown = reply.json["metadata"]["resourceVersion"]
        past = asked[0] == "N" and (asked[1] == "Exact" or (asked[1] == "" and asked[2] == "1"))
        assert shown == (at if past else str(harness.store.revision))


@pytest.mark.parametrize("asked", list(itertools.product(_REVISIONS, _MATCHES)), ids=str)
async def test_the_matrix_with_continue(ten: ServerHarness, asked: tuple[str, str]) -> None:
    first = (await ten.get(f"{CONFIGMAPS}?limit=4")).json["metadata"]
    query = query_of(*asked, "", first["resourceVersion"])
    reply = await ten.get(f"{CONFIGMAPS}?continue={first['continue']}&{query}")
    if asked[1]:
        assert reply.status == 422
    elif asked[0] == "N":
        assert (reply.status, reply.json["message"]) == (
            400,
            "specifying resource version is not allowed when using continue",
        )
    else:
        assert len(reply.json["items"]) == 6


async def test_a_future_revision_times_out(harness: ServerHarness) -> None:
    asked = asyncio.ensure_future(harness.get(f"{CONFIGMAPS}?resourceVersion=99999"))
    await harness.clock.advance(1)
    assert not asked.done()
    await harness.clock.advance(4)
    reply = await asked
    assert (reply.status, reply.json["reason"]) == (504, "Timeout")
    soon = asyncio.ensure_future(harness.get(f"{CONFIGMAPS}?resourceVersion={harness.store.revision + 1}"))
    await harness.clock.advance(1)
    await harness.make(CONFIGMAPS, {"metadata": {"name": "a"}})
    await harness.clock.advance(1)
    assert len((await soon).json["items"]) == 1


async def test_pages_are_consistent_under_concurrent_writes(contended_harness: ServerHarness) -> None:
    """Readers page through while writers write: every reader sees exactly one revision."""
    harness = contended_harness
    for number in range(20):
        await harness.make(CONFIGMAPS, {"metadata": {"name": f"c{number:02d}"}, "data": {"n": "0"}})
    done = asyncio.Event()

    async def write(worker: int) -> None:
        for step in range(25):
            name = f"c{(worker * 7 + step) % 20:02d}"
            await harness.delete(f"{CONFIGMAPS}/{name}")
            await harness.post(CONFIGMAPS, {"metadata": {"name": name}, "data": {"n": f"{worker}-{step}"}})
        done.set()

    async def read(limit: int) -> None:
        while not done.is_set():
            found = await pages(harness, CONFIGMAPS, limit)
            revision = found[0]["metadata"]["resourceVersion"]
            together = [item for page in found for item in page["items"]]
            exact = f"{CONFIGMAPS}?resourceVersion={revision}&resourceVersionMatch=Exact"
            assert together == (await harness.get(exact)).json["items"]
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for worker in range(3):
            tasks.create_task(write(worker))
        for limit in (1, 3, 7):
            tasks.create_task(read(limit))


async def test_a_list_of_one_name_is_never_continued(harness: ServerHarness) -> None:
    for name in ("a", "b", "c"):
        await harness.make(CONFIGMAPS, {"metadata": {"name": name}})
    reply = await harness.get(f"{CONFIGMAPS}?limit=1&fieldSelector=metadata.name%3Db")
    assert [item["metadata"]["name"] for item in reply.json["items"]] == ["b"]
    assert "continue" not in reply.json["metadata"]
    assert (await harness.get(f"{CONFIGMAPS}?fieldSelector=metadata.name%3Dnone")).json["items"] == []


async def test_a_collection_deletion_continues_after_each_page(harness: ServerHarness) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    for name in "abc":
        await harness.make(path, {"metadata": {"name": name}})
    first = (await harness.get(f"{path}?limit=1")).json
    await harness.make(path, {"metadata": {"name": "d"}})
    reply = await harness.delete(f"{path}?continue=nonsense")
    assert reply.status == 400 and "continue key is not valid" in reply.message
    reply = await harness.delete(f"{path}?continue={first['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in reply.json["items"]] == ["b", "c"]
    left = (await harness.get(path)).json
    assert [item["metadata"]["name"] for item in left["items"]] == ["a", "d"], "d came later than the list"
    options = {"kind": "DeleteOptions", "apiVersion": "v1"}
    for more in ("", "&resourceVersionMatch=Exact"):
        at = f"resourceVersion={first['metadata']['resourceVersion']}{more}"
        reply = await harness.request("DELETE", f"{path}?{at}&dryRun=All", options)
        assert [item["metadata"]["name"] for item in reply.json["items"]] == ["a", "b", "c"], "as it was then"


async def test_preconditions_of_a_deletion_may_be_in_the_query(harness: ServerHarness) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    meta = (await harness.make(path, {"metadata": {"name": "a"}}))["metadata"]
    for wrong in ("uid=other", "resourceVersion=1", f"uid={meta['uid']}&resourceVersion=1"):
        assert (await harness.delete(f"{path}/a?{wrong}")).status == 409
    assert (await harness.delete(f"{path}?uid=other")).status == 409
    assert (await harness.get(f"{path}/a")).status == 200
    right = f"uid={meta['uid']}&resourceVersion={meta['resourceVersion']}"
    assert (await harness.delete(f"{path}/a?{right}")).status == 200
