"""`/at/<when>/`: what was there then, for whom may read it now."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from audit_harness import audit
from custom_resource_harness import CRDS, FOOS, CustomResourceHarness, foo, of, version
from effort import tries
from server_harness import ADMIN_TOKEN, LIMITED_TOKEN, ServerHarness, VirtualClock, settle
from stopped_clock import StoppedClock

from setpoint.apiserver.history.marks import MarkKeeper
from setpoint.apiserver.history.reader import HistoryReader
from setpoint.store.archive import FileArchive, Retention
from setpoint.store.memory import MemoryStore

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
METADATA = {"accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"}
READ = (
    "/api/v1/configmaps",
    f"{CONFIGMAPS}?labelSelector=odd%3Dyes",
    f"{CONFIGMAPS}/o1",
    "/api/v1/namespaces",
    FOOS,
    "/apis/example.com/v2/foos",
    "/apis/example.com/v1",
    CRDS,
)
"""What is read at each revision."""


@pytest.fixture
async def custom() -> AsyncIterator[CustomResourceHarness]:
    harness = await CustomResourceHarness.open()
    assert isinstance(harness, CustomResourceHarness)
    harness.begin()
    yield harness
    await harness.end()


async def everything(harness: CustomResourceHarness, prefix: str = "") -> list[tuple[int, bytes]]:
    replies = [await harness.get(prefix + path) for path in READ]
    replies += [await harness.get(prefix + "/api/v1/configmaps", headers=form) for form in (METADATA, TABLE)]
    return [(reply.status, reply.body) for reply in replies]


async def live(harness: CustomResourceHarness, compacting: bool) -> dict[int, list[tuple[int, bytes]]]:
    """Let things happen, and return what was read at each revision."""
    rng = random.Random(5)
    seen: dict[int, list[tuple[int, bytes]]] = {}
    alive: set[str] = set()
    defined = 0
    two = [version("v1", of(a={"type": "integer"})), version("v2", of(a={"type": "integer"}), storage=False)]
    for step in range(tries(45, 300)):
        harness.clock.jump(1.5)
        choice = rng.random()
        name = f"o{rng.randrange(5)}"
        if choice < 0.12:
            defined += 1
            if defined % 4 == 1:
                await harness.define(version("v1", of(a={"type": "integer"})))
            elif defined % 4 == 2:
                await harness.redefine({"spec": {"versions": two}})
            elif defined % 4 == 0:
                await harness.delete(f"{CRDS}/foos.example.com")
                await settle(60)
        elif choice < 0.35 and defined % 4:
            if (await harness.post(FOOS, foo(name, {"a": step}))).status == 409:
                await harness.patch(f"{FOOS}/{name}", {"spec": {"a": step}})
        elif name not in alive:
            await harness.make(CONFIGMAPS, {"metadata": {"name": name, "labels": {"odd": "yes" if step % 2 else "no"}}})
            alive.add(name)
        elif choice < 0.6:
            await harness.delete(f"{CONFIGMAPS}/{name}")
            alive.discard(name)
        else:
            await harness.patch(f"{CONFIGMAPS}/{name}", {"data": {"v": str(step)}})
        await settle(40)
        if harness.store.revision not in seen:
            seen[harness.store.revision] = await everything(harness)
        if compacting and step % 9 == 8:
            await harness.store.compact(harness.store.revision - 4)
    assert len(seen) > 30 and any(status == 404 for status, _ in next(iter(seen.values())))
    return seen


async def test_each_revision_is_what_a_reader_saw_then(custom: CustomResourceHarness) -> None:
    seen = await live(custom, compacting=False)
    for revision, then in seen.items():
        assert await everything(custom, f"/at/{revision}") == then, revision


async def test_compaction_and_the_death_of_the_server_change_nothing(tmp_path: Path) -> None:
    home, copied = tmp_path / "home", tmp_path / "copied"
    home.mkdir()

    async def serve(folder: Path, store: MemoryStore) -> tuple[CustomResourceHarness, FileArchive]:
        archive = FileArchive(folder / "history.db", Retention(), VirtualClock(), threads=False)
        await archive.follow(store)
        harness = await CustomResourceHarness.open(store)
        assert isinstance(harness, CustomResourceHarness)
        harness.begin()
        return harness, archive

    store = MemoryStore()
    harness, archive = await serve(home, store)
    seen = await live(harness, compacting=True)
    shutil.copytree(home, copied)  # what a killed process leaves
    again, archive_again = await serve(copied, store.fork())
    oldest = again.store.compacted
    assert oldest > sorted(seen)[len(seen) // 2]
    for number, (revision, then) in enumerate(seen.items()):
        served_by = again if number % 4 else harness
        assert await everything(served_by, f"/at/{revision}") == then, revision
    assert (await again.get(f"/at/start{CONFIGMAPS}")).status == 200
    for each, its in ((harness, archive), (again, archive_again)):
        await each.end()
        await its.close()


async def test_the_forms_of_a_moment(custom: CustomResourceHarness) -> None:
    made = await custom.make(CONFIGMAPS, {"metadata": {"name": "a"}})
    await custom.clock.advance(60)
    then = custom.clock.now()
    changed = (await custom.patch(f"{CONFIGMAPS}/a", {"data": {"v": "1"}})).json
    revision = int(changed["metadata"]["resourceVersion"])
    await custom.make("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
    marked = await custom.make("/api/v1/namespaces/kube-system/configmaps", marks(release=str(revision)))
    await custom.clock.advance(3 * 3600)
    await custom.delete(f"{CONFIGMAPS}/a")
    name = f"{CONFIGMAPS.removeprefix('/')}/a"
    for when in (
        str(revision),
        "release",
        "-3h",
        "-2h30m",
        "-10799.5s",
        "00:30",
        "2026-01-01T00:01:00Z",
        "2026-01-01T02:01:00%2B02:00",
        "2026-01-01T00:01:00.25Z",
        f"{then:%H:%M:%S}",
        f"{then:%H:%M:%S}.4",
    ):
        reply = await custom.get(f"/at/{when}/{name}")
        assert (reply.status, reply.json) == (200, changed), when
    reply = await custom.get(f"/at/-3h/{name}")
    assert (await custom.get(f"/at/{made['metadata']['resourceVersion']}/{name}")).json == made
    assert (await custom.get(f"/at/now/{name}")).status == 404
    assert reply.header("Setpoint-At") == f"{marked['metadata']['resourceVersion']}; 2026-01-01T00:01:00.000Z"
    assert (await custom.get("/at/start/api/v1/namespaces")).status == 200
    for when in ("31:00", "-5x", "-", "9999999", "unknown", "2026-02-30T00:00:00Z", "x" * 100, "%00"):
        reply = await custom.get(f"/at/{when}/{name}")
        assert reply.status == 400, (when, reply.body)
    reply = await custom.get(f"/at/2025-01-01T00:00:00Z/{name}")
    assert (reply.status, reply.json["reason"]) == (410, "Expired")
    assert reply.message.startswith("2025-01-01T00:00:00Z is not in the history, which begins with revision 1")
    await custom.store.compact(revision - 1)
    assert (await custom.get(f"/at/release/{name}")).json == changed
    assert (await custom.get(f"/at/{revision - 1}/{name}")).message == (
        f"revision {revision - 1} is not in the history, which begins with revision {revision} of 2026-01-01T00:01:00.000Z"
    )


def marks(**named: str) -> dict[str, Any]:
    return {"metadata": {"name": "setpoint-marks"}, "data": named}


async def test_a_moment_is_a_server_for_clients(custom: CustomResourceHarness) -> None:
    for number in range(5):
        await custom.make(CONFIGMAPS, {"metadata": {"name": f"c{number}"}, "data": {"n": str(number)}})
    await custom.define()
    await custom.make(FOOS, foo("f"))
    then = custom.store.revision
    await custom.clock.advance(600)
    await custom.delete(CONFIGMAPS)
    await custom.delete(f"{CRDS}/foos.example.com")
    await settle(60)
    assert (await custom.get(f"{FOOS}/f")).status == 404
    at = f"/at/{then}"
    # Discovery and documents show the kinds of then, with a kind that no longer exists.
    groups = [group["name"] for group in (await custom.get(f"{at}/apis")).json["groups"]]
    assert "example.com" in groups and "apps" in groups
    assert (await custom.get(f"{at}/apis/example.com/v1")).json["resources"][0]["name"] == "foos"
    assert "apis/example.com/v1" in (await custom.get(f"{at}/openapi/v3")).json["paths"]
    assert b"com.example.v1.Foo" in (await custom.get(f"{at}/openapi/v3/apis/example.com/v1")).body
    assert (await custom.get(f"{at}/version")).json["major"] == "1"
    assert (await custom.get(f"{at}{FOOS}/f")).json["kind"] == "Foo"
    # Lists are paged, at the same revision even if the moment moves on meanwhile.
    first = (await custom.get(f"{at}{CONFIGMAPS}?limit=2")).json
    assert first["metadata"]["resourceVersion"] == str(then) and first["metadata"]["remainingItemCount"] == 3
    rest = (await custom.get(f"/at/{then + 1}{CONFIGMAPS}?limit=9&continue={first['metadata']['continue']}")).json
    assert [each["metadata"]["name"] for each in first["items"] + rest["items"]] == [
        f"c{number}" for number in range(5)
    ]
    assert rest["metadata"]["resourceVersion"] == str(then)
    # A watch shows the state and is silent until the client leaves.
    watcher = await custom.watch(f"{at}{CONFIGMAPS}?fieldSelector=metadata.name%3Dc1")
    assert watcher.summary == [("ADDED", "c1")]
    resumed = await custom.watch(f"{at}{CONFIGMAPS}?resourceVersion={then}&allowWatchBookmarks=true")
    streamed = await custom.watch(
        f"{at}{CONFIGMAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    )
    assert [kind for kind, _ in streamed.summary] == ["ADDED"] * 5 + ["BOOKMARK"]
    await custom.make(CONFIGMAPS, {"metadata": {"name": "new"}})
    await custom.clock.advance(61)
    assert len(watcher.events) == 1 and {kind for kind, _ in resumed.summary} <= {"BOOKMARK"}
    assert not watcher.ended and not resumed.ended
    # Nothing can be changed, and what was never stored is not there.
    for method, path in (
        ("POST", CONFIGMAPS),
        ("DELETE", CONFIGMAPS),
        *((method, f"{CONFIGMAPS}/c1") for method in ("PUT", "PATCH", "DELETE")),
        ("POST", "/api/v1/namespaces/default/pods/p/exec"),
        ("POST", "/api/v1/namespaces/default/pods/p/eviction"),
    ):
        reply = await custom.request(method, at + path, {"metadata": {"name": "c1"}})
        assert (reply.status, reply.message) == (405, "the past cannot be changed")
    reply = await custom.get(f"{at}/api/v1/namespaces/default/pods/p/log")
    assert (reply.status, reply.message) == (405, "pods/log of the past is not kept")
    assert (await custom.get("/at//api")).status == 400 and (await custom.get("/at")).status == 404
    for stream in ("exec", "attach", "portforward", "proxy"):
        reply = await custom.get(f"{at}/api/v1/namespaces/default/pods/p/{stream}")
        assert reply.status in (404, 405), (stream, reply.status)
    for path in (
        "/../api/v1/pods",
        "/%2e%2e/api/v1/pods",
        f"/at/{then}/at/{then}/api",
        "//api/v1/pods",
        f"{at}{at}/api",
    ):
        assert (await custom.get(at + path)).status in (301, 400, 404), path
    for path in ("/metrics", "/at/1/api", "/setpoint/v1/causes", "/apis/metrics.k8s.io/v1beta1/nodes", "/%zz"):
        assert (await custom.get(at + path)).status in (400, 404), path


async def test_ages_are_those_of_the_moment(custom: CustomResourceHarness) -> None:
    """Also if nothing was written between two moments, so that both have the same revision."""
    await custom.make(CONFIGMAPS, {"metadata": {"name": "a"}})
    await custom.clock.advance(3600)
    for minutes in (50, 20):
        path = f"/at/-{minutes}m{CONFIGMAPS}"
        (row,) = (await custom.get(path, headers=TABLE)).json["rows"]
        watcher = await custom.watch(path, headers=TABLE)
        (event,) = watcher.events
        assert row["cells"] == event["object"]["rows"][0]["cells"] == ["a", 0, f"{60 - minutes}m"]


async def test_requests_of_one_revision_have_times_of_their_own(custom: CustomResourceHarness) -> None:
    """A watch shows the ages of its own moment, also if another request of the same revision comes before its rows."""
    await custom.make(CONFIGMAPS, {"metadata": {"name": "a"}})
    await custom.clock.advance(3600)

    async def watched(minutes: int) -> str:
        watcher = await custom.watch(f"/at/-{minutes}m{CONFIGMAPS}", headers=TABLE)
        (event,) = watcher.events
        return str(event["object"]["rows"][0]["cells"][-1])

    moments = (50, 20, 40)
    assert await asyncio.gather(*map(watched, moments)) == [f"{60 - minutes}m" for minutes in moments]


async def test_who_may_read_the_past(custom: CustomResourceHarness) -> None:
    def limited(path: str) -> Any:
        return custom.get(path, token=LIMITED_TOKEN)

    rbac = "/apis/rbac.authorization.k8s.io/v1"
    user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "limited"}

    async def bind(name: str, rules: list[dict[str, Any]]) -> None:
        await custom.make(f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        bound = {"metadata": {"name": name}, "roleRef": role, "subjects": [user]}
        await custom.make(f"{rbac}/clusterrolebindings", bound)

    await custom.make(CONFIGMAPS, {"metadata": {"name": "a"}})
    reader = [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}]
    await bind("reader", reader)
    then = custom.store.revision
    path = f"/at/{then}{CONFIGMAPS}"
    reply = await limited(path)
    assert reply.status == 403 and f'cannot get path "{path}"' in reply.message.replace('\\"', '"')
    await bind("history", [{"verbs": ["*"], "nonResourceURLs": ["/at/*"]}])
    assert (await limited(path)).status == (await limited(f"{path}/a")).status == 200
    reply = await limited(f"/at/{then}/api/v1/secrets")
    assert reply.status == 403 and 'cannot list resource "secrets"' in reply.message
    assert (await limited(f"{path}?watch=true")).status == 403
    # A right that was taken away does not read the time when it was there.
    await custom.delete(f"{rbac}/clusterrolebindings/reader")
    await settle()
    assert (await limited(path)).status == (await limited(f"{path}/a")).status == 403
    # The rights of the past give nothing, and a kind that is not there any more needs a right of today too.
    assert (await limited(f"/at/{then}/apis/example.com/v1/foos")).status == 403
    assert (await custom.get(path, token="")).status in (401, 403)
    assert (await custom.get(path, token=ADMIN_TOKEN)).status == 200


async def test_reads_of_the_past_are_audited(custom: CustomResourceHarness) -> None:
    sink = audit(custom, {"level": "Metadata"})
    revision = custom.store.revision
    await custom.get(f"/at/{revision}/api/v1/configmaps")
    (event,) = [each for each in sink.drain() if each["stage"] == "ResponseComplete"]
    assert event["requestURI"] == f"/at/{revision}/api/v1/configmaps"
    assert event["annotations"]["setpoint.dev/at"] == f"{revision}; 2026-01-01T00:00:00.000Z"


async def test_a_marked_moment_is_served_beyond_the_retention(tmp_path: Path) -> None:
    clock, store = StoppedClock(), MemoryStore()
    archive = FileArchive(tmp_path / "history.db", Retention(seconds=60.0), clock, threads=False)
    await archive.follow(store)
    harness = await ServerHarness.open(store)
    await harness.make(CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"v": "1"}})
    then = (await harness.get(CONFIGMAPS)).json["items"]
    marked = store.revision
    await harness.make("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
    system = "/api/v1/namespaces/kube-system/configmaps"
    await harness.make(system, {"metadata": {"name": "setpoint-marks"}, "data": {"release": str(marked)}})
    await MarkKeeper(HistoryReader(store), archive, lambda: {"release": str(marked)}, clock).keep_all()
    await harness.delete(f"{CONFIGMAPS}/a")
    await harness.make(CONFIGMAPS, {"metadata": {"name": "later"}})
    await clock.advance(10_000_000_000)  # the times of writes are those of another clock
    await store.compact(store.revision)
    assert archive.oldest > marked
    for moment in ("release", str(marked)):
        found = await harness.get(f"/at/{moment}{CONFIGMAPS}")
        assert (found.status, found.json["items"]) == (200, then)
        assert (await harness.get(f"/at/{moment}{CONFIGMAPS}/a")).json["data"] == {"v": "1"}
        assert (await harness.get(f"/at/{moment}{CONFIGMAPS}/later")).status == 404
    assert (await harness.get(f"/at/{marked - 1}{CONFIGMAPS}")).status == 410
    await harness.close()
    await archive.close()
