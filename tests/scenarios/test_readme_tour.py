"""The tour of README.md, line by line in a shell, with a kubeconfig of another cluster in place.

Production is a port on which nobody may knock: every connection to it is a failure."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOREIGN = """
apiVersion: v1
kind: Config
clusters:
- {{name: production, cluster: {{server: "http://127.0.0.1:{port}"}}}}
contexts:
- {{name: production, context: {{cluster: production, user: me, namespace: payments}}}}
users:
- {{name: me, user: {{token: secret}}}}
current-context: production
"""

pytestmark = pytest.mark.slow


class Production:
    """A server that answers nothing, and counts who calls."""

    def __init__(self) -> None:
        self.called: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            self.called.append(peer.recv(200))
            peer.close()

    def close(self) -> None:
        self._socket.close()


class Machine:
    def __init__(self, directory: Path) -> None:
        self.production = Production()
        self.directory = directory / "checkout"
        home = directory / "home"
        (home / ".kube").mkdir(parents=True)
        (home / ".kube" / "config").write_text(FOREIGN.format(port=self.production.port))
        binaries = self.directory / ".venv" / "bin"
        binaries.mkdir(parents=True)
        (binaries / "activate").write_text(f'export PATH="{binaries}:$PATH"\n')
        (binaries / "setpoint").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m setpoint "$@"\n')
        (binaries / "setpoint").chmod(0o755)
        self.environment = {
            "HOME": str(home),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT / "src"),
            "TERM": "xterm",
        }

    def paste(self, *lines: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", "\n".join(lines)],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def on_terminal(self, keys: bytes, until: str, *lines: str) -> str:
        """What a terminal shows until the text is there; then the keys are pressed, which must end it."""
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(self.directory)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # which shells ignore in programs in the background
            os.execve("/bin/bash", ["bash", "-c", "\n".join(lines)], self.environment)
        shown, deadline, pressed = b"", time.monotonic() + 60, False
        try:
            while time.monotonic() < deadline:
                if select.select([terminal], [], [], 0.1)[0]:
                    try:
                        shown += os.read(terminal, 65536)
                    except OSError:
                        break
                if not pressed and until.encode() in shown:
                    os.write(terminal, keys)
                    pressed = True
            else:
                os.kill(process, signal.SIGKILL)
                screen = shown[-3000:].decode(errors="replace")
                raise AssertionError(f"{until!r} was not shown, or {keys!r} did not end it: {screen}")
        finally:
            os.waitpid(process, 0)
            os.close(terminal)
        return shown.decode("utf-8", "replace")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    try:
        yield made
    finally:
        made.paste(".venv/bin/setpoint down")
        made.production.close()


def tour() -> list[str]:
    text = (ROOT / "README.md").read_text().partition("## A tour")[2]
    commands: str = FENCE.findall(text)[0]
    return commands.splitlines()


def test_the_tour_works_and_changes_no_other_cluster(machine: Machine) -> None:
    activate, *lines = tour()
    assert activate.startswith("source .venv/bin/activate")
    assert lines[-1].startswith("setpoint watch")
    started = machine.paste(".venv/bin/setpoint up --detach --port 0")
    assert started.returncode == 0, started.stderr
    for line in lines[:-1]:
        if "--watch" in line:
            shown = machine.on_terminal(b"\x03", "CrashLoopBackOff", activate, line)
            assert "using the cluster of this directory (.setpoint), not context production of ~/.kube/config" in shown
            continue
        done = machine.paste(activate, line)
        assert (done.returncode, done.stderr) == (0, ""), f"{line}: {done.stderr}"
        assert done.stdout, line
    shown = machine.on_terminal(b"q", "deployment/web", activate, lines[-1])
    assert "6/6" in shown
    assert not machine.production.called


def test_a_stopped_or_missing_cluster_never_redirects_to_another(machine: Machine) -> None:
    """The cluster of this directory is not running; lessons and the like are elsewhere than any cluster."""
    setpoint = f'"{machine.directory}/.venv/bin/setpoint"'
    assert machine.paste(f"{setpoint} up --detach --port 0 --nodes 1").returncode == 0
    assert machine.paste(f"{setpoint} lesson 1 --check").returncode == 1
    assert machine.paste("mkdir -p a/b; cd a/b", f"{setpoint} down").returncode == 0
    for line in ("get pods", "delete pods --all", "lesson 1 --check", "nodes add", "watch --once", "status", "logs x"):
        done = machine.paste(f"{setpoint} {line}")
        assert done.returncode == 1, line
        assert "running" in done.stdout + done.stderr, line
    for line in (
        "lesson 1 --check",
        "nodes add",
        "nodes remove --all",
        "nodes --nodes 1",
        "scheduler",
        "status",
        "controller-manager",
        "demo 1 --no-wait",
    ):
        machine.paste("mkdir -p ../elsewhere; cd ../elsewhere", f"timeout 60 {setpoint} {line}")
    assert not machine.production.called
