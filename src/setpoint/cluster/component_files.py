"""The components of a control plane that run as processes of their own, as files in its data directory.

Each keeps a manifest and a log in `DATA_DIR/components`, as long as it runs. The process of the simulated nodes shows
them as static Pods of its first node, as a kubelet shows what is in its manifest directory, and serves their logs. Of
several processes of one component the one that was started first is shown."""

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
from setpoint.cluster.klog import KlogLines
from setpoint.cluster.log_filter import LogFilter
from setpoint.cluster.private_files import write_private
from setpoint.meta.clock import Clock
from setpoint.meta.times import format_micro, parse_time
from setpoint.node.runtime.interface import STDERR, LogLine
from setpoint.node.static_pods import StaticPod

FOLDER = "components"
_LARGEST = 2 << 20
"""Bytes of a log; then it is begun anew, and the one before it is kept."""
_MOST_LINES = 2000
_MOST_MANIFESTS = 32
_LOOK_EVERY, _READ_EVERY = 2.0, 0.5


@contextmanager
def component_files(directory: Path | None, component: str, clock: Clock) -> Iterator[None]:
    """Show this process as the component, for as long as the block runs. None: there is no data directory."""
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
        for stale in _left_behind(folder, component):
            stale.unlink(missing_ok=True)
        handler = _FileHandler(log, clock)
        told = {"component": component, "pid": os.getpid(), "command": ["setpoint", *sys.argv[1:]]}
        write_private(manifest, json.dumps({**told, "started": format_micro(clock.now())}).encode())
    except OSError:
        yield  # somebody else's directory, or a full disk: no reason not to work
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
        for path in (manifest, log, _older(log)):
            with suppress(OSError):
                path.unlink()


class Manifest(NamedTuple):
    component: str
    pid: int
    command: tuple[str, ...]
    started: datetime
    log: Path


class ComponentPods:
    """The static Pods that the components of a data directory are."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._folder = directory / FOLDER
        self._clock = clock

    async def follow(self, changed: Callable[[Sequence[StaticPod]], None]) -> None:
        """Call `changed` with all of them now and whenever a component starts or ends. Never returns."""
        before: list[Manifest] | None = None
        while True:
            found = list(self._shown().values())
            if found != before:
                changed([self._pod(manifest) for manifest in found])
                before = found
            await self._clock.sleep(_LOOK_EVERY)

    def _shown(self) -> dict[str, Manifest]:
        found = sorted(_manifests(self._folder), key=lambda manifest: manifest.started)
        return {one.component: one for one in reversed(found) if _alive(one.pid)}

    def _pod(self, manifest: Manifest) -> StaticPod:
        image = f"setpoint.dev/{manifest.component}:v{__version__}"
        log = FileLog(manifest.log, self._clock)
        return StaticPod(manifest.component, image, manifest.command, manifest.started, log)


class FileLog:
    """A ContainerLog that another process writes, one line of the runtime's form after the other."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def lines(self) -> Sequence[LogLine]:
        found = [line for path in (_older(self._path), self._path) for line in _lines(_read(path, 0)[0])]
        return found[-_MOST_LINES:]

    async def follow(self) -> AsyncIterator[LogLine]:
        for line in self.lines():
            yield line
        identity, size = _identity(self._path)
        while identity:
            await self._clock.sleep(_READ_EVERY)
            now, _ = _identity(self._path)
            if now != identity:
                # Begun anew: the rest of the one before has another name now.
                for line in _lines(_read(_older(self._path) if now else self._path, size)[0]):
                    yield line
                identity, size = now, 0
            data, size = _read(self._path, size)
            for line in _lines(data):
                yield line


class _FileHandler(logging.Handler):
    """Writes lines in the form of container runtimes: time, stream, F for a whole line, text."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(logging.INFO)
        self._path = path
        self._clock = clock
        self._klog = KlogLines()
        self._file = _opened(path)
        self.addFilter(LogFilter(clock.monotonic))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            now = self._clock.now()
            stamp = format_micro(now)
            for line in self._klog.line(record, now).splitlines():
                self._file.write(f"{stamp} {STDERR} F {line}\n".encode("utf-8", "replace"))
            self._file.flush()
            if self._file.tell() > _LARGEST:
                self._file.close()
                os.replace(self._path, _older(self._path))
                self._file = _opened(self._path)
        except (OSError, ValueError):
            pass  # a full disk is no reason to stop working

    def close(self) -> None:
        self._file.close()
        super().close()


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def _identity(path: Path) -> tuple[int, int]:
    """Return the number of the file and its size; zeros if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_size


def _read(path: Path, start: int) -> tuple[bytes, int]:
    """Return whole lines from `start` on, and where they end."""
    try:
        with open(path, "rb") as file:
            file.seek(start)
            data = file.read(_LARGEST + 65536)
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
        for path in sorted(folder.glob("*.json"))[:_MOST_MANIFESTS]:
            with suppress(OSError, ValueError, LookupError, TypeError):
                told = json.loads(path.read_bytes())
                command = tuple(str(word) for word in told["command"])
                started = parse_time(told["started"])
                yield Manifest(str(told["component"]), int(told["pid"]), command, started, path.with_suffix(".log"))


def _left_behind(folder: Path, component: str) -> Iterator[Path]:
    """The files of processes of this component that have died."""
    for manifest in _manifests(folder):
        if manifest.component == component and not _alive(manifest.pid):
            yield from (manifest.log.with_suffix(".json"), manifest.log, _older(manifest.log))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0
