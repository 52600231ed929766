"""The DNS server of a node: `python bench/dns.py [--services 1000] [--endpoints 10] [--seconds 3] [--loop asyncio]`.

Prints microseconds of CPU time for each answer without the network, then queries per second and latencies over UDP and
TCP on loopback, with the clients in processes of their own, and what a change of one Service costs."""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from dns_objects import HTTP, endpoint, endpoint_slice, headless, namespace, service

from setpoint.node.host.network.dns.message import SRV, A, Message, Question, parse_name, write_message
from setpoint.node.host.network.dns.resolver import ClusterResolver
from setpoint.node.host.network.dns.server import DnsServer
from setpoint.node.host.network.dns.upstream import Forwarder
from setpoint.node.host.network.dns.zone import ClusterZone
from setpoint.system import SystemClock

CLIENTS = 16
"""Queries in flight at the same time, from each of two processes."""
Result = tuple[int, list[float]]


def make_zone(services: int, endpoints: int) -> ClusterZone:
    zone = ClusterZone("cluster.local", lambda: 1, ["10.96.0.10"])
    zone.namespace_changed(None, namespace("shop"))
    for at in range(services):
        ends = [endpoint(f"10.{at // 250}.{at % 250}.{n}", hostname=f"pod-{n}") for n in range(endpoints)]
        zone.service_changed(None, service(f"web-{at}", f"10.96.{at // 250}.{at % 250}", ports=[HTTP]))
        zone.service_changed(None, headless(f"db-{at}", [HTTP]))
        zone.slice_changed(None, endpoint_slice(f"db-{at}", *ends, ports=[HTTP]))
    return zone


def query(name: str, kind: int = A) -> bytes:
    return write_message(Message(7, 0x100, [Question(parse_name(name), kind)]))


def cost(name: str, work: Callable[[], object], count: int = 20_000) -> None:
    began = time.process_time()
    for _ in range(count):
        work()
    print(f"{name:55} {(time.process_time() - began) / count * 1e6:8.1f} us")


def ask_udp(port: int, seconds: float, data: bytes, results: Any) -> None:
    """Send queries, with CLIENTS of them in flight, and put their number and latencies into the queue."""
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", port))
        client.settimeout(1.0)
        sent = [0.0] * CLIENTS
        took = []
        for at in range(CLIENTS):
            sent[at] = time.perf_counter()
            client.send(at.to_bytes(2) + data[2:])
        end = time.perf_counter() + seconds
        while (now := time.perf_counter()) < end:
            try:
                at = int.from_bytes(client.recv(4096)[:2])
            except TimeoutError:
                break
            took.append(time.perf_counter() - sent[at])
            sent[at] = now
            client.send(at.to_bytes(2) + data[2:])
    results.put((len(took), took))


def ask_tcp(port: int, seconds: float, data: bytes, results: Any) -> None:
    """Send one query after the other over one connection."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        took = []
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            client.sendall(len(data).to_bytes(2) + data)
            client.recv(4096)
            took.append(time.perf_counter() - began)
    results.put((len(took), took))


async def measure(name: str, target: Any, server: DnsServer, data: bytes, seconds: float, processes: int = 2) -> None:
    results: Any = multiprocessing.Queue()
    arguments = (server.addresses[0].port, seconds, data, results)
    clients = [multiprocessing.Process(target=target, args=arguments) for _ in range(processes)]
    used = time.process_time()
    for client in clients:
        client.start()
    found: list[Result] = [await asyncio.to_thread(results.get) for _ in clients]
    used = time.process_time() - used
    for client in clients:
        await asyncio.to_thread(client.join)
    took = sorted(each for _, all_took in found for each in all_took)
    total = len(took)
    quantiles = [took[int(total * share)] * 1e3 for share in (0.5, 0.99)]
    print(
        f"{name:40} {total / seconds:8,.0f} /s  {used / total * 1e6:6.1f} us of CPU  "
        f"median {quantiles[0]:.2f} ms  99 % {quantiles[1]:.2f} ms"
    )


async def serve(zone: ClusterZone, seconds: float) -> None:
    clock = SystemClock()
    server = DnsServer(ClusterResolver(zone, Forwarder((), clock, bytes), lambda: True), clock)
    await server.start(["127.0.0.1"], 0)
    one = query("web-7.shop.svc.cluster.local")
    await measure("UDP, one client at a time", ask_one, server, one, seconds, 1)
    await measure(f"UDP, {2 * CLIENTS} queries in flight", ask_udp, server, one, seconds)
    await measure("UDP, headless", ask_udp, server, query("db-7.shop.svc.cluster.local"), seconds)
    await measure("UDP, NXDOMAIN", ask_udp, server, query("none.shop.svc.cluster.local"), seconds)
    await measure("TCP, two connections", ask_tcp, server, one, seconds)
    await server.stop()


def ask_one(port: int, seconds: float, data: bytes, results: Any) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", port))
        took = []
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            client.send(data)
            client.recv(4096)
            took.append(time.perf_counter() - began)
    results.put((len(took), took))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--endpoints", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    options = parser.parse_args()
    multiprocessing.set_start_method("forkserver")
    began = time.process_time()
    zone = make_zone(options.services, options.endpoints)
    print(f"zone of {2 * options.services} Services in {time.process_time() - began:.2f} s of CPU time")
    clock = SystemClock()
    server = DnsServer(ClusterResolver(zone, Forwarder((), clock, bytes), lambda: True), clock)
    sent: list[bytes] = []
    for name, kind in (
        ("web-7.shop.svc.cluster.local", A),
        ("db-7.shop.svc.cluster.local", A),
        ("pod-3.db-7.shop.svc.cluster.local", A),
        ("_http._tcp.db-7.shop.svc.cluster.local", SRV),
        ("none.shop.svc.cluster.local", A),
        ("10-1-2-3.shop.pod.cluster.local", A),
    ):
        data = query(name, kind)
        cost(name, partial(server.handle, data, over_tcp=True, send=sent.append))
        sent.clear()
    ends = [endpoint(f"10.0.7.{n}", hostname=f"pod-{n}") for n in range(options.endpoints)]
    changed = endpoint_slice("db-7", *ends, ports=[HTTP])
    cost("change of one EndpointSlice", lambda: zone.slice_changed(changed, changed), 2000)
    runner = uvloop.run if options.loop == "uvloop" else asyncio.run
    runner(serve(zone, options.seconds))


if __name__ == "__main__":
    main()
