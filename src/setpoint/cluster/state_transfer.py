"""Writing a whole state, of a backup or of another store, into an empty store, and verifying it there.

A database keeps the revisions of all entries. etcd assigns revisions itself: there every entry gets a new one, and the
resourceVersion in its object is the new one too. In both, later revisions are greater than all that clients have seen.

A write that is interrupted leaves no database, and in etcd a content that is marked as incomplete: servers refuse it,
and the next attempt removes it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from setpoint.apiserver.encoding import without_stamp
from setpoint.cluster.apiserver import etcd_tls, open_etcd
from setpoint.cluster.backups import INCOMPLETE, write_backup
from setpoint.cluster.config import ConfigError
from setpoint.cluster.private_files import ensure_private_directory
from setpoint.cluster.store_location import StoreLocation, check_no_member, check_stopped
from setpoint.meta.clock import Clock
from setpoint.meta.times import format_time
from setpoint.store.backup_format import encoded
from setpoint.store.history import History
from setpoint.store.interface import Delete, KeyValue, Limits, Put, Store, StoreError
from setpoint.store.recovery import REVISION_GAP, DatabaseExists, DatabaseWriter
from setpoint.store.snapshot import Snapshot

log = logging.getLogger("setpoint.cluster")

Progress = Callable[[int], None]
"""Callback that receives the number of entries written so far."""


class ContentDigest:
    """The number of entries and a digest of their keys and values, without revisions, to compare two stores."""

    def __init__(self) -> None:
        self.count = 0
        self._digest = hashlib.sha256()

    def add(self, items: Iterable[KeyValue]) -> None:
        """Add entries, in byte order of their keys."""
        for item in items:
            key, (value, _) = item.key.encode(), without_stamp(item.value, item.mod_revision)
            self._digest.update(b"%d %d " % (len(key), len(value)))
            self._digest.update(key)
            self._digest.update(value)
            self.count += 1

    def check(self, written: ContentDigest, location: StoreLocation) -> None:
        """Raise ConfigError unless both are of the same content."""
        if (self.count, self._digest.digest()) != (written.count, written._digest.digest()):
            raise ConfigError(f"{location} has {written.count} entries that are not the {self.count} that were written")


class NotEmpty(ConfigError):
    """The store that was to be written holds something already."""


class Written(NamedTuple):
    keys: int
    """The number of keys."""
    revision: int
    """The revision at which the store continues."""


async def write_state(
    pages: AsyncIterator[Sequence[KeyValue]],
    revision: int,
    location: StoreLocation,
    clock: Clock,
    *,
    lost_revisions: bool,
    replaced_to: Path | None = None,
    progress: Progress = lambda count: None,
) -> Written:
    """Write the entries of a state at `revision` into a store, which must be empty unless `replaced_to` is set.

    A database that is replaced is renamed; objects that are replaced in etcd are first saved in a backup at the path
    `replaced_to`. `lost_revisions` says that clients may have seen later revisions than that of the state: the store
    then continues far beyond it. Raises ConfigError, StoreError; unless everything was written and verified, a database
    is unchanged, and etcd is unchanged or marked as incomplete."""
    gap = REVISION_GAP if lost_revisions else 0
    if location.database is not None:
        return await _write_database(pages, revision, gap, location, replaced_to is not None, progress)
    return await _write_etcd(pages, revision, gap, location, clock, replaced_to, progress)


# -- SQLite -----------------------------------------------------------------------------------------------------------


async def _write_database(
    pages: AsyncIterator[Sequence[KeyValue]],
    revision: int,
    gap: int,
    location: StoreLocation,
    replace: bool,
    progress: Progress,
) -> Written:
    path = location.database or Path()
    check_no_member(path)
    ensure_private_directory(path.parent)
    digest = ContentDigest()
    try:
        writer = DatabaseWriter(path, replace=replace)
    except DatabaseExists as error:
        raise NotEmpty(str(error)) from None
    except StoreError as error:  # a server uses it
        raise ConfigError(str(error)) from error
    try:
        async for items in pages:
            writer.add(items)
            digest.add(items)
            progress(digest.count)

        def verify(history: History) -> None:
            written, state = ContentDigest(), history.state
            written.add(state[key] for key in sorted(state))
            digest.check(written, location)

        gap = gap or (REVISION_GAP if writer.replaced_revision else 0)
        continued = max(revision, writer.replaced_revision) + gap
        writer.finish(continued, verify)
    finally:
        writer.abandon()
    return Written(digest.count, continued)


# -- etcd -------------------------------------------------------------------------------------------------------------


async def _write_etcd(
    pages: AsyncIterator[Sequence[KeyValue]],
    revision: int,
    gap: int,
    location: StoreLocation,
    clock: Clock,
    replaced_to: Path | None,
    progress: Progress,
) -> Written:
    config = location.config()
    revision = max(revision, await _check_replaced(location, clock, replaced_to)) + gap
    from setpoint.store.etcd.replacement import replace_content  # an optional dependency

    servers, prefix, tls = config.etcd_servers, config.etcd_key_prefix, etcd_tls(config, clock)
    await replace_content(servers, prefix, tls, revision, [Put(INCOMPLETE, b"")])
    store = await open_etcd(config, clock)
    digest = ContentDigest()
    try:
        async for items in pages:
            for ops in _transactions(items, store.limits):
                await _commit(store, ops)
            digest.add(items)
            progress(digest.count)
    finally:
        await store.close()
    store = await open_etcd(config, clock)  # what a server would read
    try:
        written = ContentDigest()
        async with Snapshot(store) as snapshot:
            async for items in snapshot.pages():
                written.add(item for item in items if item.key != INCOMPLETE)
        digest.check(written, location)
        revision, _ = await store.txn([Delete(INCOMPLETE)])
    finally:
        await store.close()
    return Written(digest.count, revision)


async def _check_replaced(location: StoreLocation, clock: Clock, replaced_to: Path | None) -> int:
    """Save the objects of a whole cluster in a backup, or check that there are none. Return the greatest revision that
    clients may have seen. Raises ConfigError, StoreError."""
    store = await open_etcd(location.config(), clock)
    try:
        is_empty = not (await store.list("", limit=1)).items
        if not is_empty and await store.get(INCOMPLETE) is None:
            if replaced_to is None:
                raise NotEmpty(f"there are objects at {location} already")
            await check_stopped(store, location, clock)
            async with aclosing(encoded(store, format_time(clock.now()))) as stream:
                await write_backup(replaced_to, stream)
            log.warning("the objects at %s are saved in %s and replaced", location, replaced_to)
        return store.revision
    finally:
        await store.close()


def _transactions(items: Iterable[KeyValue], limits: Limits) -> Iterable[list[Put]]:
    """Yield the operations that write the entries, in transactions within the limits if a single entry is."""
    ops, size = list[Put](), 0
    for item in items:
        value, stamp = without_stamp(item.value, item.mod_revision)
        length = len(item.key.encode()) + len(value)
        if ops and (len(ops) >= limits.operations or size + length > limits.size):
            yield ops
            ops, size = [], 0
        ops.append(Put(item.key, value, 0, stamp))
        size += length
    if ops:
        yield ops


async def _commit(store: Store, ops: Sequence[Put]) -> None:
    try:
        await store.txn(ops)
    except StoreError as error:
        largest = max(ops, key=lambda op: len(op.value))
        raise ConfigError(
            f"etcd did not accept {len(ops)} entries, of which {largest.key} with {len(largest.value)} bytes is the "
            f"largest: {error}"
        ) from None
