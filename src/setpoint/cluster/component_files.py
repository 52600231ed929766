"""Files of components that run as processes of their own, in the data directory of the cluster.

Each process has a manifest and a log in `DATA_DIR/components` while it runs. The process of the simulated nodes shows
them as static Pods of its first node, like a kubelet with a manifest directory, and serves their logs. Of several
processes of one component, the one that started first is shown."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from setpoint import __version__
from setpoint.cluster.klog import KlogFormatter, LogFilter
from setpoint.cluster.private_files import write_private
from setpoint.meta.clock import Clock
from setpoint.meta.times import format_micro, parse_time
from setpoint.node.runtime.interface import STDERR, LogLine
from setpoint.node.static_pods import StaticPod

FOLDER = "components"
_MAX_LOG_BYTES = 2 << 20
"""Size at which a log is rotated; one rotated log is kept."""
_MAX_LINES = 2000
_MAX_MANIFESTS = 32
_POLL_INTERVAL, _LOG_POLL_INTERVAL = 2.0, 0.5
"""Seconds between two reads of the manifests, and of a log that a client follows."""


@contextmanager
def component_files(directory: Path | None, component: str, clock: Clock) -> Iterator[None]:
    """Write the files of this process while the block runs; do nothing if `directory` is None."""
    if directory is None:
        yield
        return
    folder = directory / FOLDER
    base = folder / f"{component}.{os.getpid()}"
    log, manifest = base.with_name(f"{base.name}.log"), base.with_name(f"{base.name}.json")
    ours = logging.getLogger("setpoint")
    before = ours.level
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for stale in _stale_files(folder, component):
            stale.unlink(missing_ok=True)
        handler = _FileHandler(log, clock)
        content = {"component": component, "pid": os.getpid(), "command": ["setpoint", *sys.argv[1:]]}
        write_private(manifest, json.dumps({**content, "started": format_micro(clock.now())}).encode())
    except OSError:
        yield  # the component also works without its files: another user's directory, or a full disk
        return
    handlers: list[logging.Handler] = [handler]
    if not logging.getLogger().handlers and not ours.handlers and logging.lastResort is not None:
        handlers.append(logging.lastResort)
    ours.setLevel(logging.INFO)
    for each in handlers:
        ours.addHandler(each)
    try:
        yield
    finally:
        for each in handlers:
            ours.removeHandler(each)
        ours.setLevel(before)
        handler.close()
        for path in (manifest, log, _rotated(log)):
            with suppress(OSError):
                path.unlink()


class Manifest(NamedTuple):
    """The manifest of one process."""

    component: str
    pid: int
    command: tuple[str, ...]
    started: datetime
    log: Path


class ComponentPods:
    """The components of a data directory as static Pods."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._folder = directory / FOLDER
        self._clock = clock

    async def follow(self, changed: Callable[[Sequence[StaticPod]], None]) -> None:
        """Call `changed` with all Pods now and whenever a component starts or ends. Never returns."""
        before: list[Manifest] | None = None
        while True:
            found = list(self._current().values())
            if found != before:
                changed([self._pod(manifest) for manifest in found])
                before = found
            await self._clock.sleep(_POLL_INTERVAL)

    def _current(self) -> dict[str, Manifest]:
        found = sorted(_manifests(self._folder), key=lambda manifest: manifest.started)
        return {one.component: one for one in reversed(found) if _alive(one.pid)}

    def _pod(self, manifest: Manifest) -> StaticPod:
        image = f"setpoint.dev/{manifest.component}:v{__version__}"
        log = FileLog(manifest.log, self._clock)
        return StaticPod(manifest.component, image, manifest.command, manifest.started, log)


class FileLog:
    """A ContainerLog that another process writes in the format of container runtimes."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def lines(self) -> Sequence[LogLine]:
        found = [line for path in (_rotated(self._path), self._path) for line in _lines(_read(path, 0)[0])]
        return found[-_MAX_LINES:]

    async def follow(self) -> AsyncIterator[LogLine]:
        for line in self.lines():
            yield line
        identity, size = _identity(self._path)
        while identity:
            await self._clock.sleep(_LOG_POLL_INTERVAL)
            now, _ = _identity(self._path)
            if now != identity:
                # The log was rotated: read the rest of the rotated file first.
                for line in _lines(_read(_rotated(self._path) if now else self._path, size)[0]):
                    yield line
                identity, size = now, 0
            data, size = _read(self._path, size)
            for line in _lines(data):
                yield line


class _FileHandler(logging.Handler):
    """Writes lines in the format of container runtimes: time, stream, F for a full line, text."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(logging.INFO)
        self._path = path
        self._clock = clock
        self._klog = KlogFormatter()
        self._file = _create(path)
        self.addFilter(LogFilter(clock.monotonic))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            now = self._clock.now()
            stamp = format_micro(now)
            for line in self._klog.line(record, now).splitlines():
                self._file.write(f"{stamp} {STDERR} F {line}\n".encode("utf-8", "replace"))
            self._file.flush()
            if self._file.tell() > _MAX_LOG_BYTES:
                self._file.close()
                os.replace(self._path, _rotated(self._path))
                self._file = _create(self._path)
        except (OSError, ValueError):
            pass  # the component also works without a log, for example with a full disk

    def close(self) -> None:
        self._file.close()
        super().close()


def _create(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _rotated(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def _identity(path: Path) -> tuple[int, int]:
    """Return inode and size of the file; zeros if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_size


def _read(path: Path, start: int) -> tuple[bytes, int]:
    """Return the complete lines from offset `start` on, and the offset at which they end."""
    try:
        with open(path, "rb") as file:
            file.seek(start)
            data = file.read(_MAX_LOG_BYTES + 65536)
    except OSError:
        return b"", start
    whole = data[: data.rfind(b"\n") + 1]
    return whole, start + len(whole)


def _lines(data: bytes) -> Iterator[LogLine]:
    for line in data.decode("utf-8", "replace").splitlines():
        stamp, _, rest = line.partition(" ")
        stream, _, text = rest.partition(" F ")
        with suppress(ValueError):
            yield LogLine(parse_time(stamp).timestamp(), stream, f"{text}\n")


def _manifests(folder: Path) -> Iterator[Manifest]:
    with suppress(OSError):
        for path in sorted(folder.glob("*.json"))[:_MAX_MANIFESTS]:
            with suppress(OSError, ValueError, LookupError, TypeError):
                content = json.loads(path.read_bytes())
                command = tuple(str(word) for word in content["command"])
                started = parse_time(content["started"])
                component, pid = str(content["component"]), int(content["pid"])
                yield Manifest(component, pid, command, started, path.with_suffix(".log"))


def _stale_files(folder: Path, component: str) -> Iterator[Path]:
    """Yield the files of processes of this component that have ended."""
    for manifest in _manifests(folder):
        if manifest.component == component and not _alive(manifest.pid):
            yield from (manifest.log.with_suffix(".json"), manifest.log, _rotated(manifest.log))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0
