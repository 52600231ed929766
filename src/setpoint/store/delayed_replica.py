"""A second store on the medium of a MemoryStore, which shows every commit later than the first one.

It is what an API server has that shares its medium with others, without a network and on the time of the event loop: in
virtual time a test can try any lag, and repeat it. A transaction of the replica is committed to the medium at once, and
returns when it is visible in the replica.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from setpoint.store.in_memory_reads import InMemoryReads
from setpoint.store.interface import CompareFailed, Event, KeyValue, NotedCause, Op, recorded_form
from setpoint.store.memory import MemoryStore

Delay = Callable[[int], float]
"""Function from a revision to the seconds after its commit at which it becomes visible. Revisions stay in order: one
waits for those before it."""


class _Arrival(NamedTuple):
    visible_at: float
    events: Sequence[Event]
    cause: bytes


class DelayedReplica(InMemoryReads):
    def __init__(self, medium: MemoryStore, delay: Delay) -> None:
        """Start with the state of the medium, which must have been created as shared."""
        super().__init__(medium.copy_of_history())
        self._medium = medium
        self._delay = delay
        self._loop = asyncio.get_running_loop()
        self._held_until = 0.0
        """The time of the event loop before which no further commit becomes visible."""
        self._arriving: deque[_Arrival] = deque()
        self._under_way: set[asyncio.Future[None]] = set()
        self._known_compactions = medium.compactions
        self._subscription = medium.watch("", medium.revision, self._arrive)
        medium.compaction_listeners.append(self._mark_compacted)

    def hold(self, seconds: float) -> None:
        """Show nothing new for `seconds`."""
        self._held_until = max(self._held_until, self._loop.time() + seconds)

    def _arrive(self, events: Sequence[Event], revision: int) -> None:
        now = self._loop.time()
        visible_at = max(now + self._delay(revision), self._held_until)
        if self._arriving:
            visible_at = max(visible_at, self._arriving[-1].visible_at)
        self._arriving.append(_Arrival(visible_at, events, self._medium.cause_of(revision)))
        if len(self._arriving) == 1:
            if visible_at <= now:
                self._show()
            else:
                self._loop.call_at(visible_at, self._show)

    def _show(self) -> None:
        """Show what is due, and come back when the next is."""
        now, shown = self._loop.time(), list[Event]()
        while self._arriving and max(self._arriving[0].visible_at, self._held_until) <= now:
            arrival = self._arriving.popleft()
            self._history.apply(arrival.events, arrival.cause)
            shown += arrival.events
        if shown:
            self._mark_compacted(self._medium.compacted)
            self._subscriptions.publish(shown, self._history.revision)
            self._wake_waiters()
        if self._arriving:
            self._loop.call_at(max(self._arriving[0].visible_at, self._held_until), self._show)

    # -- the contract -------------------------------------------------------------------------------------------------

    @property
    def shared(self) -> bool:
        return True

    async def sync(self) -> int:
        self._check()
        committed = self._medium.revision
        await self._wait_visible(committed)
        return committed

    async def txn(self, ops: Sequence[Op], cause: bytes | NotedCause = b"") -> tuple[int, Sequence[KeyValue | None]]:
        self._check()
        done: asyncio.Future[None] = self._loop.create_future()
        self._under_way.add(done)
        try:
            return await self._txn(ops, recorded_form(cause))
        finally:
            self._under_way.discard(done)
            done.set_result(None)

    async def _txn(self, ops: Sequence[Op], cause: bytes) -> tuple[int, Sequence[KeyValue | None]]:
        while True:
            try:
                revision, answers = await self._medium.txn(ops, cause)
            except CompareFailed as failed:
                await self._wait_visible(self._medium.revision)
                current = self._history.state.get(failed.key)
                expected = next(op.expect for op in ops if op.key == failed.key)
                if expected != (current.mod_revision if current is not None else 0):
                    raise CompareFailed(failed.key, current) from None
                continue  # the expectation holds again
            await self._wait_visible(revision)
            return revision, answers

    async def compact(self, revision: int) -> None:
        self._check()
        if self._history.compactable(revision):
            await self._medium.compact(revision)

    async def compact_if_first(self, revision: int) -> bool:
        claimed = self._medium.claim_compaction(self._known_compactions)
        self._known_compactions = self._medium.compactions
        if claimed:
            await self.compact(revision)
        return claimed

    def _mark_compacted(self, revision: int) -> None:
        history = self._history
        history.compacted = max(history.compacted, min(revision, history.revision))
        while events := history.compacted_events(1_000):
            history.drop(len(events))

    def size(self) -> int:
        return self._medium.size()

    async def close(self) -> None:
        first, self._failure = self._failure is None, self._failure or "the store is closed"
        if first and self._under_way:
            await asyncio.wait(self._under_way)
        self._fail(self._failure)
        self._subscription.close()
        if first:
            self._medium.compaction_listeners.remove(self._mark_compacted)
