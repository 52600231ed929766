"""Services of a real node: `python bench/services.py [--services 1000] [--endpoints 10] [--requests 2000]`. Needs root.

Prints the time to write all rules, and to change one Service, then latencies of TCP connections and UDP round trips to
a Pod directly and through a Service. Pods are network namespaces; the machine's own network is not used."""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import socket
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from real_machine import RealMachine
from service_network import POD_CIDRS, PORT, Namespace, ServedPod, ServiceNetwork
from service_objects import endpoint, endpoint_slice, service

from setpoint.node.host.network.nft import NftTable
from setpoint.node.host.network.ruleset import Fragment, Ruleset
from setpoint.node.host.network.service_rules import base_fragment, network_fragment, service_fragment
from setpoint.node.host.network.services import Topology, service_ports
from setpoint.system import SystemClock

TOPOLOGY = Topology("node-a")
WEB = "10.100.0.1"
CHANGES = 20


def many(number: int, endpoints: int, **spec: Any) -> Fragment:
    made = service(f"s{number}", f"10.96.{number // 250}.{number % 250 + 1}", **spec)
    addresses = (number * endpoints + index for index in range(endpoints))
    found = (endpoint(f"10.{200 + each // 62500}.{each // 250 % 250}.{each % 250 + 1}", "other") for each in addresses)
    return service_fragment(service_ports(made, [endpoint_slice(f"s{number}", *found)], TOPOLOGY))


def one(pod: Namespace) -> Fragment:
    ports = [{"name": "web", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    slices = [endpoint_slice("web", endpoint(pod.address), port_name=name, port=PORT) for name in ("web", "dns")]
    return service_fragment(service_ports(service("web", WEB, ports=ports), slices, TOPOLOGY))


def show(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    p99 = ordered[len(ordered) * 99 // 100]
    print(f"{name:60} p50 {statistics.median(ordered) * 1e3:8.3f} ms   p99 {p99 * 1e3:8.3f} ms")


async def timed(table: NftTable, rules: Ruleset) -> float:
    began = time.perf_counter()
    await table.update(rules)
    return time.perf_counter() - began


def connect(client: Namespace, address: str, port: int, count: int) -> list[float]:
    """Return the seconds of each TCP connection, without those for the first byte."""
    found = []
    for _ in range(count):
        with client.socket(socket.SOCK_STREAM, address) as connection:
            connection.settimeout(5)
            began = time.perf_counter()
            connection.connect((address, port))
            found.append(time.perf_counter() - began)
    return found


def exchange(client: Namespace, address: str, port: int, count: int) -> list[float]:
    """Return the seconds of each UDP round trip of one connection."""
    found = []
    with client.socket(socket.SOCK_DGRAM, address) as connection:
        connection.settimeout(5)
        connection.connect((address, port))
        for _ in range(count):
            began = time.perf_counter()
            connection.send(b"?")
            connection.recv(100)
            found.append(time.perf_counter() - began)
    return found


async def latencies(network: ServiceNetwork, title: str, requests: int) -> None:
    client, pod = network.pods[1], network.pods[0]
    cases = {"direct": (pod.address, PORT, PORT), "through the Service": (WEB, 80, 53)}
    tcp: dict[str, list[float]] = {name: [] for name in cases}
    udp: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(10):  # in alternation, so that other load affects both
        for name, (address, port, udp_port) in cases.items():
            tcp[name] += await asyncio.to_thread(connect, client, address, port, requests // 10)
            udp[name] += await asyncio.to_thread(exchange, client, address, udp_port, requests // 10)
    for name in cases:
        show(f"{title}: TCP connection, {name}", tcp[name])
        show(f"{title}: UDP round trip, {name}", udp[name])


async def measure(network: ServiceNetwork, options: argparse.Namespace) -> None:
    pod = ServedPod(network.pods[0])
    await pod.start()
    table = NftTable("setpoint", SystemClock())
    rules = Ruleset(table.reference)
    table.add_section(rules)
    rules.put("", base_fragment())
    rules.put("pod cidrs", network_fragment(POD_CIDRS))
    rules.put("web", one(network.pods[0]))
    await table.update(rules)
    await latencies(network, "1 Service", options.requests)

    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    for number in range(options.services):
        rules.put(f"s{number}", many(number, options.endpoints))
    title = f"{options.services} Services with {options.endpoints} endpoints each"
    print(f"{title}: computed in {time.perf_counter() - began:.2f} s", end=", ")
    print(f"{(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024:.0f} MiB", end=", ")
    began = time.perf_counter()
    await table.replace()
    print(f"written in {time.perf_counter() - began:.2f} s")
    await latencies(network, f"{options.services} Services", options.requests)

    picked = range(0, options.services, max(1, options.services // CHANGES))
    found: dict[str, list[float]] = {"an endpoint is gone": [], "a Service is gone": [], "a new Service": []}
    for number in picked:
        rules.put(f"s{number}", many(number, options.endpoints - 1))
        found["an endpoint is gone"].append(await timed(table, rules))
        rules.put(f"s{number}", None)
        found["a Service is gone"].append(await timed(table, rules))
        rules.put(f"s{number}", many(number, options.endpoints))
        found["a new Service"].append(await timed(table, rules))
    affinity = []
    for number in picked:
        rules.put(f"s{number}", many(number, options.endpoints, sessionAffinity="ClientIP"))
        affinity.append(await timed(table, rules))
    for name, seconds in {**found, "session affinity is switched on": affinity}.items():
        show(f"one change: {name}", seconds)
    assert table.replacements == 2
    await pod.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--endpoints", type=int, default=10)
    parser.add_argument("--requests", type=int, default=2000)
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("this benchmark creates network namespaces: run it as root")
    machine = RealMachine.create()
    try:
        with machine.entered():
            asyncio.run(measure(ServiceNetwork(machine), options))
    finally:
        machine.destroy()


if __name__ == "__main__":
    main()
