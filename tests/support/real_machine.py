"""A machine for tests with real containers: a network namespace, a directory and a cgroup of its own.

Every process, mount, cgroup and file of a machine carries its name, which holds the process that made it. So `destroy`
finds all of them without help from the programs that made them, and `remove_stale` does the same for machines of test runs
that were killed. Nothing outside is touched: the machine's default sockets, network and cgroups stay as they are.

A process is on a machine if it is in its network namespace, which it does not have to be started in: `entered` moves the
calling thread there, and the processes and threads that it starts afterwards. Tests call it from the main thread, in a
fixture. Programs do not see a different /sys there, unlike with `ip netns exec`, which would hide the cgroups.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

_PREFIX = "setpoint-real"
_NAME = re.compile(rf"{_PREFIX}-(?P<pid>\d+)-(?P<start>\d+)-\d+")
_VARIABLE = "SETPOINT_TEST_MACHINE"
_CLONE_NEWNET = 0x40000000
_CNI_RESULTS = Path("/var/lib/cni/results")
_END_TIMEOUT = 20.0
_counter = itertools.count(1)

ADDRESS = "172.31.0.11"
"""The address of a machine. Pods reach it; other machines do so once a network connects them, see `Lab.connect`."""


class RealMachine:
    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = Path(tempfile.gettempdir()) / name
        """Everything that programs of this machine write is below it. It is short: names of sockets are limited."""
        self.namespace = self.directory / "netns"
        self.cgroup_root = f"/{name}"
        self.node_cgroup_root = f"/{name}-node"
        """The cgroup that belongs to the node agent alone, which may remove it."""
        self.address = ADDRESS
        self.logs: list[Path] = []
        """Files with the output of programs, which are shown with the tests that fail."""

    @classmethod
    def create(cls, address: str = ADDRESS) -> Self:
        machine = cls(f"{_PREFIX}-{os.getpid()}-{_start_of(os.getpid())}-{next(_counter)}")
        machine.address = address
        machine.directory.mkdir(mode=0o755)
        try:
            machine._create()
        except BaseException:
            machine.destroy()
            raise
        return machine

    def _create(self) -> None:
        # On most machines the root directory is shared, which the propagation of mounts needs.
        _run("mount", "--bind", str(self.directory), str(self.directory))
        _run("mount", "--make-rshared", str(self.directory))
        (self.directory / "tmp").mkdir(mode=0o1777)
        self.namespace.touch()
        _run("unshare", f"--net={self.namespace}", "true")
        # The peer is in the same namespace and has no address: what leaves by the default route is lost.
        self.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "uplink")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        for link in ("eth0", "uplink"):
            # Addresses of IPv6 would appear some time later.
            self.run("ip", "link", "set", link, "addrgenmode", "none")
        for link in ("lo", "eth0", "uplink"):
            self.run("ip", "link", "set", link, "up")
        self.run("ip", "route", "add", "default", "via", self.router, "dev", "eth0")
        # An address that does not answer is unreachable after 0.2 seconds, not after 3.
        neighbours = "/proc/sys/net/ipv4/neigh/eth0"
        settings = {
            f"{neighbours}/mcast_solicit": 1,
            f"{neighbours}/retrans_time_ms": 200,
            "/proc/sys/net/ipv4/ip_forward": 1,
        }
        self.run("sh", "-c", "; ".join(f"echo {value} > {path}" for path, value in settings.items()))

    @property
    def router(self) -> str:
        """The address of the default route."""
        return f"{self.address.rpartition('.')[0]}.1"

    # -- running ------------------------------------------------------------------------------------------------------

    def command(self, command: Sequence[str | Path]) -> list[str]:
        """Return the command line that runs a command in the network namespace."""
        return ["nsenter", f"--net={self.namespace}", *map(str, command)]

    def run(self, *command: str | Path) -> str:
        """Run a command on the machine and return what it prints. Raises AssertionError if it fails."""
        return _run(*self.command(command))

    def environment(self) -> dict[str, str]:
        return {**os.environ, _VARIABLE: self.name, "TMPDIR": str(self.directory / "tmp")}

    def spawn(
        self, command: Sequence[str | Path], log: Path, *, reported: bool = True, **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start a process on the machine, in a session of its own, with its output in a file."""
        if reported and log not in self.logs:
            self.logs.append(log)
        with log.open("ab") as output:
            return subprocess.Popen(
                self.command(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**self.environment(), **environment},
                start_new_session=True,
            )

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move the calling thread into the network namespace, and back at the end."""
        with open("/proc/thread-self/ns/net") as outside, open(self.namespace) as inside:
            _set_namespace(inside.fileno())
            try:
                yield
            finally:
                _set_namespace(outside.fileno())

    # -- removal ------------------------------------------------------------------------------------------------------

    def destroy(self) -> None:
        """End and remove everything that belongs to the machine. Raises AssertionError with what is left."""
        deadline = time.monotonic() + _END_TIMEOUT
        shim_sockets = list(self._shim_sockets())
        while (pids := self.processes()) and time.monotonic() < deadline:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _reap(pids)
            time.sleep(0.02)
        for mount in reversed(self.mounts()):
            subprocess.run(["umount", "--lazy", mount], capture_output=True)
        while (groups := self.cgroups()) and time.monotonic() < deadline:
            for group in groups:  # the innermost first
                with suppress(OSError):
                    group.rmdir()
            time.sleep(0.02)
        for path in (*shim_sockets, *self._cni_results()):
            path.unlink(missing_ok=True)
        left = self.leftovers()
        assert not left, f"{self.name} is not removed: {left}"
        shutil.rmtree(self.directory, ignore_errors=True)
        assert not self.directory.exists(), f"{self.directory} is not removed"

    def leftovers(self) -> list[str]:
        """Return the processes, mounts and cgroups of the machine that exist."""
        found = [f"process {pid}: {_command_line(pid)}" for pid in self.processes()]
        found += [f"mount {mount}" for mount in self.mounts()]
        return found + [f"cgroup {group}" for group in self.cgroups()]

    def processes(self) -> list[int]:
        """Return the ids of all processes of the machine except this one, also of those that daemonized."""
        mark = f"{_VARIABLE}={self.name}\0".encode()
        directory = f"{self.directory}/".encode()
        namespace = _inode(self.namespace)
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with suppress(OSError):  # it ended
                if (
                    mark in (entry / "environ").read_bytes()
                    or directory in (entry / "cmdline").read_bytes()
                    or any(f":{root}/" in (entry / "cgroup").read_text() for root in self._cgroup_roots)
                    or (namespace is not None and _inode(entry / "ns" / "net") == namespace)
                ):
                    found.append(int(entry.name))
        return found

    def mounts(self) -> list[str]:
        """Return the mount points of the machine in the order in which they were mounted."""
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        plain = [re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), point) for point in points]
        return [point for point in plain if Path(point).is_relative_to(self.directory)]

    def cgroups(self) -> list[Path]:
        """Return the cgroups of the machine in all hierarchies, children before their parents."""
        found = []
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields, _, kind = line.partition(" - ")
            if kind.startswith("cgroup"):
                for root in self._cgroup_roots:
                    found += [Path(path) for path, _, _ in os.walk(fields.split()[4] + root, topdown=False)]
        return found

    @property
    def _cgroup_roots(self) -> tuple[str, str]:
        return self.cgroup_root, self.node_cgroup_root

    def _shim_sockets(self) -> Iterator[Path]:
        """Yield the sockets of containerd's shims, which are outside of its directories."""
        # Not rglob, which fails if containerd removes a directory meanwhile.
        states = [
            Path(path) for path, _, _ in os.walk(self.directory) if path.endswith("/io.containerd.runtime.v2.task")
        ]
        for state in states:
            # The second file is that of containerd 2.x.
            for file in (*state.glob("*/*/address"), *state.glob("*/*/bootstrap.json")):
                with suppress(OSError):
                    yield from map(Path, re.findall(r'unix://([^"\s]+)', file.read_text()))

    def _cni_results(self) -> Iterator[Path]:
        """Yield the files that the CNI library keeps outside of containerd's directories."""
        mark = f"{self.directory}/".encode()
        for path in _CNI_RESULTS.glob("*"):
            with suppress(OSError):
                if mark in path.read_bytes():
                    yield path


def remove_stale() -> None:
    """Remove the machines of test runs that do not exist any more."""
    parent = Path(tempfile.gettempdir())
    with (parent / f"{_PREFIX}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in parent.glob(f"{_PREFIX}-*"):
            found = _NAME.fullmatch(path.name)
            if found and _start_of(int(found["pid"])) != found["start"]:
                RealMachine(path.name).destroy()


def wait_until(condition: Callable[[], object], seconds: float, failure: Callable[[], str]) -> None:
    """Wait for something that another process does. Raises AssertionError with the text of `failure`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, failure()
        time.sleep(0.05)


def _start_of(pid: int) -> str:
    """Return when a process started, in ticks since the machine did; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return "ended"


def _reap(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _set_namespace(descriptor: int) -> None:
    # os.setns is there from Python 3.12 on.
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout
