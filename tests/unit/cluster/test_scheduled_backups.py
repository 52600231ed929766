"""Scheduled backups: when they are due, what they keep, and what happens when one fails."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from stopped_clock import StoppedClock

from setpoint.apiserver.worker import Worker
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.cluster.scheduled_backups import ScheduledBackups
from setpoint.meta.exposition import text
from setpoint.store.backup_file import SavedState
from setpoint.store.interface import Put
from setpoint.store.memory import MemoryStore
from setpoint.tasks import TaskRegistry

HOUR = 3600.0


@asynccontextmanager
async def scheduled(
    store: MemoryStore, clock: StoppedClock, directory: Path, keep: int = 3
) -> AsyncIterator[ScheduledBackups]:
    backups = ScheduledBackups(store, clock, Worker(), directory, interval=HOUR, keep=keep)
    tasks = TaskRegistry()
    tasks.start(backups.run())
    try:
        yield backups
    finally:
        await tasks.stop()


async def filled() -> MemoryStore:
    store = MemoryStore()
    for number in range(20):
        await store.txn([Put(f"core/things/{number}", b"{}")])
    return store


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory)) if directory.is_dir() else []


def metrics(backups: ScheduledBackups) -> str:
    return text(backups.families())


async def test_a_backup_is_written_at_once_and_every_hour(tmp_path: Path) -> None:
    store, clock, directory = await filled(), StoppedClock(), tmp_path / "new" / "backups"
    async with scheduled(store, clock, directory) as backups:
        await clock.advance(1)
        assert names(directory) == ["setpoint-20300101T000000Z.backup"]
        assert directory.stat().st_mode & 0o777 == 0o700
        await store.txn([Put("late", b"{}")])
        await clock.advance(HOUR - 10)
        assert len(names(directory)) == 1
        await clock.advance(10)
        assert names(directory)[1:] == ["setpoint-20300101T010000Z.backup"]
        assert 'setpoint_backups_total{result="success"} 2' in metrics(backups)
        assert f"setpoint_backup_last_success_timestamp_seconds {clock.now().timestamp() - 1:.0f}" in metrics(backups)
    first, second = (SavedState(directory / name).header for name in names(directory))
    assert (first.keys, second.keys) == (20, 21)


async def test_a_restart_neither_skips_nor_repeats_a_backup(tmp_path: Path) -> None:
    store, clock = await filled(), StoppedClock()
    async with scheduled(store, clock, tmp_path):
        await clock.advance(HOUR / 2)
    async with scheduled(store, clock, tmp_path):
        await clock.advance(HOUR / 2 - 1)
        assert len(names(tmp_path)) == 1
        await clock.advance(2)
        assert len(names(tmp_path)) == 2
    await clock.advance(5 * HOUR)  # it was stopped for hours
    async with scheduled(store, clock, tmp_path):
        await clock.advance(1)
        assert len(names(tmp_path)) == 3


async def test_servers_with_one_directory_write_one_backup_together(tmp_path: Path) -> None:
    store, clock = await filled(), StoppedClock()
    async with scheduled(store, clock, tmp_path) as one:
        await clock.advance(10)
        async with scheduled(store, clock, tmp_path) as two:
            await clock.advance(2 * HOUR)
            assert len(names(tmp_path)) == 3
            assert 'failure"} 0' in metrics(one) and 'failure"} 0' in metrics(two)


async def test_old_backups_are_deleted_and_other_files_are_not(tmp_path: Path) -> None:
    store, clock = await filled(), StoppedClock()
    (tmp_path / "monday.backup").write_text("by hand")
    (tmp_path / "setpoint-20290101T000000Z.backup.partial").write_text("of a crash")
    os.utime(tmp_path / "setpoint-20290101T000000Z.backup.partial", (0, 0))
    under_way = tmp_path / "setpoint-20300101T021500Z.backup.partial"
    under_way.write_text("of another server")
    recent = (clock.now() + timedelta(hours=2)).timestamp()
    os.utime(under_way, (recent, recent))
    async with scheduled(store, clock, tmp_path, keep=2):
        await clock.advance(3.5 * HOUR)
    assert names(tmp_path) == [
        "monday.backup",
        "setpoint-20300101T020000Z.backup",
        under_way.name,
        "setpoint-20300101T030000Z.backup",
    ]


async def test_a_clock_that_was_set_back_deletes_no_new_backup(tmp_path: Path) -> None:
    store, clock = await filled(), StoppedClock()
    for number in range(3):
        (tmp_path / f"setpoint-2031010{number + 1}T000000Z.backup").write_text("from the future")
    async with scheduled(store, clock, tmp_path, keep=2):
        await clock.advance(HOUR + 10)
    assert names(tmp_path)[:1] == ["setpoint-20300101T010000Z.backup"]


async def test_a_failed_backup_deletes_nothing_is_counted_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, clock = await filled(), StoppedClock()
    async with scheduled(store, clock, tmp_path, keep=1) as backups:
        await clock.advance(1)
        with monkeypatch.context() as full:

            def fail(*args: object) -> int:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            full.setattr(os, "fsync", fail)
            await clock.advance(HOUR + 100)
        assert names(tmp_path) == ["setpoint-20300101T000000Z.backup"]
        assert 'setpoint_backups_total{result="failure"} 4' in metrics(backups)  # after 0, 10, 30 and 70 s
        assert "trying again in 10 s: the backup" in caplog.text and "No space left on device" in caplog.text
        await clock.advance(80)
        assert names(tmp_path) == ["setpoint-20300101T010230Z.backup"]
        SavedState(tmp_path / names(tmp_path)[0])


async def test_a_server_that_stops_leaves_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = await filled(), StoppedClock()
    reached = asyncio.Event()

    class Slow(Worker):
        async def run(self, size, function, /, *args, **kwargs):  # type: ignore[no-untyped-def]
            if function.__name__ == "finish":
                reached.set()
                await asyncio.Event().wait()
            return function(*args, **kwargs)

    backups = ScheduledBackups(store, clock, Slow(), tmp_path, interval=HOUR, keep=1)
    tasks = TaskRegistry()
    tasks.start(backups.run())
    async with asyncio.timeout(10):
        await reached.wait()
    assert names(tmp_path) == ["setpoint-20300101T000000Z.backup.partial"]
    await tasks.stop()
    assert names(tmp_path) == []


async def test_the_files_are_written_on_a_thread(tmp_path: Path) -> None:
    store, clock = await filled(), StoppedClock()
    worker = Worker(threads=True)
    backups = ScheduledBackups(store, clock, worker, tmp_path, interval=HOUR, keep=1)
    tasks = TaskRegistry()
    tasks.start(backups.run())
    async with asyncio.timeout(20):
        while not names(tmp_path) or "partial" in names(tmp_path)[0]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await tasks.stop()
    SavedState(tmp_path / names(tmp_path)[0])


def test_the_flags_are_checked() -> None:
    with pytest.raises(ConfigError, match="--backup-interval must be at least 1s"):
        ApiServerConfig(Path("x"), backup_interval=0.1).check()
    with pytest.raises(ConfigError, match="--backup-keep at least 1"):
        ApiServerConfig(Path("x"), backup_interval=60.0, backup_keep=0).check()
