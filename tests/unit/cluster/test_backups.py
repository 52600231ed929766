"""Backups of stores that run and of data directories that are stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from setpoint.cluster.apiserver import open_store
from setpoint.cluster.backups import _pieces, back_up_stopped, restore_stopped, write_backup
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.store.interface import KeyValue, Put
from setpoint.store.memory import MemoryStore
from setpoint.store.sqlite import SqliteStore


async def filled() -> MemoryStore:
    store = MemoryStore()
    for number in range(250):
        await store.txn([Put(f"ключ/{number}", bytes([number]) * number), Put(f"other/{number}", b"")])
    return store


async def cut(pieces: AsyncIterator[bytes], size: int) -> AsyncIterator[bytes]:
    """The same bytes in pieces of `size`, as a network may deliver them."""
    whole = b"".join([piece async for piece in pieces])
    for at in range(0, len(whole), size):
        yield whole[at : at + size]


async def items(directory: Path) -> list[KeyValue]:
    store = SqliteStore.open(directory / "state.db")
    found = [*(await store.list("")).items]
    await store.close()
    return found


@pytest.mark.parametrize("size", [7, 1000, 1 << 20])
async def test_a_running_store_is_backed_up_at_one_revision(tmp_path: Path, size: int) -> None:
    store = await filled()
    revision, expected = store.revision, [*(await store.list("")).items]
    stream = _pieces(store)
    begun = await anext(stream), await anext(stream)  # what is written from now on is not in it
    await store.txn([Put("late", b""), Put("other/249", b"changed")])

    async def rest() -> AsyncIterator[bytes]:
        for piece in begun:
            yield piece
        async for piece in stream:
            yield piece

    assert await write_backup(tmp_path / "backup", cut(rest(), size)) == revision
    restore_stopped(tmp_path / "backup", tmp_path, replace=False)
    assert await items(tmp_path) == expected


async def test_an_incomplete_stream_leaves_no_file(tmp_path: Path) -> None:
    store = await filled()
    whole = b"".join([piece async for piece in _pieces(store)])

    async def once(content: bytes) -> AsyncIterator[bytes]:
        yield content

    for broken in (b"", b"<html>not a backup</html>", whole[:-1], whole[: len(whole) // 2], whole + b"x"):
        with pytest.raises(ConfigError, match="is not a complete backup"):
            await write_backup(tmp_path / "backup", once(broken))
        assert not list(tmp_path.iterdir())  # noqa: ASYNC240


async def test_a_stopped_cluster_is_backed_up_and_restored(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    data.mkdir()
    other.mkdir()
    with pytest.raises(ConfigError, match="there is no cluster in"):
        back_up_stopped(data, tmp_path / "backup")
    store = SqliteStore.open(data / "state.db")
    await store.txn([Put("a", b"1"), Put("b", b"2")])
    with pytest.raises(ConfigError, match="in use by another process"):
        back_up_stopped(data, tmp_path / "backup")
    await store.close()
    assert back_up_stopped(data, tmp_path / "backup") == 1
    restore_stopped(tmp_path / "backup", other, replace=False)
    assert await items(other) == await items(data)
    with pytest.raises(ConfigError, match="there is a database at"):
        restore_stopped(tmp_path / "backup", data, replace=False)


async def test_the_flag_accepts_the_loss(tmp_path: Path) -> None:
    store = open_store(ApiServerConfig(tmp_path))
    await store.txn([Put("a", b"1")])
    await store.close()
    (tmp_path / "state.db").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"state\.db is empty, but revision 1 was acknowledged"):
        open_store(ApiServerConfig(tmp_path))
    left = open_store(ApiServerConfig(tmp_path, accept_data_loss=True))
    assert await left.get("a") is None
    await left.close()
