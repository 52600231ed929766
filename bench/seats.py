"""A class at work: `python bench/seats.py [--seats 200] [--workers 2] [--seconds 30] [--pause 5]`.

Starts `setpoint class`, lets all learners join, gives each a Deployment of two Pods, and then lets each send a command
(a list of Pods, or a scale) every few seconds. Prints how long joining and the first answer of a seat take, the latency
of commands, and the memory of the workers per seat, awake and asleep."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

from setpoint.client import Client
from setpoint.client.https import connect
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.meta.errors import AlreadyExists
from setpoint.system import SystemClock

PODS, DEPLOYMENTS = builtin("pods"), builtin("deployments", "apps")
CLOCK = SystemClock()


def deployment() -> dict[str, Any]:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "nginx"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": "web", "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def join(url: str, code: str, name: str) -> dict[str, str]:
    body = json.dumps({"code": code, "nickname": name}).encode()
    request = urllib.request.Request(f"{url}/class/v1/join", body, {"Origin": url, "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, str] = json.load(answer)
        return found


def workers_of(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(each) for each in children.split()]


def memory(processes: list[int]) -> float:
    """Return the resident memory in MiB."""
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in processes)
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu(processes: list[int]) -> float:
    """Return the CPU time in seconds."""
    ticks = 0
    for each in processes:
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def quantiles(seconds: list[float]) -> str:
    found = sorted(seconds)
    p95 = found[min(len(found) * 95 // 100, len(found) - 1)]
    return f"p50 {statistics.median(found) * 1e3:.0f} ms, p95 {p95 * 1e3:.0f} ms, max {found[-1] * 1e3:.0f} ms"


async def learner(client: Client, number: int, until: float, pause: float, took: list[float]) -> None:
    await asyncio.sleep(pause * (number % 97) / 97)
    replicas = 2
    while time.monotonic() < until:
        began = time.monotonic()
        if replicas % 3:
            await client.list(PODS, "default")
        else:
            await client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1 + number % 3}}, "default")
        replicas += 1
        took.append(time.monotonic() - began)
        await asyncio.sleep(pause)


async def work(url: str, code: str, process: int, options: argparse.Namespace) -> None:
    workers = workers_of(process)
    before = memory(workers)
    joins: list[float] = []
    clients: list[Client] = []
    for number in range(options.seats):
        began = time.monotonic()
        while True:
            try:
                seat = await asyncio.to_thread(join, url, code, f"learner {number}")
                break
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise
                await asyncio.sleep(1.0)
        joins.append(time.monotonic() - began)
        clients.append(connect(Access(f"{url}/seats/{seat['seat']}", token=seat["key"]), CLOCK, timeout=60.0))
    print(f"joining: {quantiles(joins)} (the front admits two a second after the first forty)")

    firsts: list[float] = []

    async def first(client: Client) -> None:
        began = time.monotonic()
        with suppress(AlreadyExists):  # the client repeats a request if a seat that starts asks it to wait
            await client.create(deployment())
        firsts.append(time.monotonic() - began)

    for at in range(0, len(clients), 10):
        await asyncio.gather(*(first(each) for each in clients[at : at + 10]))
    print(f"first command, which starts the cluster, ten at once: {quantiles(firsts)}")
    await asyncio.sleep(15)
    awake = memory(workers)
    print(f"awake: {(awake - before) / options.seats:.2f} MiB a seat ({awake:.0f} MiB in {len(workers)} workers)")

    began, used = time.monotonic(), cpu(workers)
    await asyncio.sleep(10)
    idle = (cpu(workers) - used) / (time.monotonic() - began)
    print(f"awake and idle: {idle * 1e3 / options.seats:.2f} ms of CPU a second and seat")

    took: list[float] = []
    until = time.monotonic() + options.seconds
    began, used = time.monotonic(), cpu(workers)
    await asyncio.gather(*(learner(each, n, until, options.pause, took) for n, each in enumerate(clients)))
    load = (cpu(workers) - used) / (time.monotonic() - began)
    what = f"{len(took)} commands, one each {options.pause:g} s in all seats"
    print(f"{what}: {quantiles(took)}; {load:.2f} cores")
    for each in clients:
        await each.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seats", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--pause", type=float, default=5)
    options = parser.parse_args()
    command = [sys.executable, "-m", "setpoint", "class", "--seats", str(options.seats), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, "--workers", str(options.workers)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        text = "".join(process.stdout.readline() for _ in range(2))
        found = re.search(r"(http://\S+?)/#class-(\w+)", text)
        assert found is not None, text
        uvloop.run(work(found.group(1), found.group(2), process.pid, options))
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    main()
