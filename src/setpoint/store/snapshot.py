"""A consistent view of a whole store at one revision, read page by page while writes continue.

The view keeps the former values of the keys that change before they are read, so it does not depend on the store's
history and survives its compaction. It costs memory for those keys only.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType

from setpoint.store.interface import Event, KeyValue, Store

_PAGE_SIZE = 200


class Snapshot:
    """A view of `store` as of the moment when the `async with` block is entered, until the block is left."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.revision = 0
        """The revision of the view."""
        self.count = 0
        """The number of keys."""
        self.has_changed = False
        """Whether the store has changed since the view was taken."""
        self._position = ""
        """The first key that was not read yet."""
        self._before: dict[str, KeyValue | None] = {}
        """The values in the view of keys that have changed since and were not read yet; None if the key is not in the
        view."""
        self._deleted: list[str] = []
        """The keys of `_before` that were in the view and deleted since, in order; some may exist again."""

    async def __aenter__(self) -> Snapshot:
        # No backend suspends while it lists its present state, so all three belong to one revision.
        self.revision = self._store.revision
        self._subscription = self._store.watch("", self.revision, self._on_events)
        self.count = (await self._store.list("", limit=1)).total
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._subscription.close()

    def _on_events(self, events: Sequence[Event], revision: int) -> None:
        self.has_changed = True
        for event in events:
            key = event.key
            if key < self._position:
                continue
            if key not in self._before:
                self._before[key] = event.before
            if event.now is None and self._before[key] is not None:
                at = bisect_left(self._deleted, key)
                if at == len(self._deleted) or self._deleted[at] != key:
                    insort(self._deleted, key)

    async def pages(self) -> AsyncGenerator[Sequence[KeyValue], None]:
        """Yield the entries in byte order of their keys. Call it once. Raises StoreError."""
        while True:
            page = await self._store.list("", start=self._position, limit=_PAGE_SIZE)
            end = page.items[-1].key + "\0" if page.more else None
            found = {item.key: item for item in page.items if item.key not in self._before}
            deleted = len(self._deleted) if end is None else bisect_left(self._deleted, end)
            for key in [*(item.key for item in page.items), *self._deleted[:deleted]]:
                before = self._before.pop(key, None)
                if before is not None:
                    found[key] = before
            del self._deleted[:deleted]
            if end is not None:
                self._position = end
            yield [found[key] for key in sorted(found)]
            if end is None:
                return
