"""Many writes in one call: each is answered, refused, audited, counted and recorded as if it were sent alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from audit_harness import audit
from interleaved_store import InterleavedStore
from lagging_store import LaggingStore
from server_harness import ADMIN_TOKEN, JSON, LIMITED_TOKEN, MERGE_PATCH, ServerHarness, settle

from setpoint import batching
from setpoint.apiserver.bulk import MAX_WRITES
from setpoint.apiserver.disturbance import Disturbance
from setpoint.meta.cause import CAUSE_HEADER, decode
from setpoint.store.interface import Committed, Store, Transaction
from setpoint.store.memory import MemoryStore
from setpoint.wire.message import Peer, Request, Response

MAPS = "/api/v1/namespaces/default/configmaps"
EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture(autouse=True)
def enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine does not divide the calls of these tests."""
    monkeypatch.setattr(batching, "_MAX_SECONDS", 3600.0)


Sent = tuple[str, str, Any, str, str]
"""Method, path, body, content type and token of a request."""


def a_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def create(name: str, path: str = MAPS, token: str = ADMIN_TOKEN) -> Sent:
    return ("POST", path, a_map(name), JSON, token)


def requests_of(sent: Sequence[Sent]) -> list[Request]:
    """Return the requests; those with one token and content type are from one client, with the same headers."""
    clients: dict[tuple[str, str], tuple[dict[str, str], Peer]] = {}
    found = []
    for number, (method, path, body, content_type, token) in enumerate(sent):
        who = (content_type, token)
        if who not in clients:
            headers = {"user-agent": "tests/1.0", "content-type": content_type}
            if token:
                headers["authorization"] = f"Bearer {token}"
            clients[who] = (headers, Peer("127.0.0.1", 1))
        headers, peer = clients[who]
        if number % 3 == 2:
            headers = {**headers, CAUSE_HEADER: f"why=reason {number}"}  # a client of its own
        path, _, query = path.partition("?")
        data = b"" if body is None else orjson.dumps(body)
        found.append(Request(method, path, query, headers, data, peer))
    return found


async def together(harness: ServerHarness, sent: Sequence[Sent]) -> list[Response]:
    answers = await harness.api.handle_all(requests_of(sent))
    assert all(isinstance(answer, Response) for answer in answers), answers
    return answers  # type: ignore[return-value]


async def one_by_one(harness: ServerHarness, sent: Sequence[Sent]) -> list[Response]:
    answers = [await harness.api.handle(Request(**vars_of(request))) for request in requests_of(sent)]
    assert all(isinstance(answer, Response) for answer in answers), answers
    return answers  # type: ignore[return-value]


def vars_of(request: Request) -> dict[str, Any]:
    return {
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "headers": dict(request.headers),
        "body": request.body,
        "peer": request.peer,
    }


MIXED: list[Sent] = [
    create("one"),
    create("existing"),
    create("Not_A_Name"),
    create("two"),
    ("POST", MAPS, {"kind": "ConfigMap", "metadata": {"name": "typed"}, "data": {"a": 1}}, JSON, ADMIN_TOKEN),
    create("elsewhere", "/api/v1/namespaces/absent/configmaps"),
    create("forbidden", token=LIMITED_TOKEN),
    create("unknown", token="wrong"),
    create("anonymous", token=""),
    ("PUT", f"{MAPS}/existing", a_map("existing", a="1"), JSON, ADMIN_TOKEN),
    ("PUT", f"{MAPS}/other", a_map("existing"), JSON, ADMIN_TOKEN),
    ("PATCH", f"{MAPS}/patched", {"data": {"b": "2"}}, MERGE_PATCH, ADMIN_TOKEN),
    ("PATCH", f"{MAPS}/absent", {"data": {"b": "2"}}, MERGE_PATCH, ADMIN_TOKEN),
    ("DELETE", f"{MAPS}/doomed", None, JSON, ADMIN_TOKEN),
    ("DELETE", f"{MAPS}/doomed-too", None, JSON, LIMITED_TOKEN),
    ("POST", f"{MAPS}?dryRun=All", a_map("dry"), JSON, ADMIN_TOKEN),
    ("POST", f"{MAPS}?fieldValidation=Strict", {**a_map("strict"), "more": 1}, JSON, ADMIN_TOKEN),
    ("POST", f"{MAPS}?timeout=never", a_map("timeout"), JSON, ADMIN_TOKEN),
    ("GET", f"{MAPS}/doomed-too", None, JSON, ADMIN_TOKEN),
    ("POST", "/api/v1/namespaces/default/nothings", a_map("x"), JSON, ADMIN_TOKEN),
    ("POST", "/%zz", a_map("x"), JSON, ADMIN_TOKEN),
    create("three"),
]


