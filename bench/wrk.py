"""Benchmarks of API servers under the load of wrk, which takes a tenth of the CPU time of bench/load.py for a request:
on a machine with few cores the servers have the rest.

    python bench/wrk.py --server NAME=URL,TOKEN[,PID[+PID...]] [--server ...] [--connections N] [get paged create patch]

The rounds alternate between the servers. The rates are medians, with the quartiles; the last column is the rate
divided by that of the first server."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from apiserver import BASE, CREATED, PODS, parse_target, pod, prepare
from load import Target

_SCRIPT = """
local number = 0
wrk.headers["Authorization"] = "Bearer {token}"
wrk.headers["Content-Type"] = "{content_type}"
function request()
  number = number + 1
  local path = string.gsub({path}, "POD", string.format("pod-%05d", number % {pods}))
  local body = string.gsub({body}, "NUMBER", string.format("%d", number))
  return wrk.format("{method}", path, nil, body)
end
function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), errors.status + errors.connect + errors.read + errors.write + errors.timeout))
end
"""
"""Sends one request again and again: the word NUMBER in its body becomes a number that grows, the word POD in its path
one of the Pods after the other."""


@dataclass(frozen=True, slots=True)
class Load:
    connections: int
    method: str
    path: str
    body: str = ""
    content_type: str = "application/json"

    def script(self, token: str) -> str:
        values = {"token": token, "content_type": self.content_type, "method": self.method, "pods": PODS}
        # A long bracket takes any text without escapes.
        return _SCRIPT.format(**values, path=f"[==[{self.path}]==]", body=f"[==[{self.body}]==]")


def loads() -> dict[str, Load]:
    run = f"{time.time_ns() % 10**12:x}"
    note = json.dumps({"metadata": {"annotations": {"note": f"{run}-NUMBER"}}})
    return {
        "get": Load(32, "GET", f"{BASE}/pods/POD"),
        "paged": Load(16, "GET", f"{BASE}/pods?limit=50"),
        "create": Load(64, "POST", f"{CREATED}/pods", pod(f"w{run}-NUMBER").decode()),
        "patch": Load(64, "PATCH", f"{BASE}/pods/POD", note, "application/merge-patch+json"),
    }


@dataclass(frozen=True, slots=True)
class Round:
    rate: float
    cpu: float
    """Microseconds of the server for each request."""
    generator: float
    """Microseconds of wrk for each request."""
    p50: float
    p99: float
    """Milliseconds."""


def measured(target: Target, load: Load, seconds: int, connections: int) -> Round:
    """Run wrk once, with its own number of connections if `connections` is 0. Raises ValueError if a request failed."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "load.lua")
        script.write_text(load.script(target.token))
        options = [f"-c{connections or load.connections}", f"-d{seconds}s", "-s", str(script)]
        command = ["wrk", "-t1", *options, target.url]
        cpu, own = target.cpu(), _cpu_of_children()
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        cpu, own = target.cpu() - cpu, _cpu_of_children() - own
    line = next(line for line in output.splitlines() if line.startswith("RESULT "))
    count, duration, p50, p99, errors = (int(part) for part in line.split()[1:])
    if errors:
        raise ValueError(f"{target.name}: {errors} of {count} requests failed")
    return Round(count / duration * 1e6, cpu / count * 1e6, own / count * 1e6, p50 / 1e3, p99 / 1e3)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments: argparse.Namespace) -> None:
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed")
    targets = [parse_target(text) for text in arguments.server]
    for target in targets:
        asyncio.run(prepare(target))
    print("benchmark  server       per second (quartiles)   CPU us each  wrk us each  p50 ms  p99 ms  ratio")
    for name in arguments.benches or loads():
        rounds: dict[str, list[Round]] = {target.name: [] for target in targets}
        for _ in range(arguments.rounds):
            for target in targets:
                rounds[target.name].append(measured(target, loads()[name], arguments.seconds, arguments.connections))
        first = statistics.median(each.rate for each in rounds[targets[0].name])
        for server, of_server in rounds.items():
            low, rate, high = statistics.quantiles([each.rate for each in of_server], n=4, method="inclusive")
            cpu, generator, p50, p99 = (
                statistics.median(getattr(each, field) for each in of_server)
                for field in ("cpu", "generator", "p50", "p99")
            )
            print(
                f"{name:10} {server:10} {rate:9,.0f} ({low:,.0f} to {high:,.0f})".ljust(48)
                + f"{cpu:11.1f} {generator:12.1f} {p50:7.2f} {p99:7.2f}  {rate / first:.2f}x"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--connections", type=int, default=0, help="instead of the number that each benchmark has")
    parser.add_argument("benches", nargs="*")
    main(parser.parse_args())
