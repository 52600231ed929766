"""One of several servers maintains the objects of the cluster, under election and fenced."""

from __future__ import annotations

import asyncio

import pytest
from lagging_store import LaggingStore, Medium
from server_harness import ServerHarness, settle
from several_servers import CIDRS, UPKEEP_LEASE, MaintainedServer, advance, causes, events, server_pair

from setpoint.apiserver.bootstrap import bootstrap
from setpoint.apiserver.internal_writes import ensure
from setpoint.apiserver.transactions import fenced_by
from setpoint.apiserver.upkeep.election import Election
from setpoint.apiserver.upkeep.leases import LeaseObserver
from setpoint.apiserver.upkeep.running import upkeep
from setpoint.apiserver.upkeep.server_objects import OwnAddress
from setpoint.meta.errors import Conflict

Pair = tuple[MaintainedServer, MaintainedServer]
EVENTS = "/api/v1/namespaces/default/events"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


async def make_event(server: MaintainedServer, name: str) -> None:
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    await server.make(EVENTS, {"metadata": {"name": name}, "involvedObject": about})


async def test_events_are_expired_by_one_server() -> None:
    async with server_pair(event_ttl=20.0) as pair:
        medium = pair[0].view.medium
        for number in range(30):
            await make_event(pair[number % 2], f"e{number}")
        await advance(19, *pair)
        attempts, revision = medium.attempts, medium.history.revision
        pair[1].view.hold()
        await advance(3, pair[0])
        await advance(3, pair[1])  # it still sees the Events, and leaves them alone
        pair[1].view.release()
        await advance(1, *pair)
        assert (await pair[1].get(EVENTS)).json["items"] == []
        deletions = [event for event in events(medium, "core/events/") if event.now is None]
        assert len(deletions) == 30
        expired = causes(medium, "expire")
        others = [event for event in medium.history.events("", revision) if not event.key.startswith("core/events/")]
        # The first attempt after a renewal of the Lease fails, because it names an earlier state of the Lease.
        assert len(expired) == 1
        assert medium.attempts - attempts <= 2 + len(others)


async def test_the_other_server_takes_over_after_a_crash() -> None:
    async with server_pair(event_ttl=20.0) as (one, other):
        leader = await other.leader()
        await make_event(other, "e")
        await advance(3, one, other)
        await one.kill()
        await advance(9, other)
        assert await other.leader() == leader
        await advance(8, other)
        assert await other.leader() != leader
        await advance(2, other)
        assert (await other.get(EVENTS)).json["items"] == []


async def test_the_other_server_takes_over_at_once_after_a_stop(pair: Pair) -> None:
    one, other = pair
    leader = await other.leader()
    await one.stop()
    await other.clock.advance(0)
    assert await other.leader() not in ("", leader)
    # It works: a system namespace is created again.
    await other.delete("/api/v1/namespaces/kube-public")
    await other.put("/api/v1/namespaces/kube-public/finalize", {"metadata": {"name": "kube-public"}, "spec": {}})
    await other.clock.advance(0)
    assert (await other.get("/api/v1/namespaces/kube-public")).status == 200


async def test_a_restarted_server_resumes_at_once() -> None:
    medium = Medium()
    one = await MaintainedServer.start(medium)
    first = (await one.get(UPKEEP_LEASE)).json["spec"]
    await one.kill()
    again = await MaintainedServer.start(medium)
    second = (await again.get(UPKEEP_LEASE)).json["spec"]
    assert second["holderIdentity"] == first["holderIdentity"]
    assert second["leaseTransitions"] == first["leaseTransitions"] + 1, "a new term"
    await again.stop()


async def test_a_suspended_leader_cannot_write(pair: Pair) -> None:
    """It does not know yet that it lost its Lease, and its own clock says that there is time."""
    one, other = pair
    await advance(3, *pair)
    election = Election(one.api.resources, LeaseObserver(one.api.resources), await one.leader())
    election.leading, election._renewed = True, one.clock.monotonic()
    election._transitions = (await one.get(UPKEEP_LEASE)).json["spec"]["leaseTransitions"]

    async def write(name: str) -> None:
        with fenced_by(election):
            await ensure(one.api.resources, "", "configmaps", {"metadata": {"name": name, "namespace": "default"}})

    await write("before")
    await advance(18, other)
    with pytest.raises(Conflict, match="no longer holds the lease kube-system/setpoint-upkeep"):
        await write("after")
    names = [
        item["metadata"]["name"] for item in (await other.get("/api/v1/namespaces/default/configmaps")).json["items"]
    ]
    assert "before" in names
    assert "after" not in names


