"""The servers know each other by their Leases: together they are the endpoints of the Service `kubernetes`."""

from __future__ import annotations

from datetime import timedelta

from lagging_store import LaggingStore, Medium
from several_servers import LEASES, SLICES, MaintainedServer, advance, server_pair

from setpoint.apiserver.upkeep.server_objects import OwnAddress, ServerAddress, ensure_own_address

Pair = tuple[MaintainedServer, MaintainedServer]
BOTH = ["192.0.2.1:6443", "192.0.2.2:6443"]


async def identities(server: MaintainedServer) -> list[str]:
    items = (await server.get(f"{LEASES}?labelSelector=apiserver.kubernetes.io/identity=kube-apiserver")).json["items"]
    return sorted(item["metadata"]["annotations"]["kubernetes.io/peer-advertise-address"] for item in items)


async def test_two_servers_on_one_machine_have_a_lease_each() -> None:
    medium = Medium()
    one = await MaintainedServer.start(medium, port=6443)
    other = await MaintainedServer.start(medium, port=6444)
    await advance(0.1, one, other)
    assert await identities(one) == ["192.0.2.1:6443", "192.0.2.1:6444"]
    await one.stop()
    assert await identities(other) == ["192.0.2.1:6444"]
    await other.stop()


async def test_the_endpoints_are_the_servers_that_run(pair: Pair) -> None:
    one, other = pair
    for server in pair:
        assert await server.endpoints() == BOTH
    assert [item["metadata"]["name"] for item in (await one.get(SLICES)).json["items"]] == ["kubernetes"]
    before = one.view.medium.history.revision
    await advance(30, *pair)
    changed = {event.key for event in one.view.medium.history.events("", before)}
    assert {key.split("/")[1] for key in changed} == {"leases"}, "an idle cluster writes nothing else"
    assert await other.endpoints() == BOTH


async def test_a_server_that_stops_is_removed_at_once(pair: Pair) -> None:
    one, other = pair
    await other.stop()
    await one.clock.advance(0)
    assert await one.endpoints() == BOTH[:1]


async def test_the_leading_server_stops_and_is_removed_at_once(pair: Pair) -> None:
    one, other = pair
    await one.stop()
    await other.clock.advance(0)
    assert await other.endpoints() == BOTH[1:]


async def test_the_last_server_leaves_its_endpoints() -> None:
    medium = Medium()
    one = await MaintainedServer.start(medium)
    await one.stop()
    reader = await MaintainedServer.open(LaggingStore(medium))
    assert isinstance(reader, MaintainedServer)
    assert await reader.endpoints() == BOTH[:1]
    await reader.close()


async def test_a_server_that_crashes_is_removed_when_its_lease_expires(pair: Pair) -> None:
    one, other = pair
    await advance(3, *pair)
    await other.kill()
    await advance(9, one)
    assert await one.endpoints() == BOTH
    await advance(7, one)
    assert await one.endpoints() == BOTH[:1]


async def test_the_leading_server_crashes(pair: Pair) -> None:
    one, other = pair
    await advance(3, *pair)
    await one.kill()
    await advance(9, other)
    assert await other.endpoints() == BOTH
    await advance(9, other)
    assert await other.endpoints() == BOTH[1:]


async def test_clocks_of_machines_are_not_compared(pair: Pair) -> None:
    """A server whose wall clock is wrong by hours is alive for as long as its renewals are seen."""
    one, other = pair
    third = await MaintainedServer.start(one.view.medium, "192.0.2.3")
    other.clock.skew = timedelta(hours=5)
    await advance(10, one, other, third)
    await one.stop()
    await advance(1, other, third)  # the other one leads, and has looked for expired Leases
    assert await third.endpoints() == await identities(third) == ["192.0.2.2:6443", "192.0.2.3:6443"]
    await other.kill()
    await advance(18, third)
    assert await third.endpoints() == ["192.0.2.3:6443"]
    await third.stop()


async def test_an_outage_of_the_store_removes_nobody(pair: Pair) -> None:
    """Nobody could renew: that a renewal is missing says nothing about the others."""
    one, _ = pair
    one.view.medium.away = True
    await advance(60, *pair)
    one.view.medium.away = False
    before = one.view.medium.history.revision
    await advance(30, *pair)
    assert not one.view.medium.history.events("core/endpoints/", before)
    assert await one.endpoints() == BOTH


async def test_servers_with_different_ports() -> None:
    medium = Medium()
    one = await MaintainedServer.start(medium, "192.0.2.1", 6443)
    other = await MaintainedServer.start(medium, "192.0.2.2", 6444)
    third = await MaintainedServer.start(medium, "192.0.2.3", 6444)
    await advance(0.1, one, other, third)

    async def slices(server: MaintainedServer) -> dict[str, list[str]]:
        return {
            item["metadata"]["name"]: [endpoint["addresses"][0] for endpoint in item["endpoints"]]
            for item in (await server.get(SLICES)).json["items"]
        }

    assert await one.endpoints() == ["192.0.2.1:6443", "192.0.2.2:6444", "192.0.2.3:6444"]
    assert await slices(one) == {"kubernetes": ["192.0.2.1"], "kubernetes-6444": ["192.0.2.2", "192.0.2.3"]}
    await one.stop()
    await advance(0.1, other, third)
    assert await slices(other) == {"kubernetes": ["192.0.2.2", "192.0.2.3"]}
    assert await other.endpoints() == ["192.0.2.2:6444", "192.0.2.3:6444"]
    await other.stop()
    await third.stop()


async def test_families_have_slices_of_their_own(pair: Pair) -> None:
    """And an EndpointSlice that somebody else made for the Service is left alone."""
    one, _ = pair
    made = {
        "metadata": {"name": "kubernetes-mine", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [],
    }
    await one.make(SLICES, made)
    own = OwnAddress("192.0.2.1", 6443, one.own.cidrs)
    both = [own.server, ServerAddress("2001:db8::1", 6443)]

    async def names() -> list[str]:
        return [item["metadata"]["name"] for item in (await one.get(SLICES)).json["items"]]

    await ensure_own_address(one.api.resources, own, both)
    assert await names() == ["kubernetes", "kubernetes-ipv6-6443", "kubernetes-mine"]
    await ensure_own_address(one.api.resources, own, both[:1])
    assert await names() == ["kubernetes", "kubernetes-mine"]


async def test_a_restarted_server_has_the_same_lease() -> None:
    async with server_pair() as (one, other):
        await other.kill()
        again = await MaintainedServer.start(one.view.medium, "192.0.2.2")
        await advance(0.1, one, again)
        assert await identities(one) == BOTH
        await again.stop()
