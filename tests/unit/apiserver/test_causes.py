"""The cause that the server records with every write, and the writes that it refuses."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ipc_replicas import ServedStore
from server_harness import APPLY, LIMITED_TOKEN, MERGE_PATCH, ServerHarness

from setpoint.apiserver.filters.authenticate import (
    AuthenticatorChain,
    InProcessAuthenticator,
    authenticated_peer,
    in_process_peer,
)
from setpoint.apiserver.refusals import Refusals
from setpoint.apiserver.request_causes import RequestCauses
from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport, SharingTransport
from setpoint.cluster.inprocess import InProcess
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.cause import CAUSE_HEADER, MAX_TRIGGERS, Claim, WriteCause, decode
from setpoint.store.interface import NotedCause, recorded_form
from setpoint.store.memory import MemoryStore
from setpoint.wire.message import Peer

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def a_map(name: str = "m") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


async def last(harness: ServerHarness) -> WriteCause:
    """Return the cause of the last write."""
    store = harness.store
    (cause,) = await store.causes(store.revision - 1)
    return decode(cause.cause)


async def test_the_verb_names_subresource_and_kind_of_request(harness: ServerHarness) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    deployment = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    pod = {"metadata": {"name": "p"}, "spec": template["spec"]}
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    requests: list[tuple[str, str, str, Any, str]] = [
        ("create", "POST", MAPS, a_map(), ""),
        ("patch", "PATCH", f"{MAPS}/m", {"data": {"a": "1"}}, MERGE_PATCH),
        ("update", "PUT", f"{MAPS}/m", {**a_map(), "data": {"a": "2"}}, ""),
        ("apply", "PATCH", f"{MAPS}/n?fieldManager=f", a_map("n"), APPLY),
        ("deletecollection", "DELETE", MAPS, None, ""),
        ("create", "POST", DEPLOYMENTS, deployment, ""),
        ("patch/scale", "PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 2}}, MERGE_PATCH),
        ("patch/status", "PATCH", f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 1}}, MERGE_PATCH),
        ("delete", "DELETE", f"{DEPLOYMENTS}/d", None, ""),
        ("create", "POST", PODS, pod, ""),
        ("bind", "POST", f"{PODS}/p/binding", binding, ""),
        ("evict", "POST", f"{PODS}/p/eviction", eviction, ""),
    ]
    for verb, method, path, body, content_type in requests:
        before = harness.store.revision
        how: dict[str, Any] = {"content_type": content_type} if content_type else {}
        reply = await harness.request(method, path, body, **how)
        assert reply.status < 300, (verb, reply.body)
        assert harness.store.revision > before, verb
        found = await last(harness)
        assert (found.verb, found.user, found.agent, found.claim) == (verb, "admin", "tests", Claim())
    # The last finalizer completes the deletion: its cause is that of the client that removed it.
    await harness.make(MAPS, {**a_map("kept"), "metadata": {"name": "kept", "finalizers": ["a.example.com/b"]}})
    await harness.delete(f"{MAPS}/kept")
    await harness.patch(f"{MAPS}/kept", {"metadata": {"finalizers": None}}, headers={CAUSE_HEADER: "why=done"})
    assert (await last(harness)).verb == "patch" and (await last(harness)).claim == Claim(reason="done")
    assert (await harness.get(f"{MAPS}/kept")).status == 404


async def test_user_claim_and_trace_are_recorded(harness: ServerHarness) -> None:
    claim = "r=web-controller/1f2e.7;k=default/web;t=3,5;why=2 Pods exist, 3 are wanted"
    headers = {
        "impersonate-user": "alice",
        "impersonate-group": "system:masters",
        "user-agent": "kubectl/v1.33.1 (linux/amd64)",
        CAUSE_HEADER: claim,
        "traceparent": TRACE,
    }
    reply = await harness.post(MAPS, a_map(), headers=headers)
    found = await last(harness)
    assert found == WriteCause(
        found.at,
        "create",
        "alice<admin",
        "kubectl",
        Claim("web-controller/1f2e.7", "default/web", (3, 5), 0, "", "2 Pods exist, 3 are wanted"),
        TRACE,
    )
    # For readers of the endpoint, each field has a name.
    revision = reply.json["metadata"]["resourceVersion"]
    (shown,) = (await harness.get(f"/setpoint/v1/causes?revisions={revision}")).json["causes"]
    assert shown == {
        "revision": int(revision),
        "user": "alice<admin",
        "agent": "kubectl",
        "verb": "create",
        "at": found.at,
        "reconcile": "web-controller/1f2e.7",
        "key": "default/web",
        "triggers": [3, 5],
        "reason": "2 Pods exist, 3 are wanted",
        "trace": TRACE,
    }


async def from_address(harness: ServerHarness, name: str, peer: Peer, **headers: str) -> WriteCause:
    """Return the cause of a write that comes from this peer."""
    harness.peer = peer
    assert (await harness.post(MAPS, a_map(name), headers=headers)).status == 201
    return await last(harness)


async def test_the_address_of_a_client_is_that_of_its_connection(harness: ServerHarness) -> None:
    remote = Peer("10.0.0.7", 4711, remote="10.0.0.7")
    forwarded = {"x-forwarded-for": "192.0.2.1", "x-real-ip": "192.0.2.2", "forwarded": "for=192.0.2.3"}
    found = await from_address(harness, "person", remote, **forwarded)
    assert found == WriteCause(found.at, "create", "admin", "tests", address="10.0.0.7")
    alice = {"impersonate-user": "alice", "impersonate-group": "system:masters"}
    found = await from_address(harness, "impersonated", remote, **alice)
    assert (found.user, found.address) == ("alice<admin", "10.0.0.7")
    # A foreign client that names its triggers and no reconcile.
    found = await from_address(harness, "operator", remote, **{CAUSE_HEADER: "t=3;k=default/web"})
    assert (found.claim.triggers, found.address) == ((3,), "10.0.0.7")
    found = await from_address(harness, "traced", remote, traceparent=TRACE)
    assert (found.trace, found.address) == (TRACE, "10.0.0.7")
    traced = harness.store.revision
    found = await from_address(harness, "local", Peer("127.0.0.1", 4711), **forwarded)
    assert not found.address
    # For readers of the endpoint, the address has a name.
    (shown,) = (await harness.get(f"/setpoint/v1/causes?revisions={traced}")).json["causes"]
    assert shown["address"] == "10.0.0.7"


async def test_the_record_of_a_reconcile_of_a_component_has_no_address(harness: ServerHarness) -> None:
    claim = {CAUSE_HEADER: "r=web-controller/1f2e.7;k=default/web;t=3"}
    remote = Peer("10.0.0.7", 1, remote="10.0.0.7")
    # Users that are no components keep the address, whatever they claim.
    found = await from_address(harness, "person", remote, **claim)
    assert (found.claim.reconcile, found.address) == ("web-controller/1f2e.7", "10.0.0.7")
    acting = {"impersonate-user": "system:serviceaccount:ops:robot", "impersonate-group": "system:masters"}
    found = await from_address(harness, "acting", remote, **claim, **acting)
    assert found.address == "10.0.0.7"
    robot = UserInfo("system:serviceaccount:ops:robot", groups=("system:masters",))
    harness.replace_parts(authenticator=AuthenticatorChain([InProcessAuthenticator()], False))
    for name, address in (("near", ""), ("far", "10.0.0.9")):
        found = await from_address(harness, name, authenticated_peer(robot, address, address), **claim)
        assert (found.claim.reconcile, found.address) == ("web-controller/1f2e.7", "")
    # One component that acts as another, as the fleet of simulated nodes does.
    found = await from_address(harness, "fleet", authenticated_peer(robot, "10.0.0.9", "10.0.0.9"), **claim, **acting)
    assert (found.user, found.address) == ("system:serviceaccount:ops:robot<system:serviceaccount:ops:robot", "")


async def test_requests_within_the_process_have_no_address(harness: ServerHarness) -> None:
    harness.replace_parts(authenticator=AuthenticatorChain([InProcessAuthenticator()], False))
    async with InProcess(harness.api.handle) as entrance:
        for number, transport in enumerate((SharingTransport, InProcessTransport)):
            peer = in_process_peer("alice", ("system:masters",))
            client = Client(transport(entrance.for_peer(peer)), harness.clock, user_agent="tests")
            await client.create({**a_map(f"m{number}"), "metadata": {"name": f"m{number}", "namespace": "default"}})
            found = await last(harness)
            assert found == WriteCause(found.at, "create", "alice", "tests")


async def test_the_address_is_known_to_every_replica_of_the_store() -> None:
    """Worker processes of one server are such replicas: each writes what it knows of its own clients."""
    served = ServedStore(MemoryStore())
    writer, reader = await served.replica(), await served.replica()
    harness = await ServerHarness.open(writer)
    found = await from_address(harness, "person", Peer("fd00::7", 1, remote="fd00::7"))
    assert found.address == "fd00::7"
    await reader.sync()
    (cause,) = await reader.causes(reader.revision - 1)
    assert decode(cause.cause) == found
    await reader.close()
    await harness.close()


async def test_a_header_that_cannot_be_parsed_is_ignored(harness: ServerHarness) -> None:
    for number, header in enumerate(("nonsense", "t=0", "t=" + "1," * 800, "why=" + "x" * 2000, "r=\x1b[31m")):
        headers = {CAUSE_HEADER: header, "traceparent": "00-nonsense"}
        reply = await harness.post(MAPS, a_map(f"m{number}"), headers=headers)
        assert reply.status == 201
        found = await last(harness)
        assert not found.trace and found.claim in (Claim(), Claim(reconcile="[31m"))


HOSTILE_CLAIMS = (
    "x" * (1 << 20),
    "why=" + "x" * (1 << 20),
    "t=" + ",".join(map(str, range(1, 100_001))),
    "\x00\xff\x80" * 100,
    "why=a\r\nImpersonate-User: root",
    "user=root;u=root;who=root;why=root did it",
)


@pytest.mark.parametrize("claim", HOSTILE_CLAIMS, ids=range(len(HOSTILE_CLAIMS)))
async def test_a_hostile_header_costs_little_and_changes_no_name(harness: ServerHarness, claim: str) -> None:
    reply = await harness.post(MAPS, a_map(), headers={CAUSE_HEADER: claim})
    assert reply.status == 201
    found = await last(harness)
    assert (found.user, found.verb) == ("admin", "create")
    assert len(found.claim.triggers) <= MAX_TRIGGERS and len(str(found)) < 4_096
    assert "\n" not in str(found.claim.reason) and "\r" not in str(found.claim.reason)


async def test_the_time_never_falls(harness: ServerHarness) -> None:
    times = []
    for number, seconds in enumerate((1, 5, -3600, 1, 7200)):
        harness.clock.skew += timedelta(seconds=seconds)
        await harness.make(MAPS, a_map(f"m{number}"))
        times.append((await last(harness)).at)
    assert times == sorted(times) and times[1] == times[2] == times[3] < times[4]
    assert times[4] == int(harness.clock.now().timestamp() * 1000)


TEXTS = st.text(max_size=8) | st.sampled_from(["system:node:n", "system:serviceaccount:a:b", "@x"])
NOTED_CLAIMS = st.tuples(
    TEXTS,
    TEXTS,
    st.integers(0, 2**53),
    TEXTS,
    st.lists(st.integers(1, 2**53), max_size=MAX_TRIGGERS).map(tuple),
    st.integers(0, 2**53),
    TEXTS,
    TEXTS,
) | st.sampled_from(["", "why=done", "r=c/1;k=a/b;t=5,7", "no claim"])


@given(
    st.lists(
        st.tuples(
            st.datetimes(timezones=st.just(UTC)),
            *(TEXTS for _ in range(5)),
            NOTED_CLAIMS,
            st.sampled_from(["", TRACE]),
            TEXTS,
            st.sampled_from(["", "10.0.0.7", "fd00::7"]),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 2**42),
)
def test_causes_in_a_block_are_what_each_would_be_by_itself(parts: list[tuple[Any, ...]], before: int) -> None:
    alone, together = RequestCauses(), RequestCauses()
    alone.last = together.last = before
    expected = [alone.encode((alone, *each)) for each in parts]
    causes: list[NotedCause] = [(together, *each) for each in parts]
    block = together.join(causes)
    if block is None:  # a text that is not valid Unicode: they are encoded one by one
        assert r"\ud800" in ascii(parts)
        assert together.last == before
        assert [*map(recorded_form, causes)] == expected
    else:
        assert [*together.split(block, 0)] == expected
        assert [*together.split(block, 3)] == expected[3:]
        assert together.last == alone.last


async def test_refused_writes_are_kept(harness: ServerHarness) -> None:
    await harness.make(MAPS, a_map())
    await harness.make("/api/v1/namespaces/other/configmaps", a_map())
    headers = {CAUSE_HEADER: "r=c/1.1;k=default/web"}
    stale = {**a_map(), "metadata": {"name": "m", "resourceVersion": "1"}}
    assert (await harness.put(f"{MAPS}/m", stale, headers=headers)).status == 409
    assert (await harness.post(MAPS, a_map(), token=LIMITED_TOKEN)).status == 403
    assert (await harness.post(MAPS, a_map("Not A Name"))).status == 422
    # None of these is a refused write.
    assert (await harness.get(MAPS, token=LIMITED_TOKEN)).status == 403
    assert (await harness.delete(f"{MAPS}/absent")).status == 404
    assert (await harness.post(f"{MAPS}?dryRun=All", a_map())).status == 409
    assert (await harness.post(MAPS, a_map(), token="unknown")).status == 401
    refusals = harness.api.resources.refusals
    assert [(each.status, each.reason, each.user, each.verb, each.resource) for each in refusals] == [
        (422, "Invalid", "admin", "create", "configmaps"),
        (403, "Forbidden", "limited", "create", "configmaps"),
        (409, "Conflict", "admin", "update", "configmaps"),
    ]
    (conflict,) = refusals.of("configmaps", "default", "m")
    assert conflict.key == "default/web" and conflict.at == int(harness.clock.now().timestamp() * 1000)
    assert refusals.of("deployments.apps", "default", "web") == [conflict], "a reconcile of web was refused"
    assert refusals.of("configmaps", "other", "m") == []


async def test_the_ring_of_refusals_is_bounded(harness: ServerHarness) -> None:
    harness.api.resources.refusals = Refusals(3)
    for number in range(5):
        await harness.post(MAPS, a_map(f"Invalid {number}"))
    messages = [each.message for each in harness.api.resources.refusals]
    assert len(messages) == 3 and "Invalid 4" in messages[0] and "Invalid 2" in messages[2]
