"""How others fare while somebody misbehaves: `python bench/hostile.py [--seconds 6] [attack ...]`.

Starts a server of its own (TLS, RBAC, a durable store, 2,000 ConfigMaps). A bystander reads one object 50 times a
second, over one connection: first in peace, then while another user, in another process, does what the attack is
about. Tells how long the bystander's requests took, and how much memory the server took meanwhile. The attacker runs on
the same machine: what it takes of the processor is not the server's fault, so a column tells how long the bystander
waits when the attacker works against another server of the same kind. What takes the attacker time to prepare
(hundreds of connections, 10,000 idle ones) is over before the bystander is looked at.

With `--flags="--enable-priority-and-fairness=false"` the server is started without its protection."""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import shlex
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import cast

import uvloop
from load import Connection, Target, connect

PATH = "/api/v1/namespaces/default/configmaps"
RATE = 50
TOKENS = "admin-token,admin,1,system:masters\nnice-token,nice,2,readers\nrude-token,rude,3,readers\n"
IDLE = 10_000
Attack = Callable[["Plan"], Awaitable[None]]


@dataclass
class Plan:
    target: Target
    begin: Callable[[], None]
    """Called when everything is in place."""
    end: asyncio.Event


# -- what the attacker does -------------------------------------------------------------------------------------------


async def flood(plan: Plan, request: Callable[[int], bytes], clients: int) -> None:
    connected = 0

    async def one(number: int) -> None:
        nonlocal connected
        connection: Connection | None = await connect(plan.target)
        connected += 1
        if connected == clients:
            plan.begin()
        sent = number
        while not plan.end.is_set():
            sent += clients
            try:
                connection = connection or await connect(plan.target)
                status, _ = await connection.send(request(sent))
            except (OSError, EOFError):
                connection = None
                await asyncio.sleep(0.1)
                continue
            if status == 429:
                await asyncio.sleep(0.01)  # not even the second that it was asked to wait

    await asyncio.gather(*(one(number) for number in range(clients)))


async def reads(plan: Plan) -> None:
    request = plan.target.request("GET", f"{PATH}/map-1")
    await flood(plan, lambda _: request, 500)


async def lists(plan: Plan) -> None:
    request = plan.target.request("GET", PATH)
    await flood(plan, lambda _: request, 50)


async def writes(plan: Plan) -> None:
    def request(number: int) -> bytes:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"rude-{number}"}, "data": {"a": "b"}}
        return plan.target.request("POST", PATH, json.dumps(body).encode())

    await flood(plan, request, 300)


async def agents(plan: Plan) -> None:
    """Every request under another name."""

    def request(number: int) -> bytes:
        return plan.target.request("GET", f"{PATH}/map-1").replace(b"bench/1", f"agent-{number}/{number}".encode())

    await flood(plan, request, 100)


async def anonymous(plan: Plan) -> None:
    """With tokens that are none, one after the other."""

    def request(number: int) -> bytes:
        guess = f"guess-{number}".encode()
        return plan.target.request("GET", f"{PATH}/map-1").replace(plan.target.token.encode(), guess)

    await flood(plan, request, 200)


async def huge_heads(plan: Plan) -> None:
    request = plan.target.request("GET", f"{PATH}/map-1").replace(
        b"\r\n\r\n", b"\r\nX-Long: " + b"x" * 900_000 + b"\r\n\r\n"
    )
    await flood(plan, lambda _: request, 20)


async def slow_readers(plan: Plan) -> None:
    """300 watches that nobody reads, while everything they watch changes."""
    target = plan.target
    kept: list[asyncio.Transport] = []
    loop = asyncio.get_running_loop()
    host, port = target.address
    for _ in range(300):
        transport, _ = await loop.create_connection(asyncio.Protocol, host, port, ssl=target.tls)
        transport.write(target.request("GET", f"{PATH}?watch=1"))
        transport.pause_reading()
        kept.append(transport)

    def change(number: int) -> bytes:
        body = json.dumps({"data": {"text": "x" * 10_000, "number": str(number)}}).encode()
        return target.request("PATCH", f"{PATH}/map-{number % 2000}", body, "application/merge-patch+json")

    await flood(plan, change, 20)
    for each in kept:
        each.abort()


async def _open_connections(plan: Plan) -> list[asyncio.BaseTransport]:
    loop = asyncio.get_running_loop()
    host, port = plan.target.address
    kept: list[asyncio.BaseTransport] = []
    while len(kept) < IDLE and not plan.end.is_set():
        made = (loop.create_connection(asyncio.Protocol, host, port, ssl=plan.target.tls) for _ in range(20))
        kept += [made[0] for made in await asyncio.gather(*made, return_exceptions=True) if isinstance(made, tuple)]
    return kept


async def opening(plan: Plan) -> None:
    """Connections are opened, one after the other, and nothing is asked for."""
    plan.begin()
    await _open_connections(plan)


