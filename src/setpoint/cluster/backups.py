"""Backups of a cluster that runs, as a stream from its API server, and of one that is stopped, from its data directory.

Values are copied as they are stored: what is encrypted there is encrypted in the backup, and needs the same keys.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from struct import Struct

from setpoint.apiserver.call import Call
from setpoint.apiserver.http.message import Answer, StreamResponse
from setpoint.apiserver.refusals import NOT_ALLOWED
from setpoint.apiserver.server import PathHandler
from setpoint.cluster.config import ConfigError
from setpoint.cluster.streaming import sender
from setpoint.meta.errors import MethodNotAllowed
from setpoint.store.interface import KeyValue, Store, StoreError
from setpoint.store.recovery import BackupWriter, restore
from setpoint.store.sqlite_file import SqliteFile

BACKUP_PATH = "/setpoint/backup"
_DATABASE = "state.db"
_MAGIC = b"setpoint backup 1\n"
_HEAD = Struct("!IIQQ")
"""Lengths of key and value, create_revision and mod_revision. A key without a length ends the stream: the numbers are
then how many keys there were, and the revision that all of them were read at."""
_AT_ONCE = 100


def serve_backup(store: Store) -> PathHandler:
    """Answer with the whole state at one revision. `store` is the one beneath any encryption."""

    async def answer(call: Call) -> Answer:
        if call.request.method != "GET":
            raise MethodNotAllowed(NOT_ALLOWED, details={})
        return StreamResponse(200, [("Content-Type", "application/octet-stream")], sender(_pieces(store)))

    return answer


async def _pieces(store: Store) -> AsyncGenerator[bytes, None]:
    revision, start, count = store.revision, "", 0
    yield _MAGIC
    while True:
        page = await store.list("", start=start, limit=_AT_ONCE, revision=revision)
        count += len(page.items)
        yield b"".join(map(_record, page.items))
        if not page.more:
            break
        start = page.items[-1].key + "\0"
    yield _HEAD.pack(0, 0, count, revision)


def _record(item: KeyValue) -> bytes:
    key = item.key.encode()
    return _HEAD.pack(len(key), len(item.value), item.create_revision, item.mod_revision) + key + item.value


async def write_backup(path: Path, stream: AsyncIterator[bytes]) -> int:
    """Write the stream of a running cluster to a backup and return its revision. Raises ConfigError."""
    try:
        writer = BackupWriter(path)
        try:
            revision = await _received(writer, stream)
            writer.finish(revision)
        finally:
            writer.abandon()
    except StoreError as error:
        raise ConfigError(str(error)) from None
    return revision


async def _received(writer: BackupWriter, stream: AsyncIterator[bytes]) -> int:
    buffer, count, begun = bytearray(), 0, False
    async for piece in stream:
        buffer += piece
        if not begun:
            if len(buffer) < len(_MAGIC):
                continue
            if not buffer.startswith(_MAGIC):
                break
            del buffer[: len(_MAGIC)]
            begun = True
        items = [*_records(buffer)]
        if items:
            count += len(items)
            writer.add(items)
        if len(buffer) >= _HEAD.size:
            length, _, expected, revision = _HEAD.unpack_from(buffer)
            if not length:
                if expected != count or len(buffer) != _HEAD.size:
                    break
                return int(revision)
    raise ConfigError("the server's answer is not a complete backup; try again")


def _records(buffer: bytearray) -> Iterator[KeyValue]:
    """Take all whole records from the start of the buffer."""
    at = 0
    while at + _HEAD.size <= len(buffer):
        key_length, value_length, created, modified = _HEAD.unpack_from(buffer, at)
        key_at = at + _HEAD.size
        end = key_at + key_length + value_length
        if not key_length or end > len(buffer):
            break
        key = buffer[key_at : key_at + key_length].decode()
        yield KeyValue(key, bytes(buffer[key_at + key_length : end]), created, modified)
        at = end
    del buffer[:at]


def back_up_stopped(directory: Path, path: Path) -> int:
    """Write a backup of a cluster that does not run and return its revision. Raises ConfigError."""
    database = directory / _DATABASE
    if not database.exists():
        raise ConfigError(f"there is no cluster in {directory}")
    try:
        file = SqliteFile.open(database)
        try:
            history, _ = file.load()
        finally:
            file.close()
        writer = BackupWriter(path)
        try:
            writer.add(history.state.values())
            writer.finish(history.revision)
        finally:
            writer.abandon()
    except StoreError as error:
        raise ConfigError(str(error)) from None
    return history.revision


def restore_stopped(backup: Path, directory: Path, *, replace: bool) -> int:
    """Make the database of a data directory from a backup and return the revision at which it continues. Raises
    ConfigError."""
    try:
        return restore(backup, directory / _DATABASE, replace=replace)
    except StoreError as error:
        raise ConfigError(str(error)) from None