async def prepared(store: Store | None = None) -> ServerHarness:
    harness = await ServerHarness.open(store)
    for name in ("existing", "patched", "doomed", "doomed-too"):
        await harness.make(MAPS, a_map(name))
    return harness


def _comparable(obj: Any) -> Any:
    """Return an object without what differs between two servers that handle requests in another order."""
    if isinstance(obj, dict):
        return {name: _comparable(value) for name, value in obj.items() if name not in ("uid", "resourceVersion")}
    return [_comparable(each) for each in obj] if isinstance(obj, list) else obj


async def _state(harness: ServerHarness) -> Any:
    found = await harness.get(MAPS)
    return [_comparable(each) for each in found.json["items"]]


async def _causes(harness: ServerHarness, after: int) -> list[tuple[Any, ...]]:
    causes = [decode(each.cause) for each in await harness.store.causes(after)]
    return sorted((each.verb, each.user, each.agent, each.claim.reason) for each in causes)


def _audited(events: Sequence[dict[str, Any]]) -> list[str]:
    shown = [
        {
            "stage": event["stage"],
            "uri": event["requestURI"],
            "verb": event["verb"],
            "user": event["user"],
            "code": event.get("responseStatus", {}).get("code"),
            "object": _comparable(event.get("requestObject")),
            "answer": _comparable(event.get("responseObject")),
            "annotations": event.get("annotations"),
        }
        for event in events
    ]
    return sorted(orjson.dumps(each, option=orjson.OPT_SORT_KEYS).decode() for each in shown)


@pytest.mark.parametrize("kind", ["memory", "lagging"])
async def test_everything_is_as_if_each_were_sent_alone(kind: str) -> None:
    alone, joint = [await prepared(LaggingStore() if kind == "lagging" else None) for _ in range(2)]
    sinks = [audit(harness, {"level": "RequestResponse"}) for harness in (alone, joint)]
    before = [harness.store.revision for harness in (alone, joint)]
    expected, found = await one_by_one(alone, MIXED), await together(joint, MIXED)
    for sent, mine, others in zip(MIXED, found, expected, strict=True):
        assert (mine.status, _comparable(_json(mine))) == (others.status, _comparable(_json(others))), sent
        names = [sorted(name for name, _ in answer.headers) for answer in (mine, others)]
        assert names[0] == names[1], sent
    assert {answer.status for answer in found} == {200, 201, 400, 401, 403, 404, 409, 422}
    assert await _state(joint) == await _state(alone)
    causes = [await _causes(harness, after) for harness, after in zip((joint, alone), before[::-1], strict=True)]
    assert causes[0] == causes[1] and len(causes[0]) == 6
    assert joint.store.revision - before[1] == alone.store.revision - before[0] or kind == "lagging"
    events = [_audited(sink.drain()) for sink in sinks]
    assert events[0] == events[1] and len(events[0]) > 2 * (len(MIXED) - 2)
    refusals = [sorted(str(each) for each in harness.api.resources.refusals) for harness in (alone, joint)]
    assert refusals[0] == refusals[1] and refusals[0]
    metrics = [await _counted(harness) for harness in (alone, joint)]
    assert metrics[0] == metrics[1]
    for harness in (alone, joint):
        await harness.close()


def _json(answer: Response) -> Any:
    try:
        return orjson.loads(answer.whole_body)
    except orjson.JSONDecodeError:
        return answer.whole_body


async def _counted(harness: ServerHarness) -> list[str]:
    text = (await harness.get("/metrics")).body.decode()
    return [line for line in text.splitlines() if line.startswith("apiserver_request_total") and "configmaps" in line]


