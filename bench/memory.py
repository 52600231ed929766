"""Bytes per Pod and per idle watch: `python bench/memory.py --server NAME=URL,TOKEN,PID [--pods N] [--watches N]`."""

from __future__ import annotations

import argparse
import asyncio

import uvloop
from apiserver import BASE, NAMESPACE, parse_target, pod
from load import Target, connect


class Idle(asyncio.Protocol):
    """Holds a connection open."""


async def main(arguments: argparse.Namespace) -> None:
    target: Target = parse_target(arguments.server)
    first = await connect(target)
    await first.send(target.request("POST", "/api/v1/namespaces", b'{"metadata":{"name":"%b"}}' % NAMESPACE.encode()))
    before = target.memory()
    numbers = iter(range(arguments.pods))

    async def fill() -> None:
        mine = await connect(target)
        for number in numbers:
            await mine.send(target.request("POST", f"{BASE}/pods", pod(f"memory-{number:06}")))

    await asyncio.gather(*(fill() for _ in range(32)))
    await asyncio.sleep(2)
    after = target.memory()
    print(f"per Pod:   {(after - before) / arguments.pods / 1024:.1f} KiB ({arguments.pods} Pods)")
    loop = asyncio.get_running_loop()
    host, port = target.address
    request = target.request("GET", f"{BASE}/configmaps?watch=1")
    before, opened = target.memory(), []
    for _ in range(arguments.watches):
        transport, _ = await loop.create_connection(Idle, host, port, ssl=target.tls)
        transport.write(request)
        opened.append(transport)
    await asyncio.sleep(2)
    after = target.memory()
    print(f"per watch: {(after - before) / arguments.watches / 1024:.1f} KiB ({arguments.watches} idle watches, TLS)")
    for transport in opened:
        transport.abort()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--watches", type=int, default=1000)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(parser.parse_args()))
