"""Who is served, who waits, who is refused: through the front door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from front_door import ADMIN_TOKEN, LIMITED_TOKEN, MERGE_PATCH, FrontDoor, YieldingStore, settle

from setpoint.apiserver.fairness.classification import Classifier
from setpoint.apiserver.fairness.fairness import Fairness
from setpoint.apiserver.fairness.levels import Level
from setpoint.apiserver.filters.authorize import Access
from setpoint.cluster.config import NOWHERE, ApiServerConfig, ConfigError
from setpoint.kinds.bootstrap.flowcontrol import flow_schemas
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
        "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 100, "rules": rules,
        "distinguisherMethod": {"type": "ByUser"},
    }  # fmt: skip
    return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def slow_door() -> AsyncIterator[FrontDoor]:
    """Writes take several turns of the loop; `limited` may write ConfigMaps."""
    door = await FrontDoor.open(YieldingStore(), full=True)
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await door.make(f"{rbac}/clusterroles", {"metadata": {"name": "maps"}, "rules": [_ALLOW]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"}
    subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "limited"}]
    await door.make(
        f"{rbac}/clusterrolebindings", {"metadata": {"name": "maps"}, "roleRef": reference, "subjects": subjects}
    )
    yield door
    await door.close()


def _fairness(door: FrontDoor) -> Fairness:
    assert door.api.fairness is not None
    return door.api.fairness


async def _squeeze(door: FrontDoor, **response: Any) -> None:
    """`limited` is on a level that has one seat."""
    await door.make(
        f"{_FLOW}/prioritylevelconfigurations",
        _level("narrow", nominalConcurrencyShares=0, borrowingLimitPercent=300, limitResponse=response),
    )
    await door.make(f"{_FLOW}/flowschemas", _schema("narrow", "narrow", "limited"))
    await door.get(_MAPS, token=LIMITED_TOKEN)
    _fairness(door).levels["narrow"].queues.limit = 1


def _writes(door: FrontDoor, count: int) -> list[asyncio.Task[Any]]:
    return [
        asyncio.ensure_future(door.post(_MAPS, {"metadata": {"name": f"map-{number}"}}, token=LIMITED_TOKEN))
        for number in range(count)
    ]


async def test_without_a_seat_one_is_told_to_come_again(slow_door: FrontDoor) -> None:
    await _squeeze(slow_door, type="Reject")
    replies = [await task for task in _writes(slow_door, 3)]
    assert sorted(reply.status for reply in replies) == [201, 429, 429]
    refused = next(reply for reply in replies if reply.status == 429)
    assert refused.body == b"Too many requests, please try again later.\n"
    assert refused.header("Content-Type") == "text/plain; charset=utf-8"
    assert refused.header("Retry-After") == "1"
    level = (await slow_door.get(f"{_FLOW}/prioritylevelconfigurations/narrow")).json
    assert refused.header("X-Kubernetes-Pf-Prioritylevel-Uid") == level["metadata"]["uid"]
    assert _fairness(slow_door).levels["narrow"].rejected == {("narrow", "concurrency-limit"): 2}
    text = (await slow_door.get("/metrics")).body.decode()
    assert (
        'apiserver_flowcontrol_rejected_requests_total{priority_level="narrow",flow_schema="narrow",'
        'reason="concurrency-limit"} 2' in text
    )


async def test_who_waits_is_served_in_turn_and_too_many_are_refused(slow_door: FrontDoor) -> None:
    await _squeeze(slow_door, type="Queue", queuing={"queues": 2, "handSize": 1, "queueLengthLimit": 3})
    replies = [await task for task in _writes(slow_door, 6)]
    assert [reply.status for reply in replies] == [201, 201, 201, 201, 429, 429]
    level = _fairness(slow_door).levels["narrow"]
    assert (level.executing, level.queues.in_use, level.queues.waiting) == (0, 0, 0)
    assert level.rejected == {("narrow", "queue-full"): 2}


async def test_nobody_waits_for_ever(slow_door: FrontDoor) -> None:
    await _squeeze(slow_door, type="Queue", queuing={"queues": 2, "handSize": 1, "queueLengthLimit": 3})
    level = _fairness(slow_door).levels["narrow"]
    level.queues.in_use += 1  # somebody holds the only seat
    running = asyncio.ensure_future(_fairness(slow_door).run())
    try:
        waiting, given_up = _writes(slow_door, 2)
        await settle()
        given_up.cancel()
        await settle()
        assert level.queues.waiting == 1
        await slow_door.clock.advance(14.0)
        assert not waiting.done()
        await slow_door.clock.advance(6.0)
        assert (await waiting).status == 429
    finally:
        running.cancel()
    assert level.rejected == {("narrow", "time-out"): 1}
    assert level.queues.waiting == 0


async def test_who_goes_away_just_when_he_is_refused_leaves_no_seat_that_he_never_had(slow_door: FrontDoor) -> None:
    await _squeeze(slow_door, type="Queue", queuing={"queues": 2, "handSize": 1, "queueLengthLimit": 3})
    fairness = _fairness(slow_door)
    queues = fairness.levels["narrow"].queues
    queues.in_use += 1  # somebody holds the only seat
    (waiting,) = _writes(slow_door, 1)
    await settle()
    assert queues.waiting == 1 and len(fairness.under_way) == 1
    fairness._tire(slow_door.clock.monotonic() + 60)
    waiting.cancel()
    await settle()
    assert (queues.waiting, queues.in_use, len(fairness.under_way)) == (0, 1, 0)


async def test_the_others_do_not_notice(slow_door: FrontDoor) -> None:
    await _squeeze(slow_door, type="Queue", queuing={"queues": 2, "handSize": 1, "queueLengthLimit": 50})
    level = _fairness(slow_door).levels["narrow"]
    level.queues.in_use += 1
    waiting = _writes(slow_door, 5)
    await settle()
    assert level.queues.waiting == 5
    assert (await slow_door.get(_MAPS)).status == 200
    level.queues.limit = 2
    assert (await slow_door.post(_MAPS, {"metadata": {"name": "mine"}})).status == 201
    _fairness(slow_door)._call_soon()
    assert [(await task).status for task in waiting] == [201] * 5


async def test_whoever_comes_late_in_a_long_turn_of_the_loop_waits_for_the_next(slow_door: FrontDoor) -> None:
    """A thousand at once are not all answered before the next one is."""
    answered: list[str] = []

    async def ask(who: str, token: str) -> None:
        slow_door.clock._now += 0.001  # as long as it takes to look at a request
        assert (await slow_door.get(_MAPS, token=token)).status == 200
        answered.append(who)

    many = [asyncio.ensure_future(ask("limited", LIMITED_TOKEN)) for _ in range(100)]
    one = asyncio.ensure_future(ask("admin", ADMIN_TOKEN))
    await asyncio.gather(one, *many)
    place = answered.index("admin")
    assert place < 20, place
    assert _fairness(slow_door).levels["global-default"].dispatched["global-default"] == [100]


async def test_a_level_that_is_deleted_lets_everybody_in(slow_door: FrontDoor) -> None:
    await _squeeze(slow_door, type="Queue", queuing={"queues": 2, "handSize": 1, "queueLengthLimit": 50})
    _fairness(slow_door).levels["narrow"].queues.in_use += 1
    waiting = _writes(slow_door, 3)
    await settle()
    assert (await slow_door.delete(f"{_FLOW}/prioritylevelconfigurations/narrow")).status == 200
    reply = await slow_door.get(_MAPS, token=LIMITED_TOKEN)
    assert reply.status == 200
    schema = (await slow_door.get(f"{_FLOW}/flowschemas/global-default")).json
    assert reply.header("X-Kubernetes-Pf-Flowschema-Uid") == schema["metadata"]["uid"]
    assert [(await task).status for task in waiting] == [201] * 3


async def test_other_shares_count_at_once(slow_door: FrontDoor) -> None:
    await slow_door.make(
        f"{_FLOW}/prioritylevelconfigurations",
        _level("wide", nominalConcurrencyShares=100, limitResponse={"type": "Reject"}),
    )
    await slow_door.get(_MAPS, token=LIMITED_TOKEN)
    level = _fairness(slow_door).levels["wide"]
    assert level.queues.limit >= level.nominal > 100
    body = {"spec": {"limited": {"nominalConcurrencyShares": 1000}}}
    path = f"{_FLOW}/prioritylevelconfigurations/wide"
    assert (await slow_door.patch(path, body, MERGE_PATCH)).status == 200
    await slow_door.get(_MAPS, token=LIMITED_TOKEN)
    assert level.queues.limit >= level.nominal > 400


def test_somebody_in_no_group_is_somebody_too() -> None:
    levels = {name: Level(name, 0.0) for name in ("exempt", "catch-all")}
    kept = [schema for schema in flow_schemas() if schema["metadata"]["name"] in levels]
    flow = Classifier(kept, levels, {}).flow(Access(UserInfo("nobody"), "get", resource="pods"))
    assert (flow.schema, flow.level.name) == ("catch-all", "catch-all")


async def test_a_large_list_takes_more_than_one_seat(slow_door: FrontDoor) -> None:
    for number in range(30):
        await slow_door.make(_MAPS, {"metadata": {"name": f"large-{number}"}, "data": {"text": "x" * 20_000}})
    fairness, seen = _fairness(slow_door), []
    enter = fairness.enter

    def watched(*given: Any, **named: Any) -> Any:
        seen.append(given[4])
        return enter(*given, **named)

    fairness.enter = watched  # type: ignore[method-assign]
    await slow_door.get(_MAPS, token=LIMITED_TOKEN)
    await slow_door.get(f"{_MAPS}?limit=1", token=LIMITED_TOKEN)
    await slow_door.get(f"{_MAPS}?fieldSelector=metadata.name%3Dlarge-1", token=LIMITED_TOKEN)
    await slow_door.get(f"{_MAPS}/large-1", token=LIMITED_TOKEN)
    assert seen == [7, 1, 1, 1]


async def test_without_it_two_numbers_are_all() -> None:
    door = await FrontDoor.open(enable_priority_and_fairness=False, max_requests_inflight=1)
    assert door.api.fairness is None
    door.api.in_flight.now[True] = door.api.in_flight.limits[True]
    try:
        reply = await door.get("/api/v1/namespaces/default")
    finally:
        door.api.in_flight.now[True] = 0
    assert (reply.status, reply.header("Retry-After")) == (429, "1")
    assert (await door.get("/api/v1/namespaces/default")).status == 200
    await door.close()
    with pytest.raises(ConfigError, match="something positive"):
        ApiServerConfig(NOWHERE, max_requests_inflight=0, max_mutating_requests_inflight=0).check()
