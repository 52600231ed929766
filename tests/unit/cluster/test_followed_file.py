from __future__ import annotations

from pathlib import Path

import pytest

from setpoint.cluster.followed_file import FollowedFile
from setpoint.system import SystemClock


async def test_what_is_new_is_told_until_it_is_settled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, told, settled = tmp_path / "file", list[bytes](), [True]

    async def changed(content: bytes) -> bool:
        told.append(content)
        return settled[0]

    path.write_bytes(b"one")
    file = FollowedFile(str(path), b"one", changed, SystemClock())
    for content in (b"one", b"two", b"two", b"six"):
        path.write_bytes(content)
        await file.look()
    assert told == [b"two", b"six"]
    settled[0] = False
    path.write_bytes(b"ten")
    for _ in range(2):
        await file.look()
    assert told[2:] == [b"ten", b"ten"]
    settled[0] = True
    await file.look()
    await file.look()
    assert told[2:] == [b"ten"] * 3
    path.unlink()
    for _ in range(3):
        await file.look()
    assert caplog.text.count("cannot read") == 1
    path.write_bytes(b"new")
    await file.look()
    assert told[-1] == b"new"
