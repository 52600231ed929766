"""Backups of a cluster: as a stream from its running API server, or from its store without a server.

Values are copied as they are stored: encrypted values stay encrypted and need the same keys.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.apiserver.error_responses import METHOD_NOT_ALLOWED, store_unavailable
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.server import PathHandler
from setpoint.cluster.config import ConfigError
from setpoint.meta.clock import Clock
from setpoint.meta.errors import MethodNotAllowed
from setpoint.meta.times import format_time
from setpoint.store.backup_format import BackupHeader, InvalidBackup, encoded
from setpoint.store.interface import KeyValue, Store, StoreError, Unavailable
from setpoint.wire.forwarding import stream_pieces
from setpoint.wire.message import Answer, StreamResponse

if TYPE_CHECKING:
    from setpoint.cluster.state_transfer import Written
    from setpoint.cluster.store_location import StoreLocation
    from setpoint.store.backup_file import SavedState

Progress = Callable[[int, int], None]
"""Callback that receives the number of keys that were written, and of all."""
BACKUP_PATH = "/setpoint/backup"
INCOMPLETE = "setpoint/incomplete"
"""The key that exists while a state is written into etcd: what is there is not a whole cluster."""


def serve_backup(store: Store, clock: Clock) -> PathHandler:
    """Return a handler that sends a backup. `store` is the backend, below any encryption."""

    async def answer(ctx: RequestContext) -> Answer:
        if ctx.request.method != "GET":
            raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})
        try:
            await store.sync()  # once the response has begun, a failure can only cut it off
        except Unavailable as error:
            raise store_unavailable(error) from None
        stream = encoded(store, format_time(clock.now()))
        return StreamResponse(200, [("Content-Type", "application/octet-stream")], stream_pieces(stream))

    return answer


async def write_backup(path: Path, stream: AsyncIterator[bytes]) -> BackupHeader:
    """Write the stream of a running server to a file, and return its header. Raises ConfigError."""
    from setpoint.store.backup_file import BackupFile  # not needed by servers

    try:
        file = BackupFile(path)
        try:
            async for chunk in stream:
                file.write(chunk)
            return file.finish()
        finally:
            file.abandon()
    except InvalidBackup as error:
        raise ConfigError(f"the server did not send a complete backup: what it sent {error}") from None
    except StoreError as error:
        raise ConfigError(str(error)) from None


async def back_up(location: StoreLocation, path: Path, clock: Clock) -> BackupHeader:
    """Write a backup of a store without a server, and return its header. Raises ConfigError."""
    from setpoint.cluster.store_location import opened

    try:
        async with opened(location, clock) as store:
            await check_whole(store, location)
            async with aclosing(encoded(store, format_time(clock.now()))) as stream:
                return await write_backup(path, stream)
    except StoreError as error:
        raise ConfigError(str(error)) from None


async def check_whole(store: Store, location: StoreLocation) -> None:
    """Raise ConfigError unless there is a whole cluster in the store."""
    if await store.get(INCOMPLETE) is not None:
        raise ConfigError(f"{location} holds a part of a cluster only: repeat the copy or restore that failed")
    if not (await store.list("", limit=1)).items:
        raise ConfigError(f"there are no objects at {location}")


async def restore(
    backup: Path,
    location: StoreLocation,
    clock: Clock,
    *,
    replace: bool,
    progress: Progress = lambda restored, total: None,
) -> Written:
    """Write the state of a backup into a store without a server. Raises ConfigError.

    The backup is verified before anything changes. `progress` receives the number of keys so far and of all."""
    from setpoint.cluster.state_transfer import NotEmpty, write_state
    from setpoint.store.backup_file import SavedState

    try:
        saved = SavedState(backup)
        return await write_state(
            _pages(saved),
            saved.header.revision,
            location,
            clock,
            lost_revisions=True,
            replaced_to=_unused(backup) if replace else None,
            progress=lambda restored: progress(restored, saved.header.keys),
        )
    except NotEmpty as error:
        what = "they are saved in another file" if location.database is None else "it is renamed"
        raise ConfigError(f"{error}; with --force {what} and replaced by the backup") from None
    except StoreError as error:
        raise ConfigError(str(error)) from None


def _unused(backup: Path) -> Path:
    """Return a path beside the backup that does not exist, for what is replaced by it."""
    return next(path for number in count(1) if not (path := Path(f"{backup}.replaced-{number}")).exists())


async def _pages(saved: SavedState) -> AsyncIterator[Sequence[KeyValue]]:
    for page in saved.pages():
        yield page


__all__ = [
    "BACKUP_PATH",
    "INCOMPLETE",
    "BackupHeader",
    "back_up",
    "check_whole",
    "restore",
    "serve_backup",
    "write_backup",
]
