"""The machines of a control plane, each a data directory on this machine, on which the commands of a page are run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command_line import Result, typed_offline
from etcd_process import HINT, free_port

_DEADLINE = 60.0
_ADDRESS = "127.0.0.1"
_FENCE = re.compile(r"^```\n# machine (\d)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^##+ (.+)\n", re.MULTILINE)


class Block(NamedTuple):
    """A block of commands, for the machine that its first line names."""

    machine: int
    lines: list[str]


def blocks(page: str, heading: str) -> list[Block]:
    """Return the blocks of commands below a heading of a page."""
    parts = _HEADING.split(page)
    content = parts[parts.index(heading) + 1]
    return [Block(int(number), text.strip().splitlines()) for number, text in _FENCE.findall(content)]


def require_etcd() -> None:
    """Skip the test where etcd is not installed, unless it must be."""
    if shutil.which("etcd") is None:
        assert not os.environ.get("SETPOINT_REQUIRE_ETCD"), HINT
        pytest.skip(HINT)


class Machine:
    def __init__(self, home: Path, number: int) -> None:
        self._home = home
        self.directory = home / f"machine-{number}"
        ports = {"port": 0, "etcd-client-port": free_port(), "etcd-peer-port": free_port()}
        self._flags = [f"--{flag}={value}" for flag, value in ports.items()]

    def setpoint(self, *words: str) -> str:
        """Run a command of the page as it stands there, and return what it prints. It must succeed."""
        more = [f"--data-dir={self.directory}"]
        if words[0] == "up":
            more += [f"--advertise-address={_ADDRESS}", *self._flags]
        done = subprocess.run(self.command(*words, *more), cwd=self._home, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"setpoint {' '.join(words)}: {done.stderr}{self.logs()}"
        return done.stdout

    def fails(self, *words: str) -> str:
        """Run a command that must fail, and return its error message."""
        done = subprocess.run(
            self.command(*words, f"--data-dir={self.directory}"), cwd=self._home, capture_output=True, text=True
        )
        assert done.returncode == 1, done.stdout
        return done.stderr

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "setpoint", *words]

    def start_joining(self, url: str, token: str, *more: str) -> subprocess.Popen[bytes]:
        flags = [*self._flags, f"--advertise-address={_ADDRESS}", f"--data-dir={self.directory}", *more]
        command = self.command("up", "--join", url, "--token", token, *flags)
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the machine again, without waiting until it is ready."""
        command = self.command("up", *self._flags, f"--data-dir={self.directory}")
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def status(self) -> str:
        """Return what `setpoint status` prints, whatever its exit code is."""
        command = self.command("status", f"--data-dir={self.directory}")
        return subprocess.run(command, cwd=self._home, capture_output=True, text=True).stdout

    def kubectl(self, line: str) -> Result:
        """Run a command as the administrator, through the API server of this machine."""
        return typed_offline(line, self._home, KUBECONFIG=str(self.directory / "admin.kubeconfig"))

    def does(self, line: str) -> str:
        """Run a command through this machine's API server until it succeeds, and return what it prints."""
        deadline = time.monotonic() + _DEADLINE
        while (done := self.kubectl(line)).code != 0:
            assert time.monotonic() < deadline, f"setpoint {line}: {done.err}{self.logs()}"
            time.sleep(0.1)
        return done.out

    @property
    def name(self) -> str:
        """The name of its member of etcd."""
        return str(self.record["name"])

    @property
    def record(self) -> dict[str, Any]:
        """What is recorded about its member of etcd."""
        found: dict[str, Any] = json.loads((self.directory / "etcd-member.json").read_bytes())
        return found

    def die(self) -> None:
        """Lose the whole machine: no process has time to do anything."""
        with suppress(OSError, ValueError):
            pid = int(json.loads((self.directory / "running.json").read_bytes())["pid"])
            os.kill(pid, signal.SIGKILL)

    def kill_etcd(self) -> None:
        """Kill the etcd of this machine, and nothing else."""
        pid = int(json.loads((self.directory / "running.json").read_bytes())["pid"])
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)

    def logs(self) -> str:
        found = [self.directory / name for name in ("up.log", "etcd.log")]
        return "".join(f"\n-- {path.name}\n{path.read_text()[-2000:]}" for path in found if path.exists())


class ControlPlane:
    """Machines by number. The page's placeholders are replaced: by the token that was printed last, and by the name of
    the member to remove."""

    def __init__(self, home: Path) -> None:
        self._machines = {number: Machine(home, number) for number in (1, 2, 3)}
        self._printed = ""
        self.removed = ""

    def __getitem__(self, number: int) -> Machine:
        return self._machines[number]

    @property
    def join(self) -> tuple[str, str]:
        """URL and token of the command that was printed last."""
        found = re.search(r"up --join (\S+) --token (\S+)", self._printed)
        assert found is not None, self._printed
        return found[1], found[2]

    def run(self, block: Block) -> str:
        """Run a block, and return what its commands print."""
        printed = ""
        for line in block.lines:
            program, *words = shlex.split(line)
            if program != "setpoint":
                continue  # pip
            if "--join" in words:
                words[words.index("--join") + 1], words[words.index("--token") + 1] = self.join
            words = [self.removed if word == "NAME" else word for word in words]
            output = self[block.machine].setpoint(*words)
            if words[:2] == ["token", "create"]:
                self._printed = output
            printed += output
        return printed

    def stop(self) -> None:
        for machine in self._machines.values():
            machine.die()
