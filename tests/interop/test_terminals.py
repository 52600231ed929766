"""On a real terminal: single keys, its size, Ctrl-C, and its state afterwards."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import typed_offline
from up_process import up_process

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Its kubeconfig; there are a Pod `web`, which says nothing, and a Pod `clock`, which goes on and on."""
    home = tmp_path_factory.mktemp("home")
    with up_process(tmp_path_factory.mktemp("up"), "--nodes", "1", "--authorization-mode", "Node,RBAC") as kubeconfig:
        for line in (
            "run web --image=nginx",
            "run clock --image=busybox -- sh -c 'while true; do echo tick; sleep 1; done'",
            "wait pod/web pod/clock --for=condition=Ready --timeout=30s",
        ):
            done = typed_offline(line, home, KUBECONFIG=str(kubeconfig))
            assert done.code == 0, done.err
        yield kubeconfig


class Terminal:
    """A person at `setpoint`."""

    def __init__(self, kubeconfig: Path, *words: str) -> None:
        self.pid, self._fd = pty.fork()
        if not self.pid:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # jobs in the background are deaf to it
            environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "TERM": "dumb"}
            os.execve(sys.executable, [sys.executable, "-m", "setpoint", *words], environment)
        self.seen = ""

    def until(self, text: str, seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self._fd], [], [], 0.1)[0]:
                self.seen += os.read(self._fd, 4096).decode()

    def type(self, keys: str) -> None:
        self.seen = ""
        os.write(self._fd, keys.encode())

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until_raw(self, seconds: float = 20.0) -> None:
        """Wait until control characters are keys for the program; before, the terminal handles them."""
        end = time.monotonic() + seconds
        while not self.is_raw:
            assert time.monotonic() < end, self.seen
            time.sleep(0.01)

    @property
    def is_raw(self) -> bool:
        return not termios.tcgetattr(self._fd)[3] & (termios.ECHO | termios.ICANON)

    def end(self) -> int:
        """The exit code; negative: the signal that ended it."""
        end = time.monotonic() + 45
        while True:
            if select.select([self._fd], [], [], 0.05)[0]:
                with suppress(OSError):  # nobody is at the other end any more
                    self.seen += os.read(self._fd, 4096).decode()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            assert time.monotonic() < end, self.seen


def test_an_interactive_shell(cluster: Path) -> None:
    person = Terminal(cluster, "exec", "-it", "web", "--", "sh")
    person.until("/ # ")
    assert person.is_raw
    person.resize(50, 132)
    person.type("echo it works\r")
    person.until("it works\r\n/ # ")
    person.type("half a line\x03")  # is the shell's business
    person.until("^C\r\n")
    person.type("exit 3\r")
    assert person.end() == 3
    assert "command terminated with exit code 3" in person.seen
    assert not person.is_raw


def test_every_exit_restores_the_terminal(cluster: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        person = Terminal(cluster, "exec", "-it", "web", "--", "sh")
        person.until("/ # ")
        assert person.is_raw
        os.kill(person.pid, number)
        assert person.end() == -number
        assert not person.is_raw


def test_ctrl_c(cluster: Path) -> None:
    for words in (
        ("exec", "web", "--", "sh", "-c", "echo tick; sleep 100"),
        ("logs", "-f", "clock"),
        ("attach", "clock"),
    ):
        person = Terminal(cluster, *words)
        person.until("tick")
        person.type("\x03")
        assert person.end() == 130, words
        assert "Traceback" not in person.seen


def test_run_with_a_terminal(cluster: Path) -> None:
    person = Terminal(cluster, "run", "-it", "--rm", "talk", "--image=busybox", "--restart=Never", "--", "sh")
    person.until("/ # ")
    person.type("echo it works\r")
    person.until("it works\r\n/ # ")
    person.type("exit\r")
    assert person.end() == 0
    assert 'pod "talk" deleted' in person.seen


def test_detach_keys(cluster: Path, tmp_path: Path) -> None:
    typed_offline("run stays --image=busybox -i -t --attach=false -- sh", tmp_path, KUBECONFIG=str(cluster))
    typed_offline("wait pod/stays --for=condition=Ready --timeout=30s", tmp_path, KUBECONFIG=str(cluster))
    person = Terminal(cluster, "attach", "-it", "stays")
    person.until("try pressing enter")
    person.type("\r")
    person.until("/ # ")
    person.type("\x10\x11")
    assert person.end() == 0
    assert "Session ended, resume using 'setpoint attach stays -c stays -n default -i -t' command" in person.seen
    # The shell goes on, and another client can attach.
    person = Terminal(cluster, "attach", "-it", "stays")
    person.until("try pressing enter")
    assert "Running" in typed_offline("get pod stays", tmp_path, KUBECONFIG=str(cluster)).out
    person.until_raw()
    person.type("\x10\x11")
    assert person.end() == 0


def test_forbidden_and_unreachable(cluster: Path, tmp_path: Path) -> None:
    for line in ("exec web -- ls", "attach web", "port-forward web 80", "cp web:/x y", "debug web --image=i"):
        done = typed_offline(
            f"{line} --as=nobody".replace(" -- ls --as=nobody", " --as=nobody -- ls"), tmp_path, KUBECONFIG=str(cluster)
        )
        assert done.code == 1 and "Error from server (Forbidden):" in done.err, line
        gone = typed_offline(f"--server=https://127.0.0.1:1 {line}", tmp_path, KUBECONFIG=str(cluster))
        assert gone.code == 1 and "refused" in gone.err, line
