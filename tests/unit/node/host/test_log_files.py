"""Log files of containers: selection of lines, followed logs, and rotation."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.node.host import log_files
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.file_watch import DirectoryWatch
from setpoint.node.host.log_files import LogFiles, nanoseconds, parse_entry, tail_offset
from setpoint.node.host.log_rotation import ContainerLogFile, LogRotation, remove_logs
from setpoint.node.kubelet_api.interface import LogOptions
from setpoint.system import SystemClock

ENTRIES = b"""\
2026-11-16T13:24:58.278176602Z stdout F one
2026-11-16T13:24:59.000000001Z stderr F two
2026-11-16T13:25:00.000000000Z stdout P thr
2026-11-16T13:25:01.123456789Z stdout F ee
"""


@pytest.fixture
async def pool() -> AsyncIterator[BlockingPool]:
    made = BlockingPool(2)
    yield made
    made.close()


async def never_ends() -> bool:
    return True


async def collected(pieces: AsyncGenerator[bytes, None]) -> str:
    return b"".join([piece async for piece in pieces]).decode()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, "one\ntwo\nthree\n"),
        ({"tail": 0}, ""),
        ({"tail": 1}, "three\n"),
        ({"tail": 2}, "two\nthree\n"),
        ({"tail": 9}, "one\ntwo\nthree\n"),
        ({"limit_bytes": 5}, "one\nt"),
        ({"limit_bytes": 4, "tail": 1}, "thre"),
        ({"streams": ("stderr",)}, "two\n"),
        ({"since": datetime(2026, 11, 16, 13, 24, 59, tzinfo=UTC).timestamp()}, "two\nthree\n"),
        ({"tail": 1, "timestamps": True}, "2026-11-16T13:25:00.000000000Z three\n"),
    ],
)
async def test_selected_lines(pool: BlockingPool, tmp_path: Path, options: dict[str, object], wanted: str) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(ENTRIES)
    pieces = LogFiles(pool, SystemClock()).read(path, LogOptions(**options), never_ends)  # type: ignore[arg-type]
    assert await collected(pieces) == wanted


async def test_lines_that_are_no_entries_are_skipped_and_an_incomplete_one_is_read(
    pool: BlockingPool, tmp_path: Path
) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"\nnonsense\n" + ENTRIES + b"2026-11-16T13:25:02.000000000Z stdout F la")
    pieces = LogFiles(pool, SystemClock()).read(path, LogOptions(), never_ends)
    assert await collected(pieces) == "one\ntwo\nthree\nla\n"


def test_entries() -> None:
    assert parse_entry(b"t stdout F:x  a b") == (b"t", "stdout", False, b" a b")
    assert parse_entry(b"t stderr P a") == (b"t", "stderr", True, b"a")
    assert parse_entry(b"t stdout F") == (b"t", "stdout", False, b"")
    assert parse_entry(b"t other F a") is None
    assert nanoseconds(b"1970-01-01T00:00:01.000000002Z") == 1_000_000_002
    assert nanoseconds(b"1970-01-01T02:00:01.5+02:00") == 1_500_000_000
    assert nanoseconds(b"1970-01-01T00:00:01Z") == 1_000_000_000
    assert nanoseconds(b"yesterday") == 0


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("2026-11-16T13:25:00.60619576Z", "2026-11-16T13:25:00.606195760Z"),
        ("2026-11-16T13:25:00Z", "2026-11-16T13:25:00.000000000Z"),
        ("2026-11-16T13:25:00.5-02:00", "2026-11-16T13:25:00.500000000-02:00"),
    ],
)
async def test_times_have_nine_digits(pool: BlockingPool, tmp_path: Path, written: str, shown: str) -> None:
    path = tmp_path / "0.log"
    path.write_text(f"{written} stdout F one\n")
    pieces = LogFiles(pool, SystemClock()).read(path, LogOptions(timestamps=True), never_ends)
    assert await collected(pieces) == f"{shown} one\n"


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=20),
    st.integers(1, 25),
    st.integers(1, 40),
    st.booleans(),
)
def test_the_tail_begins_at_a_line(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[bool, int]],
    count: int,
    piece: int,
    incomplete: bool,
) -> None:
    lines = [b"t stdout %b %b\n" % (b"P" if partial else b"F", b"x" * size) for partial, size in entries]
    content = b"".join(lines) + (b"t stdout F unfinished" if incomplete else b"")
    ends = [at for at, (partial, _) in enumerate(entries) if not partial]
    begin = ends[-count - 1] + 1 if len(ends) > count else 0
    path = tmp_path_factory.mktemp("tail") / "0.log"
    path.write_bytes(content)
    before = log_files._PIECE
    log_files._PIECE = piece  # type: ignore[misc]
    try:
        with path.open("rb") as file:
            assert tail_offset(file.fileno(), len(content), count) == len(b"".join(lines[:begin]))
    finally:
        log_files._PIECE = before  # type: ignore[misc]


class Writer:
    """The container runtime: writes entries, and opens the log again after it was renamed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reopened: list[str] = []
        self.runs = True
        self._file = path.open("ab", buffering=0)

    def write(self, text: str) -> None:
        self._file.write(b"2026-11-16T13:25:00.000000000Z stdout F %b\n" % text.encode())

    async def reopen(self, container_id: str) -> None:
        self.reopened.append(container_id)
        self._file.close()
        self._file = self.path.open("ab", buffering=0)

    async def is_running(self) -> bool:
        return self.runs


