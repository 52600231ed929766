"""Keeps compacted changes in a file, for reads of the past beyond the history in memory.

A store hands over what compaction is about to drop; nothing happens with a write. The file (`store/archive_file.py`) is
written by one thread and read by another. If it is lost or damaged, the history is lost, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from setpoint.meta.clock import Clock
from setpoint.store.archive_file import ArchiveFile, ArchiveReader, DamagedArchive
from setpoint.store.in_memory_reads import InMemoryReads
from setpoint.store.interface import Cause, Event, PastTransaction, StoreError, Version

log = logging.getLogger("setpoint.store")

NEVER_KEPT = ("coordination.k8s.io/leases/",)
"""Prefixes of keys that are not kept by default: they change all the time, and say nothing about the past."""
_TRIM_INTERVAL = 60.0
"""Least number of seconds between two checks of what is too old or too large."""
_PARTS = 10
"""If the file is too large, the oldest of so many parts is dropped, until it is not."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Retention:
    """How much an archive keeps."""

    seconds: float = 24 * 3600.0
    size: int = 512 << 20
    """Bytes of the file."""
    excluded: tuple[str, ...] = NEVER_KEPT
    """Prefixes of the keys whose changes are not kept."""


class FileArchive:
    """An archive in a file; it implements `Archive`."""

    def __init__(self, path: Path, retention: Retention, clock: Clock, *, threads: bool = True) -> None:
        """Open the file, or begin a new one if there is none that can be read. It blocks: call it before serving
        starts. Without `threads` everything runs inline, as virtual time needs it. Raises StoreError."""
        self._path = path
        self._retention = retention
        self._clock = clock
        self._threads = (
            [ThreadPoolExecutor(1, f"setpoint-{name}") for name in ("archive", "history")] if threads else []
        )
        self._file, self._reader = self._open()
        self._trimmed_at = clock.monotonic() - _TRIM_INTERVAL
        self._failed = False
        """Whether the last attempt to write has failed, and was logged."""

    def _open(self) -> tuple[ArchiveFile, ArchiveReader]:
        excluded = " ".join(sorted(self._retention.excluded))
        try:
            try:
                file = ArchiveFile.open(self._path)
            except (DamagedArchive, sqlite3.DatabaseError) as error:
                log.warning("the history in %s is lost: %s; a new one begins", self._path, error)
                discard(self._path)
                file = ArchiveFile.open(self._path)
            if file.excluded != excluded:
                if file.newest and not {*file.excluded.split()} <= {*excluded.split()}:
                    file.begin_at(file.newest + 1)  # changes of what is kept from now on are missing before
                file.set_excluded(excluded)
            return file, ArchiveReader(self._path)
        except sqlite3.Error as error:
            raise StoreError(f"the history file {self._path} cannot be used: {error}") from None

    @property
    def oldest(self) -> int:
        return self._file.oldest

    @property
    def newest(self) -> int:
        return self._file.newest

    def excludes(self, key: str) -> bool:
        return key.startswith(self._retention.excluded)

    async def follow(self, store: InMemoryReads) -> None:
        """Keep what `store` compacts from now on. If the file is about another store, or about states that were
        replaced by a restored backup, a new one begins. Raises StoreError."""
        newest = self._file.newest
        same = newest <= store.revision
        if same and newest > store.compacted:
            last = [*await self.transactions(newest - 1, 1)]
            causes = [each.cause for each in await store.causes(newest - 1, 1) if each.revision == newest]
            same = not last or last[0].revision != newest or last[0].cause == (causes[0] if causes else b"")
        if not same:
            log.warning("the history in %s is that of another store; a new one begins", self._path)
            self._close_file()
            discard(self._path)
            self._file, self._reader = self._open()
        store.attach(self)

    # -- writing ------------------------------------------------------------------------------------------------------

    async def append(self, after: int, events: Sequence[Event], causes: Sequence[Cause], through: int) -> None:
        kept = [event for event in events if not self.excludes(event.key)]
        now = self._clock.now()
        try:
            await self._run(0, self._file.append, after, kept, causes, through)
            if self._clock.monotonic() - self._trimmed_at >= _TRIM_INTERVAL:
                self._trimmed_at = self._clock.monotonic()
                await self._run(0, self._trim, int((now.timestamp() - self._retention.seconds) * 1000))
            self._failed = False
        except sqlite3.Error as error:
            if not self._failed:
                log.warning("changes are missing from the history in %s: %s", self._path, error)
            self._failed = True

    def _trim(self, since: int) -> None:
        """Drop what was written before `since`, and what is too much, the oldest first."""
        file = self._file
        keep_from = file.last_written_before(since) + 1
        if keep_from > max(file.trimmed, 1):
            file.trim(keep_from)
        for _ in range(_PARTS):
            if file.size() <= self._retention.size:
                return
            file.trim(max(file.middle_of_oldest(_PARTS), file.trimmed + 1))

    # -- marks --------------------------------------------------------------------------------------------------------

    @property
    def marks(self) -> Mapping[int, int]:
        """The revisions whose state is kept beyond the retention, with the times of these states in milliseconds."""
        return self._file.marks

    async def keep(self, revision: int, at: int, pages: AsyncIterator[Sequence[Version]]) -> None:
        """Keep a copy of the state at a revision. Raises StoreError if the copies would take more than half of the
        size, or cannot be written."""
        try:
            async for page in pages:
                if await self._run(0, self._file.copy, revision, page) > self._retention.size // 2:
                    raise StoreError("the copies of marked states take more than half of the size of the history")
            await self._run(0, self._file.complete_copy, revision, at)
        except sqlite3.Error as error:
            raise StoreError(f"the history in {self._path} cannot be written: {error}") from None
        finally:
            if revision not in self._file.marks:
                await self.drop(revision)

    async def drop(self, revision: int) -> None:
        """Remove the copy of the state at a revision."""
        try:
            await self._run(0, self._file.drop_copy, revision)
        except sqlite3.Error as error:
            log.warning("the copy of revision %d stays in %s: %s", revision, self._path, error)

    def keeps(self, revision: int) -> bool:
        return revision in self._file.marks

    async def marked(self, prefix: str, revision: int) -> Sequence[Version]:
        return await self._read(self._reader.marked, prefix, revision)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, key: str, revision: int) -> Version | None:
        return await self._read(self._reader.get, key, revision)

    async def list(self, prefix: str, revision: int) -> dict[str, Version]:
        return await self._read(self._reader.list, prefix, revision)

    async def versions(self, key: str, before: int, limit: int) -> Sequence[Version]:
        return await self._read(self._reader.versions, key, before, limit)

    async def transactions(self, after: int, limit: int) -> Sequence[PastTransaction]:
        return await self._read(self._reader.transactions, after, limit)

    async def revision_at(self, at: int) -> int:
        return await self._read(self._reader.revision_at, at)

    async def time_of(self, revision: int) -> int:
        if revision in self._file.marks:
            return self._file.marks[revision]
        return await self._read(self._reader.time_of, revision)

    async def _read(self, function: Callable[..., _Result], *args: object) -> _Result:
        try:
            return await self._run(1, function, *args)
        except (sqlite3.Error, zlib.error) as error:
            raise StoreError(f"the history in {self._path} cannot be read: {error}") from None

    async def _run(self, thread: int, function: Callable[..., _Result], *args: object) -> _Result:
        if not self._threads:
            return function(*args)
        return await asyncio.get_running_loop().run_in_executor(self._threads[thread], function, *args)

    async def close(self) -> None:
        for thread in self._threads:
            await asyncio.get_running_loop().run_in_executor(None, thread.shutdown)
        self._close_file()

    def _close_file(self) -> None:
        self._reader.close()
        self._file.close()


def discard(path: Path) -> None:
    """Remove a file of the history, with its log."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
