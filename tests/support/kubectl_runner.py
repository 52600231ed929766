"""Runs real kubectl binaries, every version in its own namespace, several at a time."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import Result, typed_offline
from effort import THOROUGH
from kubectl_environment import kubectl_environment


def kubectls() -> list[Path]:
    """The oldest and the newest kubectl beside the one on the path (some distributions ship several versions), or all
    of them with SETPOINT_THOROUGH; and those that are named in SETPOINT_TEST_KUBECTL."""
    found = [Path(path) for path in os.environ.get("SETPOINT_TEST_KUBECTL", "").split(os.pathsep) if path]
    installed = shutil.which("kubectl")
    if installed:
        real = Path(installed).resolve()
        versions = sorted(real.parent.glob("kubectl.[0-9]*")) or [real]
        found += versions if THOROUGH else sorted({versions[0], versions[-1]})
    return found


@dataclass(frozen=True, slots=True)
class Kubectl:
    binary: Path
    kubeconfig: Path
    home: Path
    namespace: str

    @property
    def minor(self) -> int:
        found = re.search(r"1\.(\d+)", self.binary.name)
        return int(found[1]) if found else 99

    def run(self, *args: str, stdin: str = "", timeout: float = 60.0, **environment: str) -> Result:
        command = [str(self.binary), "--kubeconfig", str(self.kubeconfig), "-n", self.namespace, *args]
        env = kubectl_environment(self.home, KUBECTL_EXTERNAL_DIFF="diff -u -N", **environment)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, env=env)
        return Result(done.returncode, done.stdout, done.stderr)

    def __call__(self, *args: str, stdin: str = "", **environment: str) -> str:
        """What it prints; it must succeed."""
        result = self.run(*args, stdin=stdin, timeout=60.0, **environment)
        assert result.code == 0, f"{self.binary.name} {' '.join(args)}: {result.err or result.out}"
        return result.out

    def refused(self, *args: str, stdin: str = "") -> str:
        """What it says when it fails; it must fail."""
        result = self.run(*args, stdin=stdin)
        assert result.code != 0, f"{self.binary.name} {' '.join(args)} succeeded: {result.out}"
        return result.err

    def get(self, *args: str) -> Any:
        return json.loads(self("get", *args, "-o", "json"))


class Setpoint(Kubectl):
    """Our own command line in kubectl's place, in this process: to start one for each line would be most of its work.
    `binary` is called only by those who need a process."""

    def run(self, *args: str, stdin: str = "", timeout: float = 60.0, **environment: str) -> Result:
        words = ["--kubeconfig", str(self.kubeconfig), "-n", self.namespace, *args]
        return typed_offline(shlex.join(words), self.home, stdin, PATH=os.environ["PATH"], **environment)


def until(check: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Asks again and again, more seldom as time goes on: asking is work, too, for a machine that has other work."""
    deadline, pause = time.monotonic() + seconds, 0.1
    while True:
        found = check()
        if found or time.monotonic() > deadline:
            assert found, "it did not come to that"
            return found
        time.sleep(pause)
        pause = min(1.5 * pause, 0.5)


class Versions:
    """The oldest and the newest tell every story; those between take turns, so that a run stays short. All of them tell
    all of it when SETPOINT_TEST_EVERY_KUBECTL is set."""

    def __init__(self, kubectls: list[Kubectl]) -> None:
        self.all = kubectls
        self._turn = 0

    def each(self, story: Callable[[Kubectl], None], least: int = 0, most: int = 99) -> None:
        """Several at a time; all failures are told. `least` and `most` are minor versions."""
        fitting = [one for one in self.all if least <= one.minor <= most]
        chosen = fitting
        if len(fitting) > 3 and not os.environ.get("SETPOINT_TEST_EVERY_KUBECTL"):
            self._turn += 1
            chosen = [fitting[0], fitting[1 + self._turn % (len(fitting) - 2)], fitting[-1]]
        with ThreadPoolExecutor(4) as pool:
            told = [(one, pool.submit(story, one)) for one in chosen]
        failures = [f"{one.binary.name}: {done.exception()}" for one, done in told if done.exception()]
        assert not failures, "\n\n".join(failures)
