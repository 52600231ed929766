"""Runs the agent's own containerd as a process that outlives the agent.

Guarantees:

- The process has a session of its own and no pipe to the agent: the end of the agent does not end it, and a restarted
  agent adopts it. It is in the network namespace in which the agent was when it started it.
- A process is only signalled if its id and its start time are those that were recorded.
- It is restarted with back-off if it ends, and at the start of the agent if its configuration or the version of the
  program changed. Containers are not affected."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from setpoint.meta.clock import Clock
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.containerd_config import (
    ContainerdSettings,
    Version,
    config_text,
    containerd_socket,
    mirror_files,
    parse_version,
    registries_directory,
)
from setpoint.node.host.directories import NodeDirectories

log = logging.getLogger("setpoint.node")

MINIMUM_VERSION: Version = (1, 6, 15)
_START_TIMEOUT, _STOP_TIMEOUT = 30.0, 15.0
_POLL = 0.05
_CHECK_PERIOD = 1.0
"""Seconds between checks whether a process that the agent did not start still runs."""
_FIRST_BACKOFF, _LAST_BACKOFF = 1.0, 30.0
_STABLE_SECONDS = 60.0
"""Seconds after which a process counts as stable, so that the back-off starts again."""
_MAX_LOG_BYTES = 10 << 20
_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ContainerdError(Exception):
    """Containerd cannot be started or stopped."""


class ProcessIdentity(NamedTuple):
    """A process that is not confused with a later one of the same id."""

    pid: int
    started: int
    """The start time in clock ticks since the boot."""

    def alive(self) -> bool:
        return process_start(self.pid) == self.started


def process_start(pid: int) -> int | None:
    """Return the start time of a process that runs; None if there is none, or it has ended and waits to be reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if len(fields) < 20 or fields[0] in "ZX" else int(fields[19])


