"""Rotation of the log files of containers, as the kubelet does it.

A log that has reached its maximum size is renamed to `<name>.<time>`, and the runtime opens a new file. The renamed
file is compressed at the next rotation, so that readers can finish it.
"""

from __future__ import annotations

import gzip
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from setpoint.meta.clock import Clock
from setpoint.node.host.blocking import BlockingPool

log = logging.getLogger("setpoint.node")

MAX_SIZE: Final = 10 * 1024 * 1024
"""Bytes, the kubelet's default of `containerLogMaxSize`."""
MAX_FILES: Final = 5
"""Files for each container, the kubelet's default of `containerLogMaxFiles`."""
INTERVAL: Final = 10.0
_TIME_FORMAT: Final = "%Y%m%d-%H%M%S"
_COMPRESSED, _TEMPORARY = ".gz", ".tmp"


class ContainerLogFile(NamedTuple):
    """The log of a running container."""

    container_id: str
    path: Path


class LogRotation:
    """Looks at the logs of all running containers every ten seconds."""

    def __init__(
        self,
        running: Callable[[], Awaitable[Iterable[ContainerLogFile]]],
        reopen: Callable[[str], Awaitable[None]],
        pool: BlockingPool,
        clock: Clock,
        *,
        max_size: int = MAX_SIZE,
        max_files: int = MAX_FILES,
    ) -> None:
        """`running` returns the logs of the running containers, and `reopen` lets the runtime open the log of a
        container again. Both may raise any exception, after which they are called again later."""
        self._running = running
        self._reopen = reopen
        self._pool = pool
        self._clock = clock
        self._max_size = max_size
        self._max_files = max(max_files, 2)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(INTERVAL)
            await self.check()

    async def check(self) -> None:
        """Rotate all logs that have reached their maximum size. One that cannot be rotated is logged and skipped."""
        try:
            logs = list(await self._running())
        except Exception as error:
            log.warning("cannot list the logs of containers: %s", error)
            return
        for each in logs:
            try:
                await self._check(each)
            except Exception as error:
                log.warning("cannot rotate the log %s: %s", each.path, error)

    async def _check(self, each: ContainerLogFile) -> None:
        size = await self._pool.run(_size, each.path)
        if size is None:
            await self._reopen(each.container_id)  # the file was removed: the runtime creates it
        elif size >= self._max_size:
            await self.rotate(each)

    async def rotate(self, each: ContainerLogFile) -> None:
        """Rotate one log. Raise what `reopen` raises, with the log under its former name, or OSError."""
        await self._pool.run(_make_space, each.path, self._max_files - 2)
        rotated = each.path.with_name(f"{each.path.name}.{self._clock.now():{_TIME_FORMAT}}")
        await self._pool.run(os.rename, each.path, rotated)
        try:
            await self._reopen(each.container_id)
        except BaseException:
            # The runtime still writes to the renamed file, unless it has created a new one.
            await self._pool.run(_restore, rotated, each.path)
            raise


def remove_logs(path: Path) -> None:
    """Remove the log of a container and all that were rotated from it."""
    for each in (path, *_rotated(path, everything=True)):
        with suppress(FileNotFoundError):
            each.unlink()


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _rotated(path: Path, *, everything: bool = False) -> list[Path]:
    """Return the files that were rotated from a log, the oldest first; temporary ones only if `everything` is set."""
    with os.scandir(path.parent) as entries:
        names = sorted(each.name for each in entries if each.name.startswith(f"{path.name}."))
    return [path.with_name(name) for name in names if everything or not name.endswith(_TEMPORARY)]


def _make_space(path: Path, keep: int) -> None:
    """Remove what an interrupted rotation has left and all but `keep` rotated files, and compress these."""
    for each in _rotated(path, everything=True):
        if each.name.endswith(_TEMPORARY) or each.with_name(each.name + _COMPRESSED).exists():
            each.unlink()
    files = _rotated(path)
    for each in files[: max(len(files) - keep, 0)]:
        each.unlink()
    for each in files[max(len(files) - keep, 0) :]:
        if not each.name.endswith(_COMPRESSED):
            _compress(each)


def _compress(path: Path) -> None:
    temporary = path.with_name(path.name + _TEMPORARY)
    with path.open("rb") as source, temporary.open("wb") as raw:
        os.fchmod(raw.fileno(), os.fstat(source.fileno()).st_mode & 0o777)
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as target:
            shutil.copyfileobj(source, target, 256 * 1024)
    temporary.rename(path.with_name(path.name + _COMPRESSED))
    path.unlink()


def _restore(rotated: Path, path: Path) -> None:
    if not path.exists():
        rotated.rename(path)
