"""Execution, queuing and rejection of requests, through the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from server_harness import ADMIN_TOKEN, LIMITED_TOKEN, MERGE_PATCH, ServerHarness, YieldingStore, settle

from setpoint.apiserver.fairness.fairness import Classifier, Fairness
from setpoint.apiserver.fairness.levels import Level
from setpoint.apiserver.filters.authorize import Access
from setpoint.cluster.config import NO_DATA_DIR, ApiServerConfig, ConfigError
from setpoint.kinds.bootstrap.initial_objects import flow_schemas
from setpoint.kinds.strategy import UserInfo

_FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
_MAPS = "/api/v1/namespaces/default/configmaps"
_ALLOW = {"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"]}


def _level(name: str, **limited: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"type": "Limited", "limited": limited}}


def _schema(name: str, level: str, user: str) -> dict[str, Any]:
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    rules = [{"subjects": [{"kind": "User", "user": {"name": user}}], "resourceRules": [everything]}]
    spec = {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": 100,
        "rules": rules,
        "distinguisherMethod": {"type": "ByUser"},
    }
    return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def slow_harness() -> AsyncIterator[ServerHarness]:
    """Writes take several iterations of the event loop; `limited` may write ConfigMaps."""
    harness = await ServerHarness.open(YieldingStore(), full=True)
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await harness.make(f"{rbac}/clusterroles", {"metadata": {"name": "maps"}, "rules": [_ALLOW]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"}
    subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "limited"}]
    await harness.make(
        f"{rbac}/clusterrolebindings", {"metadata": {"name": "maps"}, "roleRef": reference, "subjects": subjects}
    )
    yield harness
    await harness.close()


def _fairness(harness: ServerHarness) -> Fairness:
    assert harness.api.parts.fairness is not None
    return harness.api.parts.fairness


async def _squeeze(harness: ServerHarness, **response: Any) -> None:
    """Put `limited` on a level that has one seat."""
    await harness.make(
        f"{_FLOW}/prioritylevelconfigurations",
        _level("narrow", nominalConcurrencyShares=0, borrowingLimitPercent=300, limitResponse=response),
    )
    await harness.make(f"{_FLOW}/flowschemas", _schema("narrow", "narrow", "limited"))
    await harness.get(_MAPS, token=LIMITED_TOKEN)
    _fairness(harness).levels["narrow"].queues.limit = 1


def _writes(harness: ServerHarness, count: int) -> list[asyncio.Task[Any]]:
    return [
        asyncio.ensure_future(harness.post(_MAPS, {"metadata": {"name": f"map-{number}"}}, token=LIMITED_TOKEN))
        for number in range(count)
    ]


async def test_without_a_seat_a_request_is_rejected(slow_harness: ServerHarness) -> None:
    await _squeeze(slow_harness, type="Reject")
    replies = [await task for task in _writes(slow_harness, 3)]
    assert sorted(reply.status for reply in replies) == [201, 429, 429]
    refused = next(reply for reply in replies if reply.status == 429)
    assert refused.body == b"Too many requests, please try again later.\n"
    assert refused.header("Content-Type") == "text/plain; charset=utf-8"
    assert refused.header("Retry-After") == "1"
    level = (await slow_harness.get(f"{_FLOW}/prioritylevelconfigurations/narrow")).json
    assert refused.header("X-Kubernetes-Pf-Prioritylevel-Uid") == level["metadata"]["uid"]
    assert _fairness(slow_harness).levels["narrow"].rejected == {("narrow", "concurrency-limit"): 2}
    text = (await slow_harness.get("/metrics")).body.decode()
    assert (
        'apiserver_flowcontrol_rejected_requests_total{priority_level="narrow",flow_schema="narrow",'
        'reason="concurrency-limit"} 2' in text
    )


async def test_queued_requests_are_served_in_order_and_a_full_queue_rejects(slow_harness: ServerHarness) -> None:
    await _squeeze(slow_harness, type="Queue", queuing={"queues": 2, "handSize": 1, "queueLengthLimit": 3})
    replies = [await task for task in _writes(slow_harness, 6)]
    assert [reply.status for reply in replies] == [201, 201, 201, 201, 429, 429]
    level = _fairness(slow_harness).levels["narrow"]
    assert (level.executing, level.queues.in_use, level.queues.waiting) == (0, 0, 0)
    assert level.rejected == {("narrow", "queue-full"): 2}


async def test_queued_requests_time_out(slow_harness: ServerHarness) -> None:
    await _squeeze(slow_harness, type="Queue", queuing={"queues": 2, "handSize": 1, "queueLengthLimit": 3})
    level = _fairness(slow_harness).levels["narrow"]
    level.queues.in_use += 1  # the only seat is in use
    running = asyncio.ensure_future(_fairness(slow_harness).run())
    try:
        waiting, given_up = _writes(slow_harness, 2)
        await settle()
        given_up.cancel()
        await settle()
        assert level.queues.waiting == 1
        await slow_harness.clock.advance(14.0)
        assert not waiting.done()
        await slow_harness.clock.advance(6.0)
        assert (await waiting).status == 429
    finally:
        running.cancel()
    assert level.rejected == {("narrow", "time-out"): 1}
    assert level.queues.waiting == 0


async def test_a_client_that_disconnects_at_rejection_releases_no_seat(
    slow_harness: ServerHarness,
) -> None:
    await _squeeze(slow_harness, type="Queue", queuing={"queues": 2, "handSize": 1, "queueLengthLimit": 3})
    fairness = _fairness(slow_harness)
    queues = fairness.levels["narrow"].queues
    queues.in_use += 1  # the only seat is in use
    (waiting,) = _writes(slow_harness, 1)
    await settle()
    assert queues.waiting == 1 and len(fairness.requests) == 1
    fairness._reject_expired(slow_harness.clock.monotonic() + 60)
    waiting.cancel()
    await settle()
    assert (queues.waiting, queues.in_use, len(fairness.requests)) == (0, 1, 0)


async def test_other_levels_are_not_affected(slow_harness: ServerHarness) -> None:
    await _squeeze(slow_harness, type="Queue", queuing={"queues": 2, "handSize": 1, "queueLengthLimit": 50})
    level = _fairness(slow_harness).levels["narrow"]
    level.queues.in_use += 1
    waiting = _writes(slow_harness, 5)
    await settle()
    assert level.queues.waiting == 5
    assert (await slow_harness.get(_MAPS)).status == 200
    level.queues.limit = 2
    assert (await slow_harness.post(_MAPS, {"metadata": {"name": "mine"}})).status == 201
    _fairness(slow_harness)._dispatch_soon()
    assert [(await task).status for task in waiting] == [201] * 5


async def test_requests_late_in_a_loop_iteration_are_queued(slow_harness: ServerHarness) -> None:
    """A thousand concurrent requests are not all answered before another client's."""
    answered: list[str] = []

    async def ask(who: str, token: str) -> None:
        slow_harness.clock._now += 0.001  # as long as a request takes
        assert (await slow_harness.get(_MAPS, token=token)).status == 200
        answered.append(who)

    many = [asyncio.ensure_future(ask("limited", LIMITED_TOKEN)) for _ in range(100)]
    one = asyncio.ensure_future(ask("admin", ADMIN_TOKEN))
    await asyncio.gather(one, *many)
    place = answered.index("admin")
    assert place < 20, place
    assert _fairness(slow_harness).levels["global-default"].dispatched["global-default"] == [100]