class CountingStore(MemoryStore):
    """Counts how transactions arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[int] = []

    async def txn_all(self, transactions: Sequence[Transaction]) -> Sequence[Committed | Exception]:
        self.together.append(len(transactions))
        return await super().txn_all(transactions)


async def test_the_store_gets_all_transactions_in_one_call_and_watches_each_event() -> None:
    store = CountingStore()
    harness = await ServerHarness.open(store)
    watcher = await harness.watch(MAPS)
    names = [f"map-{number}" for number in range(20)]
    answers = await together(harness, [create(name) for name in names])
    assert store.together == [20]
    versions = [orjson.loads(answer.whole_body)["metadata"]["resourceVersion"] for answer in answers]
    assert len(set(versions)) == 20
    await settle()
    assert sorted(watcher.summary) == sorted(("ADDED", name) for name in names)
    # A watch resumes after any of the revisions.
    resumed = await harness.watch(f"{MAPS}?resourceVersion={versions[9]}")
    assert len(resumed.events) == sum(int(each) > int(versions[9]) for each in versions)
    await harness.close()


async def test_a_write_that_loses_a_race_tries_again_on_the_new_object() -> None:
    store = InterleavedStore()
    harness = await prepared(store)

    async def change(_: object) -> None:
        assert (await harness.patch(f"{MAPS}/patched", {"data": {"other": "1"}})).status == 200

    store.selects = lambda ops: ops[0].key.endswith("/first")
    store.after_commit = change
    patch = ("PATCH", f"{MAPS}/patched", {"data": {"mine": "2"}}, MERGE_PATCH, ADMIN_TOKEN)
    answers = await together(harness, [create("first"), patch, create("last")])
    assert [answer.status for answer in answers] == [201, 200, 201]
    assert (await harness.get(f"{MAPS}/patched")).json["data"] == {"other": "1", "mine": "2"}
    await harness.close()


async def test_rights_to_single_objects(harness: ServerHarness) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"], "resourceNames": ["mine", "ours"]}
    await harness.make(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "limited"}],
    }
    await harness.make(f"{rbac}/rolebindings", binding)
    names = ("mine", "yours", "ours", "theirs")
    for name in names:
        await harness.make(MAPS, a_map(name))
    patches: list[Sent] = [
        ("PATCH", f"{MAPS}/{name}", {"data": {"a": "1"}}, MERGE_PATCH, LIMITED_TOKEN) for name in names
    ]
    assert [answer.status for answer in await together(harness, patches)] == [200, 403, 200, 403]


async def test_writes_of_one_object_follow_each_other(harness: ServerHarness) -> None:
    patches: list[Sent] = [
        ("PATCH", f"{MAPS}/m", {"data": {str(number): ""}}, MERGE_PATCH, ADMIN_TOKEN) for number in range(8)
    ]
    await harness.make(MAPS, a_map("m"))
    answers = await together(harness, patches)
    assert [answer.status for answer in answers] == [200] * 8
    assert len((await harness.get(f"{MAPS}/m")).json["data"]) == 8


async def test_a_call_takes_seats_for_its_width_and_returns_them(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fairness = harness.api.parts.fairness
    assert fairness is not None
    seats: list[int] = []
    admit = fairness.admit_at_once

    def observed(*args: Any) -> Any:
        found = admit(*args)
        seats.append(found.seats if found is not None else 0)
        return found

    monkeypatch.setattr(fairness, "admit_at_once", observed)
    await together(harness, [("POST", MAPS, a_map(f"m{number}"), JSON, ADMIN_TOKEN) for number in range(100)])
    assert 1 <= max(seats) <= 10
    assert not fairness.requests and all(level.queues.in_use == 0 for level in fairness.levels.values())
    assert harness.api.parts.in_flight.now == {True: 0, False: 0}


async def test_without_a_free_seat_each_write_is_queued_by_itself(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fairness = harness.api.parts.fairness
    assert fairness is not None
    monkeypatch.setattr(fairness, "admit_at_once", lambda *_: None)
    answers = await together(harness, [create("one"), create("two")])
    assert [answer.status for answer in answers] == [201, 201]
    assert not fairness.requests


async def test_injected_faults_concern_each_write(harness: ServerHarness) -> None:
    harness.api.disturbance = Disturbance(harness.clock, harness.api.resources.ids)
    harness.api.disturbance.refused_percent = 100
    answers = await together(harness, [create("one"), create("two")])
    assert [answer.status for answer in answers] == [429, 429]


async def test_a_cancelled_call_leaves_each_write_committed_or_not() -> None:
    harness = await ServerHarness.open(LaggingStore())
    for rounds in range(12):
        sent = [create(f"m-{rounds}-{number}") for number in range(10)]
        task = asyncio.ensure_future(together(harness, sent))
        await settle(rounds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await settle(50)
    fairness = harness.api.parts.fairness
    assert fairness is not None and not fairness.requests
    assert harness.api.parts.in_flight.now == {True: 0, False: 0}
    for item in (await harness.get(MAPS)).json["items"]:
        assert item["metadata"]["uid"] and item["metadata"]["resourceVersion"]
    await harness.close()


async def test_the_number_of_writes_is_bounded(harness: ServerHarness) -> None:
    with pytest.raises(ValueError, match=f"at most {MAX_WRITES}"):
        await harness.api.handle_all(requests_of([create("m")] * (MAX_WRITES + 1)))
