"""A store that provides each guarantee of the contract as late as allowed: a view of a medium with other writers.

A commit on the medium becomes visible in each view a few iterations of the event loop later, in order. A view's
transactions complete when they are visible in it, and then in any order. Revisions start above 1 and have gaps. Lags
are counted in iterations of the event loop and come from a seed, so that a test takes no time and is repeatable.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence

from setpoint.store.history import History
from setpoint.store.in_memory_reads import InMemoryReads
from setpoint.store.interface import CompareFailed, Event, KeyValue, NotedCause, Op, Unavailable, recorded_form
from setpoint.store.transaction import plan

_FIRST_REVISION = 7


class Medium:
    """The committed state, and the views that follow it."""

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.history = History()
        self.history.revision = _FIRST_REVISION
        self.views: list[LaggingStore] = []
        self.transactions = 0
        """Number of transactions that were attempted."""
        self.compactions = 0
        """Number of compactions that were claimed."""
        self.away = False
        """Whether the medium is unreachable for all views."""

    def commit(self, ops: Sequence[Op], cause: bytes) -> tuple[int, Sequence[KeyValue | None]]:
        self.transactions += 1
        history = self.history
        events, answers = plan(ops, history.state.get, history.revision + self.random.choice((1, 1, 2, 5)))
        if events:
            history.apply(events, cause)
            for view in self.views:
                view.arrives(events, cause)
        return history.revision, answers


class LaggingStore(InMemoryReads):
    def __init__(self, medium: Medium | None = None, *, lag: int = 3) -> None:
        """Create a view that shows commits at most `lag` iterations of the event loop later."""
        self.medium = medium or Medium()
        super().__init__(self.medium.history.fork())
        self.lag = lag
        self._shared = medium is not None
        self._known_compactions = 0
        self.held = False
        """Whether commits are held back from this view."""
        self._random = random.Random(len(self.medium.views))
        self._arriving: deque[tuple[Sequence[Event], bytes]] = deque()
        self._under_way: set[asyncio.Future[None]] = set()
        self.medium.views.append(self)

    # -- what the medium says -------------------------------------------------------------------------------------

    def arrives(self, events: Sequence[Event], cause: bytes) -> None:
        self._arriving.append((events, cause))
        if len(self._arriving) == 1 and not self.held:
            self._show_after(self._random.randint(1, self.lag))

    def hold(self) -> None:
        """Let nothing arrive until `release`: the view falls behind."""
        self.held = True

    def release(self) -> None:
        self.held = False
        if self._arriving:
            self._show_after(1)

    def _show_after(self, turns: int) -> None:
        asyncio.get_running_loop().call_soon(self._show if turns <= 1 else lambda: self._show_after(turns - 1))

    def _show(self) -> None:
        if self.held:
            return
        # One or several transactions become visible together, as one watch response may contain several.
        shown: list[Event] = []
        for _ in range(self._random.randint(1, max(3, len(self._arriving) // 2))):
            if self._arriving:
                events, cause = self._arriving.popleft()
                self._history.apply(events, cause)
                shown += events
        if shown:
            self._subscriptions.publish(shown, self._history.revision)
            self._wake_waiters()
        if self._arriving:
            self._show_after(self._random.randint(1, self.lag))

    # -- the contract -----------------------------------------------------------------------------------------------

    @property
    def unavailable(self) -> str | None:
        return "the medium is away" if self.medium.away else None

    @property
    def shared(self) -> bool:
        """Return whether this is one of several views, which have a medium that the test made."""
        return self._shared

    async def sync(self) -> int:
        self._check()
        await self._ask()
        committed = self.medium.history.revision
        await self._wait_visible(committed)
        return committed

    async def txn(self, ops: Sequence[Op], cause: bytes | NotedCause = b"") -> tuple[int, Sequence[KeyValue | None]]:
        self._check()
        done = asyncio.get_running_loop().create_future()
        self._under_way.add(done)
        try:
            return await self._txn(ops, recorded_form(cause))
        finally:
            self._under_way.discard(done)
            done.set_result(None)

    async def _txn(self, ops: Sequence[Op], cause: bytes) -> tuple[int, Sequence[KeyValue | None]]:
        while True:
            await self._ask()
            try:
                revision, answers = self.medium.commit(ops, cause)
            except CompareFailed as failed:
                await self._wait_visible(self.medium.history.revision)
                current = self._history.state.get(failed.key)
                expected = next(op.expect for op in ops if op.key == failed.key)
                if expected != (current.mod_revision if current is not None else 0):
                    raise CompareFailed(failed.key, current) from None
                continue  # what was expected is true once more
            await self._wait_visible(revision)
            await self._pause()
            return revision, answers

    async def _ask(self) -> None:
        """The way to the medium."""
        await self._pause()
        if self.medium.away:
            raise Unavailable("the medium is away")

    async def _pause(self) -> None:
        for _ in range(self._random.randint(0, self.lag)):
            await asyncio.sleep(0)

    async def compact_if_first(self, revision: int) -> bool:
        claimed = self.medium.compactions == self._known_compactions
        if claimed:
            self.medium.compactions += 1
            await self.compact(revision)
        self._known_compactions = self.medium.compactions
        return claimed

    async def compact(self, revision: int) -> None:
        self._check()
        if not self._history.compactable(revision):
            return
        for history in (self.medium.history, *(view._history for view in self.medium.views)):
            if revision > history.compacted:
                history.compacted = min(revision, history.revision)
                while events := history.compacted_events(100):
                    history.drop(len(events))
                    await asyncio.sleep(0)

    def size(self) -> int:
        return sum(len(each.key) + len(each.value) for each in self.medium.history.state.values())

    async def close(self) -> None:
        first, self._failure = self._failure is None, self._failure or "the store is closed"
        if first and self._under_way:
            await asyncio.wait(self._under_way)
        self._fail(self._failure)
        if self in self.medium.views:
            self.medium.views.remove(self)