async def test_queued_requests_of_a_deleted_level_are_executed(slow_harness: ServerHarness) -> None:
    await _squeeze(slow_harness, type="Queue", queuing={"queues": 2, "handSize": 1, "queueLengthLimit": 50})
    _fairness(slow_harness).levels["narrow"].queues.in_use += 1
    waiting = _writes(slow_harness, 3)
    await settle()
    assert (await slow_harness.delete(f"{_FLOW}/prioritylevelconfigurations/narrow")).status == 200
    reply = await slow_harness.get(_MAPS, token=LIMITED_TOKEN)
    assert reply.status == 200
    schema = (await slow_harness.get(f"{_FLOW}/flowschemas/global-default")).json
    assert reply.header("X-Kubernetes-Pf-Flowschema-Uid") == schema["metadata"]["uid"]
    assert [(await task).status for task in waiting] == [201] * 3


async def test_changed_shares_take_effect_at_once(slow_harness: ServerHarness) -> None:
    await slow_harness.make(
        f"{_FLOW}/prioritylevelconfigurations",
        _level("wide", nominalConcurrencyShares=100, limitResponse={"type": "Reject"}),
    )
    await slow_harness.get(_MAPS, token=LIMITED_TOKEN)
    level = _fairness(slow_harness).levels["wide"]
    assert level.queues.limit >= level.nominal > 100
    body = {"spec": {"limited": {"nominalConcurrencyShares": 1000}}}
    path = f"{_FLOW}/prioritylevelconfigurations/wide"
    assert (await slow_harness.patch(path, body, MERGE_PATCH)).status == 200
    await slow_harness.get(_MAPS, token=LIMITED_TOKEN)
    assert level.queues.limit >= level.nominal > 400