async def idle(plan: Plan) -> None:
    """10,000 connections that ask for nothing."""
    kept = await _open_connections(plan)
    print(f"    {len(kept)} connections", flush=True)
    plan.begin()
    await plan.end.wait()
    for transport in kept:
        cast(asyncio.Transport, transport).abort()


async def half_open(plan: Plan) -> None:
    """5,000 connections whose TLS handshake never ends."""
    kept: list[socket.socket] = []
    hello = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="x").do_handshake()
    first = hello.read()[:100]
    plan.begin()
    while not plan.end.is_set():
        if len(kept) < 5_000:
            try:
                kept.append(socket.create_connection(plan.target.address, timeout=1))
                kept[-1].send(first)
            except OSError:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)
    for each in kept:
        each.close()


ATTACKS: dict[str, Attack] = {
    "reads": reads,
    "lists": lists,
    "writes": writes,
    "agents": agents,
    "anonymous": anonymous,
    "huge-heads": huge_heads,
    "slow-readers": slow_readers,
    "half-open": half_open,
    "opening": opening,
    "idle": idle,
}


def attacker(name: str, target: Target, seconds: float, begun: Event) -> None:
    async def run() -> None:
        end = asyncio.Event()

        def begin() -> None:
            begun.set()
            asyncio.get_running_loop().call_later(seconds, end.set)

        await ATTACKS[name](Plan(target, begin, end))

    uvloop.run(run())


# -- who looks on -----------------------------------------------------------------------------------------------------


async def bystander(target: Target, seconds: float) -> list[float]:
    connection: Connection = await connect(target)
    request, took = target.request("GET", f"{PATH}/map-1"), []
    begun = time.perf_counter()
    for number in range(int(seconds * RATE)):
        await asyncio.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
        sent = time.perf_counter()
        status, _ = await connection.send(request)
        assert status == 200, status
        took.append(time.perf_counter() - sent)
    return sorted(took)


def during(name: str, victim: Target, target: Target, seconds: float) -> list[float]:
    """How long `target` takes for the bystander while `victim` is attacked."""
    processes = multiprocessing.get_context("spawn")
    begun = processes.Event()
    process = processes.Process(target=attacker, args=(name, victim, seconds + 1, begun))
    process.start()
    assert begun.wait(120), "the attack does not come about"
    time.sleep(0.5)
    try:
        return uvloop.run(bystander(target, seconds))
    finally:
        process.join(60)
        process.kill()


# -- servers ----------------------------------------------------------------------------------------------------------


def server(stack: ExitStack, name: str, flags: str) -> Target:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    (directory / "tokens.csv").write_text(TOKENS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "setpoint",
            "apiserver",
            "--port",
            str(port),
            "--data-dir",
            directory / "data",
            "--token-auth-file",
            directory / "tokens.csv",
            "--authorization-mode",
            "RBAC",
            *shlex.split(flags),
        ],
        stdout=subprocess.DEVNULL,
    )
    stack.callback(process.wait)
    stack.callback(process.terminate)
    target = Target(name, f"https://127.0.0.1:{port}", "admin-token", (process.pid,))
    uvloop.run(_fill(target))
    return target


async def _fill(target: Target) -> None:
    for _ in range(100):
        try:
            connection = await connect(target)
            if (await connection.send(target.request("GET", "/readyz")))[0] == 200:
                break
        except OSError:
            pass
        await asyncio.sleep(0.1)
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"]}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"}
    subjects = [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "readers"}]
    for path, body in (
        (f"{rbac}/clusterroles", {"metadata": {"name": "maps"}, "rules": rules}),
        (f"{rbac}/clusterrolebindings", {"metadata": {"name": "maps"}, "roleRef": reference, "subjects": subjects}),
        *((PATH, {"metadata": {"name": f"map-{n}"}, "data": {"text": "x" * 1000}}) for n in range(2000)),
    ):
        await connection.send(target.request("POST", path, json.dumps(body).encode()))


def _as(target: Target, token: str) -> Target:
    return Target(target.name, target.url, token, target.pids)


def told(took: list[float]) -> str:
    return f"{took[len(took) // 2] * 1e3:8.1f} {took[len(took) * 99 // 100] * 1e3:8.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", choices=[[], *ATTACKS], default=[])
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--flags", default="")
    options = parser.parse_args()
    with ExitStack() as stack:
        target, other = server(stack, "target", options.flags), server(stack, "other", options.flags)
        nice = _as(target, "nice-token")
        print(f"{'bystander: ms':16}{'in peace':>18}{'beside an attack':>20}{'attacked':>18}   MiB before, after")
        for name in options.attacks or ATTACKS:
            before = target.memory() >> 20
            peace = uvloop.run(bystander(nice, options.seconds))
            beside = during(name, _as(other, "rude-token"), nice, options.seconds)
            attacked = during(name, _as(target, "rude-token"), nice, options.seconds)
            after = target.memory() >> 20
            print(f"{name:16}{told(peace):>18}{told(beside):>20}{told(attacked):>18}   {before}, {after}", flush=True)


if __name__ == "__main__":
    main()