async def test_a_suspended_candidate_does_not_take_over(pair: Pair) -> None:
    """It has seen no renewal for a minute, because it has not looked."""
    one, other = pair
    await advance(3, *pair)
    before = (await one.get(UPKEEP_LEASE)).json["spec"]
    other.view.hold()
    await advance(60, one)
    assert await one.endpoints() == ["192.0.2.1:6443"]
    other.clock.jump(60)
    other.view.release()
    await advance(1, *pair)
    after = (await one.get(UPKEEP_LEASE)).json["spec"]
    assert {**after, "renewTime": ""} == {**before, "renewTime": ""}
    assert await other.endpoints() == ["192.0.2.1:6443", "192.0.2.2:6443"]


async def test_a_lease_that_was_changed_by_hand_begins_a_new_term() -> None:
    one = await MaintainedServer.start(Medium())
    await advance(3, one)
    before = (await one.get(UPKEEP_LEASE)).json["spec"]
    assert (await one.patch(UPKEEP_LEASE, {"spec": {"holderIdentity": None}})).status == 200
    await advance(5, one)
    after = (await one.get(UPKEEP_LEASE)).json["spec"]
    assert after["holderIdentity"] == before["holderIdentity"]
    assert after["leaseTransitions"] == before["leaseTransitions"] + 1
    assert one.api.parts.definitions._leads
    await one.stop()


async def test_a_leader_that_cannot_renew_stops_before_another_begins(pair: Pair) -> None:
    one, other = pair
    await advance(3, *pair)
    one.view.hold()  # its transactions do not return any more
    leading = []

    async def leads(server: MaintainedServer) -> bool:
        return bool(server.api.parts.definitions._leads)

    for _ in range(40):
        await advance(0.5, *pair)
        leading.append((await leads(one), await leads(other)))
    one.view.release()
    await advance(3, *pair)
    assert (True, True) not in leading
    assert leading[0] == (True, False)
    assert leading[-1] == (False, True)


async def test_a_candidate_is_ready(pair: Pair) -> None:
    """What the other server maintains is nothing to wait for."""
    server = await MaintainedServer.open(LaggingStore(pair[0].view.medium), full=True)
    hooks = server.api.resources.post_start
    hooks._unfinished = {"start-system-namespaces-controller", "start-service-ip-repair-controllers"}
    hooks.finished.clear()
    async with upkeep(server.api, pair[1].own._replace(port=7443), "host", 3600):
        await server.clock.advance(0)
        assert hooks.finished.is_set()
    await server.close()


async def test_there_is_no_election_where_nobody_else_can_write() -> None:
    harness = await ServerHarness.open(full=True)
    async with upkeep(harness.api, OwnAddress("192.0.2.1", 6443, CIDRS), "host", 3600):
        await harness.clock.advance(1)
        assert (await harness.get(UPKEEP_LEASE)).status == 404
        assert (await harness.get("/api/v1/namespaces/default/endpoints/kubernetes")).status == 200
    await harness.close()


# -- bootstrap --------------------------------------------------------------------------------------------------------


async def test_servers_that_start_together_create_each_object_once() -> None:
    alone = await ServerHarness.open(LaggingStore(Medium()))
    await bootstrap(alone.api.resources)
    medium = Medium()
    servers = [await ServerHarness.open(LaggingStore(medium)) for _ in range(2)]
    await asyncio.gather(*(bootstrap(server.api.resources) for server in servers))
    assert isinstance(alone.store, LaggingStore)
    expected = sorted(event.key for event in events(alone.store.medium))
    made = [event.key for event in events(medium) if "servicecidrs" not in event.key]
    assert sorted(set(made)) == sorted(key for key in set(expected) if "servicecidrs" not in key)
    assert len(made) == len(set(made)), "nothing is written twice"
    for server in (alone, *servers):
        await server.close()


async def test_a_default_binding_with_another_role_is_replaced_in_one_transaction() -> None:
    medium = Medium()
    server = await ServerHarness.open(LaggingStore(medium), full=True)
    path = f"{BINDINGS}/system:basic-user"
    right = (await server.get(path)).json
    await server.delete(path)
    wrong = {**right, "roleRef": {**right["roleRef"], "name": "view"}}
    wrong["metadata"] = {"name": "system:basic-user"}
    made = await server.make(BINDINGS, wrong)
    watcher = await server.watch(f"{BINDINGS}?resourceVersion={made['metadata']['resourceVersion']}")
    before = medium.history.revision
    await bootstrap(server.api.resources)
    await settle(50)
    replaced = (await server.get(path)).json
    assert replaced["roleRef"] == right["roleRef"]
    assert replaced["metadata"]["uid"] != made["metadata"]["uid"]
    assert [event.key for event in medium.history.events("", before)] == [
        "rbac.authorization.k8s.io/clusterrolebindings/system:basic-user"
    ]
    assert watcher.summary == [("MODIFIED", "system:basic-user")]
    await server.close()
