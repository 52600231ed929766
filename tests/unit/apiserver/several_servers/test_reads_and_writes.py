"""Two servers on one medium: each answers by what was committed anywhere before it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from custom_resource_harness import CRDS, FOOS, CustomResourceHarness, definition, foo
from lagging_store import LaggingStore, Medium
from server_harness import LIMITED_TOKEN, ServerHarness, settle

from setpoint.cluster.backups import BACKUP_PATH, serve_backup
from setpoint.store.interface import NotedCause, NotProcessed, Op, StoreError, TooLarge

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
Harnesses = tuple[CustomResourceHarness, CustomResourceHarness]


@pytest.fixture
async def harnesses(quiet_log: pytest.LogCaptureFixture) -> AsyncIterator[Harnesses]:
    medium = Medium()
    opened: list[CustomResourceHarness] = []
    for _ in range(2):
        harness = await CustomResourceHarness.open(LaggingStore(medium))
        assert isinstance(harness, CustomResourceHarness)
        harness.begin()
        opened.append(harness)
    yield opened[0], opened[1]
    for harness in opened:
        await harness.end()


def view(harness: ServerHarness) -> LaggingStore:
    assert isinstance(harness.store, LaggingStore)
    return harness.store


async def put_behind(harness: ServerHarness) -> None:
    """From now on nothing arrives at this server, until it asks for it."""
    store = view(harness)
    await store.sync()
    store.hold()
    synced = LaggingStore.sync

    async def sync() -> int:
        store.release()
        return await synced(store)

    store.sync = sync  # type: ignore[method-assign]


async def make(harness: ServerHarness, name: str, **data: str) -> dict[str, Any]:
    return await harness.make(CONFIGMAPS, {"metadata": {"name": name}, "data": data})


async def test_what_one_has_acknowledged_the_other_answers(harnesses: Harnesses) -> None:
    one, other = harnesses
    for number in range(20):
        await put_behind(other)
        made = await make(one, f"c{number}", v="1")
        assert (await other.get(f"{CONFIGMAPS}/c{number}")).json == made
        await put_behind(other)
        assert (await one.delete(f"{CONFIGMAPS}/c{number}")).status == 200
        assert (await other.get(CONFIGMAPS)).json["items"] == []


async def test_any_state_will_do_for_a_read_that_says_so(harnesses: Harnesses) -> None:
    """resourceVersion=0 is served from what is here, also while the medium is away."""
    one, other = harnesses
    await make(one, "c")
    await other.get(f"{CONFIGMAPS}/c")
    view(other).medium.away = True
    assert (await other.get(f"{CONFIGMAPS}/c?resourceVersion=0")).status == 200
    assert len((await other.get(f"{CONFIGMAPS}?resourceVersion=0")).json["items"]) == 1
    assert (await other.get("/livez")).status == 200
    view(other).medium.away = False


async def test_a_read_waits_for_a_revision_that_the_other_server_gave(harnesses: Harnesses) -> None:
    one, other = harnesses
    await view(other).sync()
    view(other).hold()
    made = await make(one, "c")
    reading = asyncio.create_task(other.get(f"{CONFIGMAPS}/c?resourceVersion={made['metadata']['resourceVersion']}"))
    await settle(50)
    assert not reading.done()
    view(other).release()
    assert (await reading).json == made


async def test_a_revision_that_does_not_come_is_too_large(harnesses: Harnesses) -> None:
    _, other = harnesses
    reading = asyncio.create_task(other.get(f"{CONFIGMAPS}?resourceVersion=100000"))
    await settle(20)
    await other.clock.advance(4)
    reply = await reading
    assert (reply.status, reply.json["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


async def test_a_patch_is_answered_with_its_own_value(harnesses: Harnesses) -> None:
    await make(harnesses[0], "c", x="0")
    for number in range(20):
        harness = harnesses[number % 2]
        reply = await harness.patch(f"{CONFIGMAPS}/c", {"data": {"x": str(number)}})
        assert (reply.status, reply.json["data"]) == (200, {"x": str(number)})


@pytest.mark.parametrize("servers", [1, 2])
async def test_who_loses_a_race_waits_for_the_state_that_won(harnesses: Harnesses, servers: int) -> None:
    """Every transaction that fails was beaten by one that succeeded: n writers need at most n * (n + 1) / 2."""
    await make(harnesses[0], "c")
    medium = view(harnesses[0]).medium
    before = medium.attempts
    writers = 10

    async def patch(number: int) -> None:
        reply = await harnesses[number % servers].patch(f"{CONFIGMAPS}/c", {"data": {f"k{number}": "1"}})
        assert reply.status == 200, reply.body

    await asyncio.gather(*map(patch, range(writers)))
    assert medium.attempts - before <= writers * (writers + 1) // 2
    assert len((await harnesses[1].get(f"{CONFIGMAPS}/c")).json["data"]) == writers


async def test_a_watch_resumes_on_the_other_server(harnesses: Harnesses) -> None:
    one, other = harnesses
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


async def test_a_watch_from_now_begins_with_what_the_other_has_acknowledged(harnesses: Harnesses) -> None:
    one, other = harnesses
    await put_behind(other)
    made = await make(one, "c")
    watcher = await other.watch(CONFIGMAPS)
    assert [event["object"] for event in watcher.events] == [made]


async def test_a_list_goes_on_at_the_other_server(harnesses: Harnesses) -> None:
    one, other = harnesses
    for name in "abcd":
        await make(one, name)
    page = (await one.get(f"{CONFIGMAPS}?limit=2")).json
    await one.delete(f"{CONFIGMAPS}/c")
    rest = (await other.get(f"{CONFIGMAPS}?limit=2&continue={page['metadata']['continue']}")).json
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c", "d"]
    assert rest["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]


async def test_rights_and_namespaces_count_at_once(harnesses: Harnesses) -> None:
    one, other = harnesses
    await one.make(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {
            "metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
        },
    )
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


async def test_addresses_and_ports_are_given_once(harnesses: Harnesses) -> None:
    async def create(number: int) -> dict[str, Any]:
        spec = {"type": "NodePort", "ports": [{"port": 80}]}
        return await harnesses[number % 2].make(SERVICES, {"metadata": {"name": f"s{number}"}, "spec": spec})

    made = await asyncio.gather(*map(create, range(30)))
    assert len({service["spec"]["clusterIP"] for service in made}) == 30
    assert len({service["spec"]["ports"][0]["nodePort"] for service in made}) == 30


async def test_a_definition_established_by_one_is_served_by_the_other(harnesses: Harnesses) -> None:
    one, other = harnesses
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
    third = await CustomResourceHarness.open(LaggingStore(view(one).medium))
    for harness in (one, other, third):
        watcher = await harness.watch(f"{FOOS}?resourceVersion={since}")
        await settle(30)
        assert watcher.summary == [("ADDED", "f")]
    await third.close()


async def test_a_medium_that_is_away(harnesses: Harnesses, quiet_log: pytest.LogCaptureFixture) -> None:
    one, _ = harnesses
    await make(one, "c")
    one.api.serve_path(BACKUP_PATH, serve_backup(one.store, one.clock))
    view(one).medium.away = True
    for reply in (
        await one.get(CONFIGMAPS),
        await one.patch(f"{CONFIGMAPS}/c", {"data": {"x": "1"}}),
        await one.get(BACKUP_PATH),
    ):
        assert (reply.status, reply.json["reason"]) == (503, "ServiceUnavailable")
        assert reply.header("Retry-After") == "1"
    assert (await one.get("/readyz")).status == 500
    view(one).medium.away = False
    assert (await one.get("/readyz")).status == 200
    assert (await one.get(f"{CONFIGMAPS}/c")).status == 200
    assert (await one.get(BACKUP_PATH)).status == 200


async def test_a_write_of_unknown_outcome_is_a_timeout(
    harnesses: Harnesses, quiet_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = harnesses
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


@pytest.mark.parametrize("reading", ["?resourceVersion=0", "?resourceVersion=1&resourceVersionMatch=NotOlderThan"])
async def test_revoked_rights_count_at_once_for_reads_of_any_state(harnesses: Harnesses, reading: str) -> None:
    one, other = harnesses
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]
    await one.make("/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "reader"}, "rules": rules})
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "limited"}
    await one.make(bindings, {"metadata": {"name": "b"}, "roleRef": role, "subjects": [subject]})
    assert (await other.get(CONFIGMAPS + reading, token=LIMITED_TOKEN)).status == 200
    await put_behind(other)
    assert (await one.delete(f"{bindings}/b")).status == 200
    assert (await other.get(CONFIGMAPS + reading, token=LIMITED_TOKEN)).status == 403


async def test_a_store_that_does_not_answer_delays_reads_of_any_state_for_a_limited_time(harnesses: Harnesses) -> None:
    one, other = harnesses
    await make(one, "c")
    await view(other).sync()
    view(other).hold()
    await make(one, "d")
    reading = asyncio.create_task(other.get(f"{CONFIGMAPS}?resourceVersion=0"))
    await settle(50)
    assert not reading.done()
    assert (await other.get("/readyz")).status == 200
    await other.clock.advance(1)
    assert len((await reading).json["items"]) == 1
    view(other).release()


async def test_a_write_that_would_change_nothing_here_is_compared_with_the_present_state(harnesses: Harnesses) -> None:
    one, other = harnesses
    await make(one, "c", x="1")
    await put_behind(other)
    await one.patch(f"{CONFIGMAPS}/c", {"data": {"x": "2"}})
    assert (await other.patch(f"{CONFIGMAPS}/c", {"data": {"x": "1"}})).json["data"] == {"x": "1"}
    assert (await one.get(f"{CONFIGMAPS}/c")).json["data"] == {"x": "1"}


async def test_a_namespace_that_is_being_deleted_accepts_nothing(harnesses: Harnesses) -> None:
    one, other = harnesses
    await one.make("/api/v1/namespaces", {"metadata": {"name": "ending"}})
    await other.make("/api/v1/namespaces/ending/configmaps", {"metadata": {"name": "c"}})
    await put_behind(other)
    assert (await one.delete("/api/v1/namespaces/ending")).status == 200
    reply = await other.post("/api/v1/namespaces/ending/configmaps", {"metadata": {"name": "d"}})
    assert (reply.status, reply.json["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")


async def test_tokens_of_a_deleted_service_account_are_refused_at_once(
    tmp_path: Path, quiet_log: pytest.LogCaptureFixture
) -> None:
    medium = Medium()
    one, other = [
        await ServerHarness.open(LaggingStore(medium), cert_dir=tmp_path, service_account_issuer=["https://issuer"])
        for _ in range(2)
    ]
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await one.make(accounts, {"metadata": {"name": "sa"}})
    token = (await one.post(f"{accounts}/sa/token", {"spec": {}})).json["status"]["token"]
    assert (await other.get(CONFIGMAPS, token=token)).status == 403
    await put_behind(other)
    assert (await one.delete(f"{accounts}/sa")).status == 200
    assert (await other.get(CONFIGMAPS, token=token)).status == 401
    await one.close()
    await other.close()


async def test_a_quota_is_not_exceeded(harnesses: Harnesses) -> None:
    one, other = harnesses
    quotas = "/api/v1/namespaces/default/resourcequotas"
    hard = {"count/configmaps": "15"}
    await one.make(quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    observed = {"status": {"hard": hard, "used": {"count/configmaps": "0"}}}
    assert (await one.patch(f"{quotas}/q/status", observed)).status == 200

    async def create(number: int) -> int:
        reply = await harnesses[number % 2].post(CONFIGMAPS, {"metadata": {"name": f"c{number}"}})
        return reply.status

    statuses = await asyncio.gather(*map(create, range(40)))
    assert sorted(statuses) == [201] * 15 + [403] * 25
    assert (await other.get(f"{quotas}/q")).json["status"]["used"] == {"count/configmaps": "15"}
    assert len((await one.get(CONFIGMAPS)).json["items"]) == 15


async def test_writes_that_the_store_refuses(
    harnesses: Harnesses, quiet_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They had no effect, so the client may repeat one that fails for now; one that is too large fails as upstream."""
    one, _ = harnesses
    await make(one, "c")
    refusal: StoreError

    async def refuse(ops: Sequence[Op], cause: bytes | NotedCause = b"") -> NoReturn:
        raise refusal

    monkeypatch.setattr(view(one), "txn", refuse)
    refusal = NotProcessed("etcd accepts no writes")
    reply = await one.patch(f"{CONFIGMAPS}/c", {"data": {"x": "1"}})
    assert (reply.status, reply.json["reason"]) == (503, "ServiceUnavailable")
    assert (reply.json["message"], reply.header("Retry-After")) == ("etcd accepts no writes", "1")
    refusal = TooLarge("etcdserver: request is too large")
    reply = await one.patch(f"{CONFIGMAPS}/c", {"data": {"x": "1"}})
    assert (reply.status, reply.json["message"]) == (500, "etcdserver: request is too large")
    assert "reason" not in reply.json
    quiet_log.clear()
