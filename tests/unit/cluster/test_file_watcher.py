"""Reloading of a file that changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from setpoint.cluster.file_watcher import FileWatcher
from setpoint.system import SystemClock


async def test_new_content_is_reported_until_it_is_applied_or_rejected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, reported, settled = tmp_path / "file", list[bytes](), [True]

    async def changed(content: bytes) -> bool:
        reported.append(content)
        return settled[0]

    path.write_bytes(b"one")
    file = FileWatcher(str(path), b"one", changed, SystemClock())
    for content in (b"one", b"two", b"two", b"six"):
        path.write_bytes(content)
        await file.check()
    assert reported == [b"two", b"six"]
    settled[0] = False
    path.write_bytes(b"ten")
    for _ in range(2):
        await file.check()
    assert reported[2:] == [b"ten", b"ten"]
    settled[0] = True
    await file.check()
    await file.check()
    assert reported[2:] == [b"ten"] * 3
    path.unlink()
    for _ in range(3):
        await file.check()
    assert caplog.text.count("cannot read") == 1
    path.write_bytes(b"new")
    await file.check()
    assert reported[-1] == b"new"
