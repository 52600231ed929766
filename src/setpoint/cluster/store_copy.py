"""Copies of whole stores, between SQLite and etcd in any direction, while no server uses them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from setpoint.cluster.backups import check_whole
from setpoint.cluster.config import ConfigError
from setpoint.cluster.state_transfer import NotEmpty, Written, write_state
from setpoint.cluster.store_location import StoreLocation, check_stopped, opened
from setpoint.meta.clock import Clock
from setpoint.store.interface import KeyValue, Store, StoreError
from setpoint.store.snapshot import Snapshot


async def copy_store(
    source: StoreLocation,
    target: StoreLocation,
    clock: Clock,
    *,
    force: bool = False,
    progress: Callable[[int, int], None] = lambda copied, total: None,
) -> Written:
    """Copy the state of one store, without its history, into another one, which must be empty.

    With `force`, API servers may seem to use the source; what they write meanwhile is not copied. `progress` receives
    the number of keys copied so far and of all. Raises ConfigError."""
    if source.overlaps(target):
        raise ConfigError(f"{source} and {target} are the same store or overlap")
    try:
        async with opened(source, clock) as store:
            if not force:
                await check_stopped(store, source, clock, ", or use --force")
            await check_whole(store, source)
            async with Snapshot(store) as snapshot:

                def report(copied: int) -> None:
                    progress(copied, snapshot.count)

                pages = _pages(store, snapshot, None if force else source)
                return await write_state(pages, snapshot.revision, target, clock, lost_revisions=False, progress=report)
    except NotEmpty as error:
        raise ConfigError(f"{error}; a store is copied into an empty one only") from None
    except StoreError as error:
        raise ConfigError(str(error)) from None


async def _pages(
    store: Store, snapshot: Snapshot, unchanged: StoreLocation | None
) -> AsyncIterator[Sequence[KeyValue]]:
    """Yield the pages of the snapshot. Raises ConfigError at the end if the store has changed, unless `unchanged` is
    None."""
    async for page in snapshot.pages():
        yield page
    await store.sync()
    if unchanged is not None and snapshot.has_changed:
        raise ConfigError(f"{unchanged} was changed during the copy: stop its servers and repeat the copy")
