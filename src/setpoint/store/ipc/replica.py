"""The replica's end: a store of another process, with reads and watches from memory.

Reads and watches are served as in the other backends, from the same history that the owner has. A transaction is sent
to the owner, and answered when its revision is visible here. `sync` reads the owner's revision from memory that both
share: in the usual case it is visible here already, and nothing is awaited.

A replica does not outlive the connection to the owner. When it ends, the store has failed, and its process ends too.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from itertools import count
from typing import Any, Final, cast

from setpoint.store.history import History
from setpoint.store.in_memory_reads import InMemoryReads
from setpoint.store.interface import (
    CompareFailed,
    Event,
    KeyValue,
    Limits,
    NotedCause,
    NotProcessed,
    Op,
    Put,
    StoreError,
    TooLarge,
    Unavailable,
    recorded_form,
)
from setpoint.store.ipc import frames
from setpoint.store.ipc.frames import Frame, FrameReader, Malformed
from setpoint.store.ipc.shared_numbers import SharedNumbers
from setpoint.store.transaction import MAX_OPS, check_key, stamped
from setpoint.tasks import TaskRegistry

_LIMITS: Final = Limits(MAX_OPS, frames.MAX_REQUEST // 2)
"""The other half is for keys and the rest of the operations."""
_MAX_UNDER_WAY: Final = 1_024
"""Transactions under way; further ones wait here."""
_VISIBLE_TIMEOUT: Final = 10.0
"""Seconds in which the owner must deliver a revision that it has announced."""
_OVERDUE: Final = 10.0
"""Seconds without any frame of the owner, which reports every 2 s, until it counts as unavailable."""
_CLOSE_TIMEOUT: Final = 5.0
_DROP_BATCH: Final = 1_000
"""Number of events that are dropped in one iteration of the event loop."""
_MAX_ATTEMPTS: Final = 1_000
"""Attempts of one transaction; another is made only after a commit by another writer in between."""
_CLOSED: Final = "the store is closed"
_ERRORS: Final[dict[str, type[Exception]]] = {
    "not processed": NotProcessed,
    "unavailable": Unavailable,
    "too large": TooLarge,
    "error": StoreError,
    "invalid": ValueError,
}


class StoreReplica(InMemoryReads):
    def __init__(self, numbers: SharedNumbers) -> None:
        """Use `open`."""
        super().__init__(History())
        self._numbers = numbers
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskRegistry()
        self._link = _Link(self)
        self._base: list[KeyValue] = []
        """The state as of the compaction, while the snapshot arrives."""
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._requests = count(1)
        self._answers: dict[int, asyncio.Future[list[Any]]] = {}
        """The requests under way, by number."""
        self._under_way: set[asyncio.Future[None]] = set()
        self._slots = asyncio.Semaphore(_MAX_UNDER_WAY)
        self._dropping = False
        self._last_frame_at = self._loop.time()
        self.ended = asyncio.Event()
        """Set when the connection to the owner has ended."""

    @classmethod
    async def open(cls, connected: socket.socket, numbers: SharedNumbers) -> StoreReplica:
        """Read the state from the owner at the other end of a socket. Raises StoreError."""
        replica = cls(numbers)
        connected.setblocking(False)
        try:
            await replica._loop.create_unix_connection(lambda: replica._link, sock=connected)
            await replica._ready
            await replica.sync()
        except BaseException:
            await replica.close()
            raise
        return replica

    def serving(self) -> None:
        """Report to the owner that this process serves clients."""
        self._link.write(frames.encode(frames.SERVING))

    # -- frames of the owner ------------------------------------------------------------------------------------------

    def received(self, frame: Frame) -> None:
        self._last_frame_at = self._loop.time()
        kind, header = frame.kind, frame.header
        if kind == frames.EVENTS:
            self._apply(frame)
        elif kind == frames.ANSWER:
            number, *outcome = header
            answer = self._answers.pop(number, None)
            if answer is not None and not answer.done():
                answer.set_result(outcome)
        elif kind == frames.STATUS:
            self._follow_compaction()
            self._link.write(frames.encode(frames.ALIVE))
        elif kind == frames.FAILED:
            self._fail(str(header))
        elif kind == frames.HELLO:
            version, compacted = header
            if version != frames.VERSION:
                raise Malformed(f"frames of version {version}, and this process has version {frames.VERSION}")
            self._history.compacted = compacted
        elif kind == frames.BASE:
            self._base += frames.decode_entries(frame)
        elif kind == frames.READY:
            self._start_history()
            self._history.revision = max(self._history.revision, header)
            if not self._ready.done():
                self._ready.set_result(None)
        else:
            raise Malformed(f"a frame of the unknown kind {kind}")

    def _start_history(self) -> None:
        """Use the base of the snapshot, which is complete."""
        history = self._history
        if self._base or history.revision < history.compacted:
            self._history = History(self._base, history.compacted)
            self._base = []

    def _apply(self, frame: Frame) -> None:
        """Make transactions visible, and publish them."""
        self._start_history()
        history, published = self._history, list[Event]()
        state = history.state
        for revision, cause, changes in frames.decode_transactions(frame):
            if revision <= history.revision:
                raise Malformed(f"revision {revision} after revision {history.revision}")
            events: list[Event] = []
            for key, value, created in changes:
                before = state.get(key)
                if before is not None:
                    key = before.key  # all versions of a key share one str
                now = KeyValue(key, value, created, revision) if value is not None else None
                events.append(Event(revision, key, now, before))
            history.apply(events, cause)
            published += events
        history.revision = max(history.revision, frame.header[0])
        if published:
            self._subscriptions.publish(published, history.revision)
        self._wake_waiters()

    def _follow_compaction(self) -> None:
        """Make the revisions that the owner has compacted unreadable, and drop them from memory."""
        history = self._history
        revision = min(self._numbers.compacted, history.revision)
        if revision > history.compacted:
            history.compacted = revision
            if not self._dropping:
                self._dropping = True
                self._tasks.start(self._drop_compacted())

    async def _drop_compacted(self) -> None:
        try:
            while events := self._history.compacted_events(_DROP_BATCH):
                self._history.drop(len(events))
                await asyncio.sleep(0)
        finally:
            self._dropping = False

    def link_lost(self, reason: str) -> None:
        """Fail every call from now on: it is not known what the owner does."""
        if self._failure is None or self._failure == _CLOSED:
            self._fail(self._failure or reason)
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(Unavailable(f"{reason}; it is not known whether the transaction happened"))
        if not self._ready.done():
            self._ready.set_exception(StoreError(reason))
        self.ended.set()

    # -- the contract -------------------------------------------------------------------------------------------------

    @property
    def unavailable(self) -> str | None:
        silence = self._loop.time() - self._last_frame_at
        if self._failure is not None or silence < _OVERDUE:
            return None
        return f"the process that owns the store has not reported for {silence:.0f} s"

    @property
    def limits(self) -> Limits:
        return _LIMITS

    @property
    def shared(self) -> bool:
        return True

    async def sync(self) -> int:
        if self._failure is not None:
            raise StoreError(self._failure)
        committed = self._numbers.committed
        if committed > self._history.revision:
            await self._wait_for(committed)
        if self._numbers.compacted > self._history.compacted:
            self._follow_compaction()
        return committed

    async def _wait_for(self, revision: int) -> None:
        """Wait until a committed revision is visible; Unavailable if the owner does not deliver it in time."""
        try:
            async with asyncio.timeout(_VISIBLE_TIMEOUT):
                await self._wait_visible(revision)
        except TimeoutError:
            raise Unavailable(f"revision {revision} of the store is not visible here yet") from None

    async def txn(self, ops: Sequence[Op], cause: bytes | NotedCause = b"") -> tuple[int, Sequence[KeyValue | None]]:
        self._check()
        for op in ops:
            check_key(op.key)  # a header cannot contain every str
        if not ops:
            return self._history.revision, []
        done: asyncio.Future[None] = self._loop.create_future()
        self._under_way.add(done)
        try:
            async with self._slots:
                return await self._txn(ops, recorded_form(cause))
        finally:
            self._under_way.discard(done)
            done.set_result(None)

    async def _txn(self, ops: Sequence[Op], cause: bytes) -> tuple[int, Sequence[KeyValue | None]]:
        for _ in range(_MAX_ATTEMPTS):
            number = next(self._requests)
            request = frames.encode_txn(number, ops, cause)
            if len(request) > frames.MAX_REQUEST:
                raise TooLarge(
                    f"a transaction of {len(request)} bytes is larger than the maximum, {frames.MAX_REQUEST}"
                )
            outcome, *details = await self._ask(number, request)
            if outcome not in ("ok", "compare"):
                raise _error(outcome, details)
            revision: int = details[0]
            if revision > self._history.revision:
                await self._wait_for(revision)
            if outcome == "ok":
                return revision, [self._result(op, revision, at) for op, at in zip(ops, details[1], strict=True)]
            key = details[1]
            current = self._history.state.get(key)
            expected = next(op.expect for op in ops if op.key == key)
            if expected != (current.mod_revision if current is not None else 0):
                raise CompareFailed(key, current)
            # The state is newer than the one that the comparison failed against, and the expectation holds again.
        raise NotProcessed(f"a comparison failed {_MAX_ATTEMPTS} times, and never here")

    def _result(self, op: Op, revision: int, created: int) -> KeyValue | None:
        if not isinstance(op, Put):
            return None
        entry = self._history.state.get(op.key)
        if entry is not None and entry.mod_revision == revision:
            return entry
        # It was written again since.
        value = op.value if op.stamp is None else stamped(op.value, op.stamp, revision)
        return KeyValue(op.key, value, created, revision)

    async def _ask(self, number: int, request: bytes) -> list[Any]:
        if self.ended.is_set():
            raise StoreError(self._failure or _CLOSED)
        answer: asyncio.Future[list[Any]] = self._loop.create_future()
        self._answers[number] = answer
        self._link.write(request)
        try:
            return await answer
        finally:
            self._answers.pop(number, None)

    async def compact(self, revision: int) -> None:
        self._check()
        if self._history.compactable(revision):
            await self._compact(frames.COMPACT, revision)

    async def compact_if_first(self, revision: int) -> bool:
        self._check()
        if not self._history.compactable(revision):
            return False
        return await self._compact(frames.COMPACT_IF_FIRST, revision)

    async def _compact(self, kind: int, revision: int) -> bool:
        number = next(self._requests)
        outcome, *details = await self._ask(number, frames.encode(kind, (number, revision)))
        if outcome != "ok":
            raise _error(outcome, details)
        self._follow_compaction()
        while self._dropping:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return bool(details[0])

    def size(self) -> int:
        """Return the size that the owner has last reported."""
        return self._numbers.size

    async def close(self) -> None:
        first, self._failure = self._failure is None, self._failure or _CLOSED
        if first and self._under_way:
            await asyncio.wait(self._under_way, timeout=_CLOSE_TIMEOUT)
        self._fail(self._failure)
        self._link.close()
        await self._tasks.stop()


class _Link(asyncio.Protocol):
    """The connection to the owner."""

    def __init__(self, replica: StoreReplica) -> None:
        self._replica = replica
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._replica.received(frame)
        except (Malformed, ValueError, TypeError, KeyError) as error:
            self._end(f"the owner of the store has sent {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._end("the connection to the process that owns the store has ended")

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        self._end(_CLOSED)

    def _end(self, reason: str) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
            self._replica.link_lost(reason)


def _error(outcome: str, details: Sequence[Any]) -> Exception:
    return _ERRORS[outcome](*details)
