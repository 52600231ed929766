"""Setpoint side by side with other servers, in one command and one run; prints a table with ratios.

    python bench/compare.py [--with NAME=URL,TOKEN[,PID[+PID...]]] [--with-python NAME=PYTHON] [get list ...]

Starts `setpoint apiserver` of this interpreter on a data directory of its own, with TLS, RBAC and a durable store, and
measures it and every other server with the benchmarks of `bench/apiserver.py`, whose rounds alternate between them.
`--with` is a server that runs already, of any kind: it needs a token with all rights, and namespaces `bench` and
`bench-created` are created in it. With the ids of its processes (for kube-apiserver those of etcd, too) CPU time and
memory are compared as well. `--with-python` starts Setpoint with another interpreter, which has another build of
Python or another version of Setpoint. Ratios above 1 are in favour of the first server."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvloop
from apiserver import BENCHES, measure, parse_target
from load import Target
from startup import free_port

TOKEN = "bench-token"
START_SECONDS = 60.0
DESCRIBE = """
import platform, sys, sysconfig
from setpoint import __version__
built = " ".join(str(sysconfig.get_config_var(name)) for name in ("CONFIG_ARGS", "PY_CORE_CFLAGS", "PY_CORE_LDFLAGS"))
pgo = "--enable-optimizations" in built or "-fprofile-use" in built or "-fprofile-instr-use" in built
lto = "--with-lto" in built or "-flto" in built
print(f"Setpoint {__version__}, {platform.python_implementation()} {platform.python_version()}", end=", ")
print(f"{'with' if pgo else 'without'} PGO, {'with' if lto else 'without'} LTO")
"""


@contextmanager
def setpoint(name: str, python: str) -> Iterator[Target]:
    """Run an API server of Setpoint while the block runs."""
    with tempfile.TemporaryDirectory(prefix="setpoint-bench-") as directory:
        tokens, port = Path(directory) / "tokens.csv", free_port()
        tokens.write_text(f"{TOKEN},admin,admin-uid,system:masters\n")
        options = {
            "--port": port,
            "--data-dir": f"{directory}/data",
            "--token-auth-file": str(tokens),
            "--authorization-mode": "Node,RBAC",
            "--disable-admission-plugins": "ServiceAccount",
        }
        command = [python, "-m", "setpoint", "apiserver", *(word for option in options.items() for word in option)]
        log = Path(directory) / "log"
        with open(log, "wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + START_SECONDS
            while "ready" not in log.read_text():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{name} did not start:\n{log.read_text()}")
                time.sleep(0.05)
            yield Target(name, f"https://127.0.0.1:{port}", TOKEN, (process.pid,))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def described(python: str) -> str:
    """Return the versions of Setpoint and Python, and how Python was built."""
    try:
        return subprocess.run([python, "-c", DESCRIBE], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit(f"{python} cannot be started, or does not have Setpoint") from None


def ratio(better: float, worse: float) -> str:
    return f"{better / worse:.2f}x" if better and worse else "-"


async def compare(targets: list[Target], arguments: argparse.Namespace) -> None:
    first, *others = targets
    columns = [f"{first.name} /s", "CPU us"]
    for each in others:
        columns += [f"{each.name} /s", "CPU us", "rate", "CPU"]
    widths = [max(12, len(column)) for column in columns]
    print(f"{'':10}", *(f"{column:>{width}}" for column, width in zip(columns, widths, strict=True)))

    def row(name: str, cells: list[str]) -> None:
        print(f"{name:10}", *(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)), flush=True)

    async for name, (own, *rest) in measure(targets, arguments.benches, arguments.seconds, arguments.rounds):
        cells = [f"{own.rate:,.0f}", f"{own.cpu_each:,.1f}" if first.pids else "-"]
        for target, result in zip(others, rest, strict=True):
            cells += [f"{result.rate:,.0f}", f"{result.cpu_each:,.1f}" if target.pids else "-"]
            cells += [ratio(own.rate, result.rate), ratio(result.cpu_each, own.cpu_each) if target.pids else "-"]
        row(name, cells)
    cells = ["", f"{first.memory() / 2**20:,.0f}"]
    for target in others:
        cells += ["", f"{target.memory() / 2**20:,.0f}" if target.pids else "-", ""]
        cells.append(ratio(target.memory(), first.memory()) if target.pids else "-")
    row("MiB", cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--with", action="append", default=[], dest="others", metavar="NAME=URL,TOKEN[,PID[+PID]]")
    parser.add_argument("--with-python", action="append", default=[], dest="pythons", metavar="NAME=PYTHON")
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each round")
    parser.add_argument("--rounds", type=int, default=3, help="the best one counts")
    parser.add_argument("benches", nargs="*", metavar="BENCHMARK", help=f"by default all: {' '.join(BENCHES)}")
    arguments = parser.parse_args()
    if unknown := [each for each in arguments.benches if each not in BENCHES]:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHES)}")
    pythons = {"setpoint": sys.executable}
    for each in arguments.pythons:
        name, _, python = each.partition("=")
        if not python or name in pythons:
            parser.error(f"--with-python {each}: expected NAME=PYTHON, with a name of its own")
        pythons[name] = python
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for name, python in pythons.items():
        print(f"{name}: {described(python)}")
    with ExitStack() as stack:
        targets = [stack.enter_context(setpoint(name, python)) for name, python in pythons.items()]
        targets += [parse_target(each) for each in arguments.others]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(compare(targets, arguments))


if __name__ == "__main__":
    main()