def test_users_without_groups_are_classified() -> None:
    levels = {name: Level(name, 0.0) for name in ("exempt", "catch-all")}
    kept = [schema for schema in flow_schemas() if schema["metadata"]["name"] in levels]
    flow = Classifier(kept, levels, {}).flow(Access(UserInfo("nobody"), "get", resource="pods"))
    assert (flow.schema, flow.level.name) == ("catch-all", "catch-all")


def test_nodes_are_classified_once_and_each_has_a_flow_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = flow_schemas()
    names = {schema["spec"]["priorityLevelConfiguration"]["name"] for schema in schemas}
    classifier = Classifier(schemas, {name: Level(name, 0.0) for name in names}, {})
    classified: list[Access] = []
    classify = classifier._classify

    def recorded(access: Access) -> Any:
        classified.append(access)
        return classify(access)

    monkeypatch.setattr(classifier, "_classify", recorded)
    groups = ("system:nodes", "system:authenticated")
    renewals = [
        Access(
            UserInfo(f"system:node:{n}", groups=groups),
            "update",
            "coordination.k8s.io",
            resource="leases",
            namespace="x",
        )
        for n in range(6_000)
    ]
    flows = [classifier.flow(access) for access in renewals]
    assert len(classified) == 1
    assert len({flow.hash for flow in flows}) == len(flows)
    assert all(classifier.flow(access) is flow for access, flow in zip(renewals, flows))


def test_a_user_whom_a_rule_names_is_classified_by_name() -> None:
    levels = {name: Level(name, 0.0) for name in ("narrow", "catch-all")}
    kept = [schema for schema in flow_schemas() if schema["metadata"]["name"] in levels]
    classifier = Classifier([_schema("named", "narrow", "ann"), *kept], levels, {})
    for user, schema in (("ann", "named"), ("bob", "catch-all"), ("ann", "named")):
        assert classifier.flow(Access(UserInfo(user), "get", resource="pods")).schema == schema


async def test_a_large_list_needs_more_than_one_seat(slow_harness: ServerHarness) -> None:
    for number in range(30):
        await slow_harness.make(_MAPS, {"metadata": {"name": f"large-{number}"}, "data": {"text": "x" * 20_000}})
    fairness, seen = _fairness(slow_harness), []
    enter = fairness.admit

    def watched(*given: Any, **named: Any) -> Any:
        seen.append(given[4])
        return enter(*given, **named)

    fairness.admit = watched  # type: ignore[method-assign]
    await slow_harness.get(_MAPS, token=LIMITED_TOKEN)
    await slow_harness.get(f"{_MAPS}?limit=1", token=LIMITED_TOKEN)
    await slow_harness.get(f"{_MAPS}?fieldSelector=metadata.name%3Dlarge-1", token=LIMITED_TOKEN)
    await slow_harness.get(f"{_MAPS}/large-1", token=LIMITED_TOKEN)
    assert seen == [7, 1, 1, 1]


async def test_without_fairness_the_in_flight_limits_apply() -> None:
    harness = await ServerHarness.open(enable_priority_and_fairness=False, max_requests_inflight=1)
    assert harness.api.parts.fairness is None
    harness.api.parts.in_flight.now[True] = harness.api.parts.in_flight.limits[True]
    try:
        reply = await harness.get("/api/v1/namespaces/default")
    finally:
        harness.api.parts.in_flight.now[True] = 0
    assert (reply.status, reply.header("Retry-After")) == (429, "1")
    assert (await harness.get("/api/v1/namespaces/default")).status == 200
    await harness.close()
    with pytest.raises(ConfigError, match="must not both be 0"):
        ApiServerConfig(NO_DATA_DIR, max_requests_inflight=0, max_mutating_requests_inflight=0).check()
