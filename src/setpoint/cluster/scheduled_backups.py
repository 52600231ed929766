"""Backups of a running server at an interval, with a limit on the number of files that are kept.

The names of the files contain their times, so they sort by time. What is in the directory decides when the next backup
is due: a restart neither skips nor repeats one. Of several servers on one store, the elected one writes the backups; if
all use one directory, the schedule survives an election. A backup that fails is logged, counted and tried again soon.
Old files are deleted only after a new one was written and verified, so the last good one stays.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from pathlib import Path

from setpoint.apiserver.worker import Worker
from setpoint.meta.clock import Clock
from setpoint.meta.exposition import Family, counter, gauge
from setpoint.meta.times import format_time
from setpoint.store.backup_file import PARTIAL_SUFFIX, BackupFile
from setpoint.store.backup_format import BackupHeader, encoded
from setpoint.store.interface import Store, StoreError

log = logging.getLogger("setpoint.cluster")

_NAME = "setpoint-%Y%m%dT%H%M%SZ.backup"
_PATTERN = re.compile(r"setpoint-\d{8}T\d{6}Z\.backup")
_FIRST_RETRY, _LAST_RETRY = 10.0, 300.0
"""Seconds after the first failure, and at most, before a backup is tried again."""
_ABANDONED_AFTER = 86_400.0
"""Age in seconds after which a temporary file is that of a server that crashed."""
_ON_A_THREAD = 1 << 30
"""A size that lets the worker use its thread: a disk may take seconds."""


class ScheduledBackups:
    def __init__(
        self, store: Store, clock: Clock, worker: Worker, directory: Path, *, interval: float, keep: int
    ) -> None:
        """`store` is the backend, below any encryption. `worker` must not be used for anything else."""
        self._store = store
        self._clock = clock
        self._worker = worker
        self._directory = directory
        self._interval = interval
        self._keep = keep
        self._results = {"success": 0, "failure": 0}
        self._failures = 0
        """The number of failures since the last success."""
        self._last_time = 0.0
        self._last_size = 0

    async def run(self) -> None:
        """Write backups until cancelled."""
        try:
            while True:
                while (delay := await self._worker.run(_ON_A_THREAD, self._delay, self._clock.now())) > 0:
                    await self._clock.sleep(delay)
                try:
                    await self._back_up()
                except (StoreError, OSError) as error:
                    self._results["failure"] += 1
                    self._failures += 1
                    pause = min(_FIRST_RETRY * 2 ** min(self._failures - 1, 10), _LAST_RETRY, self._interval)
                    log.error("a scheduled backup failed, trying again in %g s: %s", pause, error)
                    await self._clock.sleep(pause)
        finally:
            self._worker.stop()

    def _delay(self, now: datetime) -> float:
        """Return the seconds until the next backup is due; 0 if it is."""
        times = [time for time in map(_time_of, self._files()) if time <= now]  # later ones: the clock was set back
        return max(0.0, self._interval - (now - times[-1]).total_seconds()) if times else 0.0

    def _files(self) -> list[Path]:
        """Return the backups in the directory, oldest first."""
        with suppress(OSError):
            return sorted(path for path in self._directory.iterdir() if _PATTERN.fullmatch(path.name))
        return []

    async def _back_up(self) -> None:
        now = self._clock.now()
        path = self._directory / f"{now:{_NAME}}"
        file = await self._worker.run(_ON_A_THREAD, self._create, path)
        try:
            async with aclosing(encoded(self._store, format_time(now))) as stream:
                async for chunk in stream:
                    await self._worker.run(_ON_A_THREAD, file.write, chunk)
            header: BackupHeader = await self._worker.run(_ON_A_THREAD, file.finish)
        finally:
            # On the same thread, because a cancelled write may still run there.
            await self._worker.run(_ON_A_THREAD, file.abandon)
        self._failures = 0
        self._results["success"] += 1
        self._last_time = now.timestamp()
        self._last_size = await self._worker.run(_ON_A_THREAD, self._tidy, path, now)
        log.info("backup %s: %d keys at revision %d, %d bytes", path, header.keys, header.revision, self._last_size)

    def _create(self, path: Path) -> BackupFile:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return BackupFile(path)

    def _tidy(self, latest: Path, now: datetime) -> int:
        """Delete what is too old, and return the size of the latest backup."""
        for path in self._files()[: -self._keep]:
            if path != latest:
                with suppress(FileNotFoundError):  # another server may have deleted it
                    path.unlink()
        for path in self._directory.glob(f"setpoint-*.backup{PARTIAL_SUFFIX}"):
            with suppress(FileNotFoundError):
                if now.timestamp() - path.stat().st_mtime > _ABANDONED_AFTER:
                    path.unlink()
        return latest.stat().st_size

    def families(self) -> Iterable[Family]:
        yield counter(
            "setpoint_backups_total",
            "Scheduled backups, by result.",
            [({"result": result}, count) for result, count in self._results.items()],
        )
        yield gauge(
            "setpoint_backup_last_success_timestamp_seconds",
            "Time of the last scheduled backup that this process has written; 0 before the first.",
            [({}, self._last_time)],
        )
        yield gauge(
            "setpoint_backup_last_size_bytes",
            "Size of the last scheduled backup that this process has written.",
            [({}, float(self._last_size))],
        )


def _time_of(path: Path) -> datetime:
    return datetime.strptime(path.name, _NAME).replace(tzinfo=UTC)
