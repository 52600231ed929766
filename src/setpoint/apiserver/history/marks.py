"""Keeps a copy of the state at every marked revision, so that it can be read beyond the retention of the history."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

from setpoint.apiserver.history.reader import HistoryReader, Version
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.moments import MAX_MARKS
from setpoint.store.interface import StoreError

log = logging.getLogger("setpoint.apiserver")

_INTERVAL = 30.0
"""Seconds between two looks at the marks. A revision stays in the history for longer than that."""


class MarkedStates(Protocol):
    """The archive of the history, which keeps the copies."""

    @property
    def marks(self) -> Mapping[int, int]:
        """The revisions whose state is kept, with the times of these states."""
        ...

    def excludes(self, key: str) -> bool: ...

    async def keep(self, revision: int, at: int, pages: AsyncIterator[Sequence[Version]]) -> None:
        """Keep the objects of a revision. Raises StoreError if they are too many, or cannot be written."""
        ...

    async def drop(self, revision: int) -> None: ...


class MarkKeeper:
    """Copies the state of new marks, and removes the copies of deleted ones."""

    def __init__(
        self,
        reader: HistoryReader,
        states: MarkedStates,
        marks: Callable[[], Mapping[str, Any] | None],
        clock: Clock,
    ) -> None:
        """`marks` returns the data of the ConfigMap of marks; None if they are not known yet."""
        self._reader = reader
        self._states = states
        self._marks = marks
        self._clock = clock
        self._failed: set[int] = set()
        """The revisions that could not be kept; they are not tried again."""

    async def run(self) -> None:
        while True:
            await self.keep_all()
            await self._clock.sleep(_INTERVAL)

    async def keep_all(self) -> None:
        """Make the kept copies those of the present marks. If there are too many marks, the newest are kept."""
        found = self._marks()
        if found is None:
            return
        numbers = {int(each) for each in found.values() if each.isascii() and each.isdigit() and len(each) <= 19}
        wanted = sorted(numbers)[-MAX_MARKS:]
        self._failed &= numbers
        for revision in self._states.marks.keys() - wanted:
            await self._states.drop(revision)
        for revision in wanted:
            if revision not in self._states.marks and revision not in self._failed:
                await self._keep(revision)

    async def _keep(self, revision: int) -> None:
        try:
            at = await self._reader.time_of(revision)
            await self._states.keep(revision, at, self._pages(revision))
        except (ApiError, StoreError) as error:
            self._failed.add(revision)
            log.warning("the state at the marked revision %d is not kept beyond the history: %s", revision, error)

    async def _pages(self, revision: int) -> AsyncIterator[Sequence[Version]]:
        async for page in self._reader.pages_at("", revision):
            yield [each for each in page if not self._states.excludes(each.key)]
