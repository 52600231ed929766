"""How tabs of the page fare while others misbehave: `python bench/hostile_tabs.py [--seconds 6] [attack ...]`.

Starts two clusters with their pages. A tab makes 50 requests a second: without an attack, while the page of the other
cluster is attacked, and while its own is. The attacker runs in a process of its own on the same machine. Prints the
median and the 99th percentile of the latency in milliseconds, and how much memory the server has before and after."""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from page_client import enter, handshake, open_tab
from page_cluster import STATIC, PageCluster

from setpoint.wire.websocket import encode_frame

RATE, TABS = 50, 16
MASK = b"mask"
_OPEN = b"".join(
    encode_frame(1, b'{"id":%d,"op":"open","feed":"kinds","args":{"n":%d}}' % (number, number), MASK)
    for number in range(1, 10_001)
)
_LARGE = encode_frame(1, b'{"id":1,"op":"close","more":"%b"}' % (b"x" * 1_000_000), MASK)
_TOO_LARGE = encode_frame(1, b'{"id":1,"op":"close","more":"%b"}' % (b"x" * 2 * 1024 * 1024), MASK)
_BINARY = encode_frame(2, b'{"id":1,"op":"open"}', MASK)
_UNKNOWN = encode_frame(1, b'{"id":1,"op":"explode"}', MASK)


async def _flood(origin: str, key: str, data: bytes, *, again: bool = True) -> None:
    """Send data over a tab and read nothing of the content, and open it again when it is closed."""
    while True:
        with suppress(OSError, EOFError):
            status, reader, writer = await handshake(origin, key)
            if status == 101:
                reading = asyncio.ensure_future(_discard(reader))
                while not reading.done():
                    writer.write(data)
                    await writer.drain()
                    await asyncio.sleep(0 if again else 3600)
            writer.close()
        await asyncio.sleep(0.01)


async def _discard(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(1 << 16):
            pass


async def keyless(origin: str, key: str) -> None:
    """Sockets without a key, one after the other."""
    while True:
        with suppress(OSError, EOFError):
            _, _, writer = await handshake(origin, "wrong")
            writer.close()


async def unfinished(origin: str, key: str) -> None:
    """Heads of requests that arrive byte by byte, and never end."""
    url = urlsplit(origin)
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(url.hostname, url.port)
            for each in b"GET / HTTP/1.1\r\nHost: " + b"x" * 1_000:
                writer.write(bytes((each,)))
                await writer.drain()
                await asyncio.sleep(0.01)
            writer.close()


def _tabs(data: bytes, *, again: bool = True) -> Callable[[str, str], Awaitable[None]]:
    return lambda origin, key: _flood(origin, key, data, again=again)


ATTACKS: dict[str, tuple[int, Callable[[str, str], Awaitable[None]]]] = {
    "channels": (TABS, _tabs(_OPEN)),
    "large": (TABS, _tabs(_LARGE)),
    "too-large": (TABS, _tabs(_TOO_LARGE)),
    "binary": (TABS, _tabs(_BINARY)),
    "unknown": (TABS, _tabs(_UNKNOWN)),
    "silent": (TABS, _tabs(b"", again=False)),
    "keyless": (200, keyless),
    "unfinished": (400, unfinished),
}
"""By name: how many connections, and what each does."""


def attacker(name: str, origin: str, key: str, seconds: float, begun: Event) -> None:
    async def run() -> None:
        count, attack = ATTACKS[name]
        tasks = [asyncio.ensure_future(attack(origin, key)) for _ in range(count)]
        await asyncio.sleep(0.5)
        begun.set()
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()

    uvloop.run(run())


async def bystander(origin: str, key: str, seconds: float) -> list[float]:
    """Return the latencies of the requests of a tab, the shortest first."""
    took = []
    async with open_tab(origin, key) as (tab, _):
        begun = time.perf_counter()
        for number in range(int(seconds * RATE)):
            await asyncio.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
            sent = time.perf_counter()
            answer = await tab.request("/api/v1/namespaces", query="limit=1")
            assert answer["status"] == 200, answer
            took.append(time.perf_counter() - sent)
    return sorted(took)


def during(name: str, victim: PageCluster, key: str, origin: str, own: str, seconds: float) -> list[float]:
    """Return the latencies of a tab at `origin` while `victim` is attacked."""
    processes = multiprocessing.get_context("spawn")
    begun = processes.Event()
    process = processes.Process(target=attacker, args=(name, victim.origin, key, seconds + 1, begun))
    process.start()
    assert begun.wait(60), "the attack does not begin"
    try:
        return uvloop.run(bystander(origin, own, seconds))
    finally:
        process.join(30)
        process.kill()


def memory(cluster: PageCluster) -> int:
    """Return the resident memory of a cluster in MiB."""
    line = next(each for each in Path(f"/proc/{cluster.pid}/status").read_text().splitlines() if "VmRSS" in each)
    return int(line.split()[1]) >> 10


def shown(took: list[float]) -> str:
    return f"{took[len(took) // 2] * 1e3:8.1f} {took[len(took) * 99 // 100] * 1e3:8.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", choices=[[], *ATTACKS], default=[])
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    with ExitStack() as stack:
        clusters = []
        for _ in range(2):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            clusters.append(PageCluster(folder, STATIC))
            stack.callback(clusters[-1].stop)
            clusters[-1].start()
        target, other = clusters
        own = enter(target.new_link())
        print(f"{'tab: ms':16}{'without':>18}{'other attacked':>20}{'attacked':>18}   MiB before, after")
        for name in options.attacks or ATTACKS:
            before = memory(target)
            peace = uvloop.run(bystander(target.origin, own, options.seconds))
            beside = during(name, other, enter(other.new_link()), target.origin, own, options.seconds)
            attacked = during(name, target, enter(target.new_link()), target.origin, own, options.seconds)
            print(
                f"{name:16}{shown(peace):>18}{shown(beside):>20}{shown(attacked):>18}   {before}, {memory(target)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
