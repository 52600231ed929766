"""Two servers on one medium: each answers by what was committed anywhere before it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from custom.custom_door import CRDS, FOOS, CustomDoor, definition, foo
from front_door import LIMITED_TOKEN, FrontDoor, settle
from lagging_store import LaggingStore, Medium

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
Doors = tuple[CustomDoor, CustomDoor]


@pytest.fixture
async def doors(quiet_log: pytest.LogCaptureFixture) -> AsyncIterator[Doors]:
    medium = Medium()
    opened: list[CustomDoor] = []
    for _ in range(2):
        door = await CustomDoor.open(LaggingStore(medium))
        assert isinstance(door, CustomDoor)
        door.begin()
        opened.append(door)
    yield opened[0], opened[1]
    for door in opened:
        await door.end()


def view(door: FrontDoor) -> LaggingStore:
    assert isinstance(door.store, LaggingStore)
    return door.store


async def put_behind(door: FrontDoor) -> None:
    """From now on nothing arrives at this server, until it asks for it."""
    store = view(door)
    await store.sync()
    store.hold()
    synced = LaggingStore.sync

    async def sync() -> int:
        store.release()
        return await synced(store)

    store.sync = sync  # type: ignore[method-assign]


async def make(door: FrontDoor, name: str, **data: str) -> dict[str, Any]:
    return await door.make(CONFIGMAPS, {"metadata": {"name": name}, "data": data})


async def test_what_one_has_acknowledged_the_other_answers(doors: Doors) -> None:
    one, other = doors
    for number in range(20):
        await put_behind(other)
        made = await make(one, f"c{number}", v="1")
        assert (await other.get(f"{CONFIGMAPS}/c{number}")).json == made
        await put_behind(other)
        assert (await one.delete(f"{CONFIGMAPS}/c{number}")).status == 200
        assert (await other.get(CONFIGMAPS)).json["items"] == []


async def test_any_state_will_do_for_a_read_that_says_so(doors: Doors) -> None:
    """resourceVersion=0 is served from what is here, also while the medium is away."""
    one, other = doors
    await make(one, "c")
    await other.get(f"{CONFIGMAPS}/c")
    view(other).medium.away = True
    assert (await other.get(f"{CONFIGMAPS}/c?resourceVersion=0")).status == 200
    assert len((await other.get(f"{CONFIGMAPS}?resourceVersion=0")).json["items"]) == 1
    assert (await other.get("/livez")).status == 200
    view(other).medium.away = False


async def test_a_read_waits_for_a_revision_that_the_other_server_gave(doors: Doors) -> None:
    one, other = doors
    await put_behind(other)
    made = await make(one, "c")
    reading = asyncio.create_task(other.get(f"{CONFIGMAPS}/c?resourceVersion={made['metadata']['resourceVersion']}"))
    await settle(50)
    assert not reading.done()
    view(other).release()
    assert (await reading).json == made


async def test_a_revision_that_does_not_come_is_too_large(doors: Doors) -> None:
    _, other = doors
    reading = asyncio.create_task(other.get(f"{CONFIGMAPS}?resourceVersion=100000"))
    await settle(20)
    await other.clock.advance(4)
    reply = await reading
    assert (reply.status, reply.json["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


async def test_a_patch_is_answered_with_its_own_value(doors: Doors) -> None:
    await make(doors[0], "c", x="0")
    for number in range(20):
        door = doors[number % 2]
        reply = await door.patch(f"{CONFIGMAPS}/c", {"data": {"x": str(number)}})
        assert (reply.status, reply.json["data"]) == (200, {"x": str(number)})


@pytest.mark.parametrize("servers", [1, 2])
async def test_who_loses_a_race_waits_for_the_state_that_won(doors: Doors, servers: int) -> None:
    """Every transaction that fails was beaten by one that succeeded: n writers need at most n * (n + 1) / 2."""
    await make(doors[0], "c")
    medium = view(doors[0]).medium
    before = medium.transactions
    writers = 10

    async def patch(number: int) -> None:
        reply = await doors[number % servers].patch(f"{CONFIGMAPS}/c", {"data": {f"k{number}": "1"}})
        assert reply.status == 200, reply.body

    await asyncio.gather(*map(patch, range(writers)))
    assert medium.transactions - before <= writers * (writers + 1) // 2
    assert len((await doors[1].get(f"{CONFIGMAPS}/c")).json["data"]) == writers


async def test_a_watch_resumes_on_the_other_server(doors: Doors) -> None:
    one, other = doors
    first = await make(one, "c", v="first")
    await put_behind(other)
    for number in range(12):
        await one.patch(f"{CONFIGMAPS}/c", {"data": {"v": str(number)}})
    watcher = await other.watch(f"{CONFIGMAPS}?resourceVersion={first['metadata']['resourceVersion']}")
    view(other).release()
    await settle(60)
    assert [event["object"]["data"]["v"] for event in watcher.events] == [str(number) for number in range(12)]
    await one.patch(f"{CONFIGMAPS}/c", {"data": {"v": "live"}})
    await settle(20)
    assert watcher.events[-1]["object"]["data"] == {"v": "live"}


async def test_a_watch_from_now_begins_with_what_the_other_has_acknowledged(doors: Doors) -> None:
    one, other = doors
    await put_behind(other)
    made = await make(one, "c")
    watcher = await other.watch(CONFIGMAPS)
    assert [event["object"] for event in watcher.events] == [made]


async def test_a_list_goes_on_at_the_other_server(doors: Doors) -> None:
    one, other = doors
    for name in "abcd":
        await make(one, name)
    page = (await one.get(f"{CONFIGMAPS}?limit=2")).json
    await one.delete(f"{CONFIGMAPS}/c")
    rest = (await other.get(f"{CONFIGMAPS}?limit=2&continue={page['metadata']['continue']}")).json
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c", "d"]
    assert rest["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]


async def test_rights_and_namespaces_count_at_once(doors: Doors) -> None:
    one, other = doors
    await one.make("/apis/rbac.authorization.k8s.io/v1/clusterroles", {
        "metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
    })  # fmt: skip
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "limited"}
    for _ in range(10):
        await put_behind(other)
        await one.make(bindings, {"metadata": {"name": "b"}, "roleRef": role, "subjects": [subject]})
        assert (await other.get(CONFIGMAPS, token=LIMITED_TOKEN)).status == 200
        await put_behind(other)
        assert (await one.delete(f"{bindings}/b")).status == 200
        assert (await other.get(CONFIGMAPS, token=LIMITED_TOKEN)).status == 403
    await put_behind(other)
    await one.make("/api/v1/namespaces", {"metadata": {"name": "new"}})
    await other.make("/api/v1/namespaces/new/configmaps", {"metadata": {"name": "c"}})


async def test_addresses_and_ports_are_given_once(doors: Doors) -> None:
    async def create(number: int) -> dict[str, Any]:
        spec = {"type": "NodePort", "ports": [{"port": 80}]}
        return await doors[number % 2].make(SERVICES, {"metadata": {"name": f"s{number}"}, "spec": spec})

    made = await asyncio.gather(*map(create, range(30)))
    assert len({service["spec"]["clusterIP"] for service in made}) == 30
    assert len({service["spec"]["ports"][0]["nodePort"] for service in made}) == 30


async def test_a_definition_established_by_one_is_served_by_the_other(doors: Doors) -> None:
    one, other = doors
    await put_behind(other)
    await one.make(CRDS, definition())
    for _ in range(50):
        stored = (await one.get(f"{CRDS}/foos.example.com")).json
        if one.condition(stored, "Established") == "InitialNamesAccepted":
            break
        await settle()
    made = await other.make(FOOS, foo("f"))
    assert (await one.get(f"{FOOS}/f")).json == made
    # A watch may begin with the definition's own revision, on each of them, and after a restart.
    since = stored["metadata"]["resourceVersion"]
    third = await CustomDoor.open(LaggingStore(view(one).medium))
    for door in (one, other, third):
        watcher = await door.watch(f"{FOOS}?resourceVersion={since}")
        await settle(30)
        assert watcher.summary == [("ADDED", "f")]
    await third.close()


async def test_a_medium_that_is_away(doors: Doors, quiet_log: pytest.LogCaptureFixture) -> None:
    one, _ = doors
    await make(one, "c")
    view(one).medium.away = True
    for reply in (await one.get(CONFIGMAPS), await one.patch(f"{CONFIGMAPS}/c", {"data": {"x": "1"}})):
        assert (reply.status, reply.json["reason"]) == (503, "ServiceUnavailable")
        assert reply.header("Retry-After") == "1"
    assert (await one.get("/readyz")).status == 500
    view(one).medium.away = False
    assert (await one.get("/readyz")).status == 200
    assert (await one.get(f"{CONFIGMAPS}/c")).status == 200


async def test_a_write_of_unknown_outcome_is_a_timeout(
    doors: Doors, quiet_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = doors
    store = view(one)
    await make(one, "c")
    ask = store._ask
    asked = 0

    async def away_after_the_first() -> None:
        nonlocal asked
        asked += 1
        store.medium.away = asked > 1
        await ask()

    monkeypatch.setattr(store, "_ask", away_after_the_first)
    reply = await one.patch(f"{CONFIGMAPS}/c", {"data": {"x": "1"}})
    store.medium.away = False
    assert (reply.status, reply.json["reason"], reply.header("Retry-After")) == (504, "Timeout", "")
    quiet_log.clear()
