"""The processes of the machines, the shifted clock, and the kubectl loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.robustness.kubectl_loop import KubectlLoop
from tests.robustness.network import Loopback
from tests.robustness.processes import Process

from setpoint.tasks import child_tasks

_ROOT = Path(__file__).parents[2]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


async def test_a_process_is_started_again_unless_it_is_held_down(tmp_path: Path) -> None:
    exits: list[int] = []
    log = tmp_path / "log"
    network = Loopback()
    sleeping = network.command("m1", ["sh", "-c", "echo started; exec sleep 600"])

    def starts() -> int:
        return len(log.read_text().splitlines()) if log.exists() else 0

    process = Process("role", "m1", lambda: sleeping, log, lambda _, code: exits.append(code))
    async with child_tasks(process.supervise()):
        process.start()
        await until(lambda: starts() == 1)
        process.send(signal.SIGKILL)  # a crash
        await until(lambda: starts() == 2)
        assert exits == [-signal.SIGKILL]
        await process.end(signal.SIGTERM)
        assert not process.alive
        assert starts() == 2
        process.start()
        await until(lambda: starts() == 3)
        assert process.alive
    assert not process.alive
    assert exits == [-signal.SIGKILL]


def test_the_clock_is_shifted_while_a_program_runs(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    program = f"""
import os, pathlib, signal, time
from tests.robustness.shifted_clock import shift
from setpoint.system import SystemClock
file, clock = pathlib.Path({str(file)!r}), SystemClock()
shift(file)
print(round(clock.now().timestamp() - time.time(), -1))
file.write_text("-3000")
os.kill(os.getpid(), signal.SIGUSR2)
print(round(clock.now().timestamp() - time.time(), -1))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])}
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert [float(line) for line in found.stdout.split()] == [0, -3000]


KUBECTL = """#!/bin/sh
# Answers from m1 are lost after the effect; objects are files.
cd {directory}
for last; do :; done
case "$*" in
*create*) name=$(echo "$*" | sed 's/.*configmap \\([^ ]*\\).*/\\1/')
    [ -e $name ] && echo "error: configmaps $name already exists" >&2 && exit 1
    echo "${{last##*=}}" > $name;;
*--output=name*) ls | grep kubectl- | sed s,^,configmap/,;;
*) name=$(echo "$*" | sed 's/.*configmap \\([^ ]*\\).*/\\1/'); printf %s "$(cat $name)";;
esac
case "$*" in *m1.kubeconfig*) echo "connection lost" >&2; exit 1;; esac
"""


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program called kubectl in front of the path, whose objects are files in the returned directory."""
    directory, programs = tmp_path / "objects", tmp_path / "bin"
    directory.mkdir()
    programs.mkdir()
    (programs / "kubectl").write_text(KUBECTL.format(directory=directory))
    (programs / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return directory


async def test_kubectl_is_repeated_on_the_next_machine(objects: Path, tmp_path: Path) -> None:
    """An object that exists after a lost answer is not an error; one that disappears is."""
    loop = asyncio.get_running_loop()
    kubeconfigs = [tmp_path / f"{machine}.kubeconfig" for machine in ("m1", "m2")]
    kubectl = KubectlLoop(kubeconfigs, tmp_path, loop.time)
    async with child_tasks(kubectl.run()):
        await until(lambda: len(kubectl.created) == 2)
    assert kubectl.repeated == 1
    await kubectl.finish()
    assert kubectl.violations == []
    (objects / "kubectl-1").unlink()
    await kubectl.finish()
    assert [violation.message for violation in kubectl.violations] == ["missing at the end: kubectl-1"]