@pytest.mark.parametrize("polling", [False, True])
async def test_a_followed_log_survives_rotation_and_ends_with_its_container(
    pool: BlockingPool, tmp_path: Path, polling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if polling:
        monkeypatch.setattr("setpoint.node.host.file_watch._inotify", lambda *_: -1)
    monkeypatch.setattr(log_files, "_CHECK_INTERVAL", 0.05)
    writer = Writer(tmp_path / "0.log")
    writer.write("before")
    seen: list[str] = []
    arrived = asyncio.Event()

    async def follow() -> None:
        pieces = LogFiles(pool, SystemClock()).read(writer.path, LogOptions(follow=True), writer.is_running)
        async for piece in pieces:
            seen.extend(piece.decode().splitlines())
            arrived.set()

    async def wait_for(line: str) -> None:
        async with asyncio.timeout(10):
            while line not in seen:
                arrived.clear()
                await arrived.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        await wait_for("before")
        writer.write("live")
        await wait_for("live")
        os.rename(writer.path, tmp_path / "0.log.1")
        writer.write("into the renamed file")
        await wait_for("into the renamed file")
        await writer.reopen("id")
        writer.write("into the new file")
        await wait_for("into the new file")
        writer.write("last")
        writer.runs = False
    assert seen == ["before", "live", "into the renamed file", "into the new file", "last"]


async def test_changes_between_two_waits_are_not_lost(pool: BlockingPool, tmp_path: Path) -> None:
    watch = await DirectoryWatch.open(tmp_path, pool, SystemClock())
    try:
        assert not await watch.changed(0.01)
        (tmp_path / "0.log").write_bytes(b"x")
        await asyncio.sleep(0)
        assert await watch.changed(5.0)
    finally:
        watch.close()


class Time(SystemClock):
    """A clock that shows another minute at each look."""

    def __init__(self) -> None:
        self.minutes = 0

    def now(self) -> datetime:
        self.minutes += 1
        return datetime(2026, 11, 16, 13, 0, tzinfo=UTC) + timedelta(minutes=self.minutes)


def names_in(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


async def test_rotation_keeps_five_files_and_compresses_the_older_ones(pool: BlockingPool, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "0.log")
    (tmp_path / "0.log.20261116-125900.tmp").write_bytes(b"of an interrupted rotation")
    (tmp_path / "10.log").write_bytes(b"another run")

    async def running() -> list[ContainerLogFile]:
        return [ContainerLogFile("id", writer.path)]

    rotation = LogRotation(running, writer.reopen, pool, Time(), max_size=40)
    for number in range(8):
        await rotation.check()  # empty: nothing to do
        writer.write(f"line {number}")
        await rotation.check()
    names = names_in(tmp_path)
    assert names == [
        "0.log",
        "0.log.20261116-130500.gz",
        "0.log.20261116-130600.gz",
        "0.log.20261116-130700.gz",
        "0.log.20261116-130800",
        "10.log",
    ]
    assert gzip.decompress((tmp_path / names[1]).read_bytes()).endswith(b" line 4\n")
    assert (tmp_path / names[4]).read_bytes().endswith(b" line 7\n")
    assert writer.reopened == ["id"] * 8
    writer.path.unlink()
    await rotation.check()
    assert writer.path.exists(), "the runtime creates a log that was removed"
    remove_logs(writer.path)
    assert names_in(tmp_path) == ["10.log"]


async def test_a_log_that_the_runtime_does_not_reopen_keeps_its_name(pool: BlockingPool, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(ENTRIES)

    async def running() -> list[ContainerLogFile]:
        return [ContainerLogFile("id", path)]

    async def fails(container_id: str) -> None:
        raise ConnectionError("the runtime is gone")

    await LogRotation(running, fails, pool, Time(), max_size=50).check()
    assert names_in(tmp_path) == ["0.log"]
    assert path.read_bytes() == ENTRIES
