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
from contextvars import Context

from setpoint.store.history import History
from setpoint.store.in_memory_reads import InMemoryReads
from setpoint.store.interface import CompareFailed, Event, KeyValue, NotedCause, Op, Unavailable, recorded_form
from setpoint.store.memory import MemoryStore
from setpoint.store.quota import StoreQuota

_FIRST_REVISION = 7
_DROP_BATCH = 100


class Medium(MemoryStore):
    """The committed state, which the views follow."""

    def __init__(self, seed: int = 1, *, start: History | None = None, quota: StoreQuota | None = None) -> None:
        """Create a medium with the content of `start`."""
        history = start if start is not None else History()
        history.revision = max(history.revision, _FIRST_REVISION)
        super().__init__(history, shared=True, quota=quota)
        self.seed = seed
        self.random = random.Random(seed)
        self.history = history
        self.view_count = 0
        """Number of views that were opened."""
        self.attempts = 0
        """Number of transactions that were attempted."""
        self.away = False
        """Whether the medium is unreachable for all views."""

    async def txn(self, ops: Sequence[Op], cause: bytes | NotedCause = b"") -> tuple[int, Sequence[KeyValue | None]]:
        self.attempts += 1
        self._step = self.random.choice((1, 1, 2, 5))
        return await super().txn(ops, cause)


class LaggingStore(InMemoryReads):
    def __init__(self, medium: Medium | None = None, *, lag: int = 3, shared: bool | None = None) -> None:
        """Create a view that shows commits at most `lag` iterations of the event loop later.

        `shared` says whether others write to the medium; by default they do if the test has made it."""
        self.medium = medium or Medium()
        super().__init__(self.medium.copy_of_history())
        self.lag = lag
        self._shared = medium is not None if shared is None else shared
        self._known_compactions = self.medium.compactions
        self.held = False
        """Whether commits are held back from this view."""
        self._random = random.Random((self.medium.seed - 1) * 100 + self.medium.view_count)
        self.medium.view_count += 1
        self._arriving: deque[tuple[Sequence[Event], bytes]] = deque()
        self._under_way: set[asyncio.Future[None]] = set()
        self._subscription = self.medium.watch("", self.medium.revision, self._arrive)
        self.medium.compaction_listeners.append(self._mark_compacted)

    # -- what the medium says -------------------------------------------------------------------------------------

    def _arrive(self, events: Sequence[Event], revision: int) -> None:
        self._arriving.append((events, self.medium.cause_of(revision)))
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
        # Not in the context of a writer: the changes of others arrive too.
        step = self._show if turns <= 1 else lambda: self._show_after(turns - 1)
        asyncio.get_running_loop().call_soon(step, context=Context())

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
            self._mark_compacted(self.medium.compacted)
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
                revision, answers = await self.medium.txn(ops, cause)
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

    async def compact(self, revision: int) -> None:
        self._check()
        if self._history.compactable(revision):
            await self.archive_until(revision)
            await self.medium.compact(revision)

    async def compact_if_first(self, revision: int) -> bool:
        claimed = self.medium.claim_compaction(self._known_compactions)
        self._known_compactions = self.medium.compactions
        if claimed:
            await self.compact(revision)
        return claimed

    def _mark_compacted(self, revision: int) -> None:
        history = self._history
        history.compacted = max(history.compacted, min(revision, history.revision))
        while events := history.compacted_events(_DROP_BATCH):
            history.drop(len(events))

    def size(self) -> int:
        return self.medium.size()

    async def close(self) -> None:
        first, self._failure = self._failure is None, self._failure or "the store is closed"
        if first and self._under_way:
            await asyncio.wait(self._under_way)
        self._fail(self._failure)
        self._subscription.close()
        if first:
            self.medium.compaction_listeners.remove(self._mark_compacted)
