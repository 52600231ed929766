"""Changes of rules lead to the same table as writing all rules anew, in the kernel."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from real_machine import RealMachine
from service_objects import endpoint, endpoint_slice, service

from setpoint.node.host.network.host_ports import HostPort, host_port_fragment
from setpoint.node.host.network.nft import NftTable
from setpoint.node.host.network.ruleset import Fragment, Ruleset
from setpoint.node.host.network.service_rules import (
    base_fragment,
    network_fragment,
    redirect_fragment,
    service_fragment,
)
from setpoint.node.host.network.services import Endpoint, Topology, service_ports
from setpoint.system import SystemClock

pytestmark = pytest.mark.real

SEEDS = range(4)
STEPS = 8
OWNERS = 8
NODES = ["node-a", "node-b"]


def random_fragment(owner: int, chance: random.Random) -> Fragment | None:
    if chance.random() < 0.15:
        return None
    if chance.random() < 0.2:
        ports = [
            HostPort(
                chance.choice(["tcp", "udp", "sctp"]),
                chance.randrange(8000, 8003),
                Endpoint(chance.choice(["10.244.1.9", "fd00:244:1::9"]), 80),
            )
            for _ in range(chance.randrange(3))
        ]
        return host_port_fragment(f"uid-{owner}", ports)
    made, slices = random_service(owner, chance)
    return service_fragment(service_ports(made, slices, Topology("node-a", "zone-a")))


def random_service(owner: int, chance: random.Random) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a Service and its slices. External addresses are few, so that Services compete for them."""
    kind = chance.choice(["ClusterIP", "NodePort", "LoadBalancer"])
    ports: list[dict[str, Any]] = []
    for number, name in enumerate(chance.sample(["web", "dns", "other"], chance.randrange(1, 4))):
        port: dict[str, Any] = {"name": name, "port": 80 + number, "protocol": chance.choice(["TCP", "UDP", "SCTP"])}
        if kind != "ClusterIP":
            port["nodePort"] = 30000 + owner * 10 + number
        ports.append(port)
    addresses = chance.choice([["10.96.0.{}"], ["fd00:96::{}"], ["10.96.0.{}", "fd00:96::{}"]])
    spec: dict[str, Any] = {"type": kind, "ports": ports}
    if chance.random() < 0.3:
        seconds = chance.choice([10, 10800])
        spec["sessionAffinity"] = "ClientIP"
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": seconds}}
    if chance.random() < 0.3:
        spec["internalTrafficPolicy"] = "Local"
    if kind != "ClusterIP" and chance.random() < 0.5:
        spec["externalTrafficPolicy"] = "Local"
    if chance.random() < 0.3:
        spec["externalIPs"] = chance.sample(["203.0.113.1", "203.0.113.2", "2001:db8::1"], 2)
    made = service(f"s{owner}", *(each.format(owner + 1) for each in addresses), **spec)
    if kind == "LoadBalancer":
        made["status"] = {"loadBalancer": {"ingress": [{"ip": f"203.0.113.{100 + owner}"}]}}
        if chance.random() < 0.5:
            spec_ranges = ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24", "2001:db8::/32"]
            made["spec"]["loadBalancerSourceRanges"] = chance.sample(spec_ranges, 2)
    slices = []
    for port in ports:
        for prefix in ("10.244.1.", "fd00:244:1::"):
            endpoints = [
                endpoint(f"{prefix}{chance.randrange(2, 9)}", chance.choice(NODES)) for _ in range(chance.randrange(4))
            ]
            if endpoints:
                slices.append(endpoint_slice(f"s{owner}", *endpoints, port_name=port["name"]))
    return made, slices


def listed(machine: RealMachine, table: NftTable) -> Any:
    """Return the table without what depends on the order in which its parts were made."""
    found = json.loads(machine.run("nft", "-j", "list", "table", "inet", table.name))["nftables"]
    rules: dict[str, list[str]] = {}
    parts = []
    for item in found:
        ((kind, value),) = item.items()
        if kind in ("metainfo", "table"):
            continue
        value.pop("handle"), value.pop("table")
        if kind == "rule":
            rules.setdefault(value["chain"], []).append(json.dumps(value["expr"]))
        else:
            value["elem"] = sorted(map(json.dumps, value.get("elem", [])))
            parts.append(json.dumps([kind, value], sort_keys=True))
    return sorted(parts), rules


@pytest.fixture
def tables(machine: RealMachine) -> Iterator[tuple[NftTable, NftTable]]:
    yield NftTable("changed", SystemClock()), NftTable("written", SystemClock())
    for name in ("changed", "written"):
        machine.run("nft", "add", "table", "inet", name)
        machine.run("nft", "delete", "table", "inet", name)


@pytest.mark.parametrize("seed", SEEDS)
async def test_changes_equal_a_new_table(machine: RealMachine, tables: tuple[NftTable, NftTable], seed: int) -> None:
    chance = random.Random(seed)
    changed, written = tables
    sections = [Ruleset(each.reference) for each in tables]
    for table, section in zip(tables, sections, strict=True):
        section.put("", base_fragment())
        table.add_section(section)
    for _ in range(STEPS):
        fragments: dict[str, Fragment | None] = {
            f"owner {owner}": random_fragment(owner, chance) for owner in chance.sample(range(OWNERS), 3)
        }
        fragments["pod cidrs"] = network_fragment(chance.sample(["10.244.1.0/24", "fd00:244:1::/64"], 1))
        fragments["redirects"] = redirect_fragment({("10.96.0.10", "udp", 53): chance.choice([53, 10053])})
        for owner, fragment in fragments.items():
            for section in sections:
                if fragment is not None or owner in section:
                    section.put(owner, fragment)
        assert await changed.update(sections[0])
        assert await written.replace()
        assert listed(machine, changed) == listed(machine, written)
    assert changed.replacements == 1


async def test_a_thousand_services(machine: RealMachine, tables: tuple[NftTable, NftTable]) -> None:
    clock, table = SystemClock(), tables[0]
    section = Ruleset(table.reference)
    section.put("", base_fragment())
    table.add_section(section)
    topology = Topology("node-a")

    def fragment(number: int, endpoints: int) -> Fragment:
        made = service(f"s{number}", f"10.96.{number // 250}.{number % 250 + 1}")
        addresses = (10 * number + index for index in range(endpoints))
        found = (endpoint(f"10.{244 + each // 62500}.{each // 250 % 250}.{each % 250 + 1}") for each in addresses)
        return service_fragment(service_ports(made, [endpoint_slice(f"s{number}", *found)], topology))

    for number in range(1000):
        section.put(f"s{number}", fragment(number, 10))
    assert await table.update(section)
    durations = []
    for number in range(0, 1000, 100):
        started = clock.monotonic()
        section.put(f"s{number}", fragment(number, 9))
        assert await table.update(section)
        durations.append(clock.monotonic() - started)
    assert table.replacements == 1
    assert min(durations) < 0.1