class ContainerdProcess:
    """The agent's own containerd: `start` it, let `run` supervise it, and `stop` it when the node leaves."""

    def __init__(
        self,
        directories: NodeDirectories,
        pool: BlockingPool,
        clock: Clock,
        settings: ContainerdSettings,
        *,
        program: str = "containerd",
        ping: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Create the process, which is not started. `ping` calls the container runtime, and fails while that is not
        ready; without it, containerd counts as ready when it accepts connections."""
        self._directories = directories
        self._pool = pool
        self._clock = clock
        self._settings = settings
        self._program = program
        self._ping = ping
        self._process: subprocess.Popen[bytes] | None = None
        """The process if this agent started it, to reap it."""
        self._identity: ProcessIdentity | None = None
        self._stopping = False
        self.version: Version | None = None
        """The version of the program; None before `start`."""
        self.on_restart: Callable[[], None] = lambda: None
        """Called after containerd was started again."""

    @property
    def socket(self) -> Path:
        return containerd_socket(self._directories)

    @property
    def endpoint(self) -> str:
        """The address of the socket as a URL."""
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int | None:
        return self._identity.pid if self._identity is not None else None

    @property
    def log_file(self) -> Path:
        return self._directories.containerd / "containerd.log"

    @property
    def _config_file(self) -> Path:
        return self._directories.containerd / "config.toml"

    @property
    def _pid_file(self) -> Path:
        return self._directories.run / "containerd.pid"

    # -- life cycle ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start containerd and wait until it is ready. One that runs already is adopted, and restarted if its
        configuration or the version of the program changed. Raise ContainerdError."""
        self._stopping = False
        await self._pool.run(self._write_config)
        self._identity = await self._pool.run(self._find_running)
        if self._identity is not None and await self._pool.run(self._config_outdated):
            log.info("containerd is restarted because its configuration or version has changed")
            await self._end(self._identity)
            self._identity = None
        if self._identity is None:
            await self._spawn()
        await self._wait_until_ready()

    async def run(self) -> None:
        """Restart containerd when it ends, and bound the size of its log. Call `start` first."""
        backoff, since = _FIRST_BACKOFF, self._clock.monotonic()
        while not self._stopping:
            await self._clock.sleep(_CHECK_PERIOD)
            await self._pool.run(self._rotate_log)
            if self._identity is not None and await self._pool.run(self._alive):
                if self._clock.monotonic() - since >= _STABLE_SECONDS:
                    backoff = _FIRST_BACKOFF
                continue
            if self._stopping:
                return
            log.warning("containerd has ended and is started again in %g s; see %s", backoff, self.log_file)
            await self._clock.sleep(backoff)
            backoff, since = min(2 * backoff, _LAST_BACKOFF), self._clock.monotonic()
            try:
                await self._spawn()
                await self._wait_until_ready()
            except ContainerdError as error:
                log.error("%s", error)
            else:
                self.on_restart()

    async def stop(self) -> None:
        """End containerd, also one that another agent started. Containers go on running. Raise ContainerdError."""
        self._stopping = True
        identity = self._identity or await self._pool.run(self._find_running)
        if identity is not None:
            await self._end(identity)
        self._identity = None
        await self._pool.run(self._remove_run_files)

    async def kill_shims(self) -> int:
        """Kill the shims of this containerd that are left, with the containers in their cgroups to be removed by the
        caller. Return how many there were."""
        return await self._pool.run(_kill_shims, str(self.socket))

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _write_config(self) -> None:
        for directory in (self._directories.containerd, self._directories.run, self._directories.cni):
            directory.mkdir(parents=True, exist_ok=True, mode=0o711)
        self.version = self._program_version()
        text = config_text(self.version, self._directories, self._settings)
        registries = registries_directory(self._directories)
        if registries.exists():
            shutil.rmtree(registries)
        registries.mkdir()
        for name, content in mirror_files(self._settings.registry_mirrors).items():
            path = registries / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        _replace(self._config_file, text)

    def _program_version(self) -> Version:
        try:
            done = subprocess.run(
                [self._program, "--version"], capture_output=True, text=True, timeout=10, check=True, env=_environment()
            )
            version = parse_version(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise ContainerdError(f"cannot run {self._program}: {error}") from error
        if version < MINIMUM_VERSION:
            raise ContainerdError(
                f"containerd {'.'.join(map(str, version))} is too old; "
                f"{'.'.join(map(str, MINIMUM_VERSION))} or later is required"
            )
        return version

    def _recorded(self) -> dict[str, Any]:
        """Return the content of the pid file; empty if it cannot be read."""
        try:
            found = json.loads(self._pid_file.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _find_running(self) -> ProcessIdentity | None:
        """Return the recorded process if it still runs, or one that was started and not recorded any more."""
        recorded = self._recorded()
        try:
            identity = ProcessIdentity(int(recorded["pid"]), int(recorded["started"]))
        except (ValueError, KeyError, TypeError):
            identity = None
        if identity is not None and identity.alive():
            return identity
        return next(_processes("containerd", ("--config", str(self._config_file))), None)

    def _config_outdated(self) -> bool:
        """Return whether the running process was started with another configuration, or is of another version."""
        return self._recorded().get("config") != self._config_digest()

    def _config_digest(self) -> str:
        return hashlib.sha256(f"{self.version}\n".encode() + self._config_file.read_bytes()).hexdigest()

    async def _spawn(self) -> None:
        self._identity = await self._pool.run(self._spawn_blocking)

    def _spawn_blocking(self) -> ProcessIdentity:
        command = [self._program, "--config", str(self._config_file)]
        try:
            with self.log_file.open("ab") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd="/",
                    env=_environment(),
                    start_new_session=True,
                )
        except OSError as error:
            raise ContainerdError(f"cannot start {self._program}: {error}") from error
        self._process = process
        started = process_start(process.pid)
        if started is None:
            raise ContainerdError(f"containerd ended at once; see {self.log_file}")
        identity = ProcessIdentity(process.pid, started)
        _replace(self._pid_file, json.dumps({**identity._asdict(), "config": self._config_digest()}))
        return identity

    async def _wait_until_ready(self) -> None:
        deadline = self._clock.monotonic() + _START_TIMEOUT
        while not await self._is_ready():
            if not await self._pool.run(self._alive):
                raise ContainerdError(f"containerd ended while it started; see {self.log_file}")
            if self._clock.monotonic() > deadline:
                raise ContainerdError(f"containerd does not answer on {self.socket}; see {self.log_file}")
            await self._clock.sleep(_POLL)

    async def _is_ready(self) -> bool:
        try:
            _, writer = await asyncio.open_unix_connection(str(self.socket))
        except OSError:
            return False
        writer.close()
        try:
            if self._ping is not None:
                await self._ping()
        except Exception as error:  # the caller chooses what is called; the runtime starts after the server
            log.debug("containerd is not ready: %s", error)
            return False
        return True

    def _alive(self) -> bool:
        if self._process is not None:
            self._process.poll()  # reaps it
        return self._identity is not None and self._identity.alive()

    async def _end(self, identity: ProcessIdentity) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            await self._pool.run(_signal, identity, number)
            deadline = self._clock.monotonic() + _STOP_TIMEOUT
            while self._clock.monotonic() < deadline:
                if self._process is not None:
                    self._process.poll()
                if not await self._pool.run(identity.alive):
                    return
                await self._clock.sleep(_POLL)
        raise ContainerdError(f"containerd (process {identity.pid}) cannot be stopped")

    def _rotate_log(self) -> None:
        """Copy a large log and truncate it: containerd appends to the same file, which it never opens again."""
        try:
            if self.log_file.stat().st_size > _MAX_LOG_BYTES:
                shutil.copyfile(self.log_file, self.log_file.with_suffix(".log.1"))
                os.truncate(self.log_file, 0)
        except OSError as error:
            log.warning("cannot rotate %s: %s", self.log_file, error)

    def _remove_run_files(self) -> None:
        for path in (self._pid_file, self.socket, self.socket.with_suffix(".sock.ttrpc")):
            path.unlink(missing_ok=True)


def _environment() -> dict[str, str]:
    """Return the agent's environment without what systemd addresses to the agent alone."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(("NOTIFY_", "LISTEN_"))}
    found["PATH"] = ":".join(part for part in (found.get("PATH", ""), _SEARCH_PATH) if part)
    return found


def _signal(identity: ProcessIdentity, number: int) -> None:
    """Send a signal to exactly this process, by a descriptor that cannot refer to a later one of the same id."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except OSError:
        return
    try:
        if identity.alive():
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def _processes(name: str, option: tuple[str, str]) -> Iterator[ProcessIdentity]:
    """Yield the processes of a program with an option; the file name of the program starts with `name`. It may be a
    script, whose interpreter and its options come first."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if option in pairwise(words) and any(Path(word).name.startswith(name) for word in words[:3]):
            started = process_start(int(entry.name))
            if started is not None:
                yield ProcessIdentity(int(entry.name), started)


def _kill_shims(socket: str) -> int:
    found = [*_processes("containerd-shim", ("-address", socket))]
    for each in found:
        _signal(each, signal.SIGKILL)
    return len(found)


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, finds the old content or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
