"""The owner's end: serves a store of this process to replicas in other processes.

A replica gets a snapshot first: the state as of the last compaction, and every transaction since, so that it can serve
the same history. Then it gets each transaction when it is committed. The position of a replica is a place in the log of
the store: a replica that reads slowly is behind, and costs no memory here. One that is behind a compaction, or does not
answer 15 reports in a row, is disconnected.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

from setpoint.store.history import History
from setpoint.store.interface import (
    CompareFailed,
    Event,
    KeyValue,
    NotProcessed,
    Op,
    StoreError,
    TooLarge,
    Unavailable,
)
from setpoint.store.ipc import frames
from setpoint.store.ipc.frames import Frame, FrameReader, Malformed
from setpoint.store.ipc.shared_numbers import SharedNumbers
from setpoint.store.memory import MemoryStore
from setpoint.store.sqlite import SqliteStore
from setpoint.tasks import TaskRegistry

OwnedStore = MemoryStore | SqliteStore
"""A store that has all of its state in this process."""

_SNAPSHOT_FRAME: Final = 1 << 20
"""The bytes of values after which a frame of a snapshot ends."""
_SNAPSHOT_ENTRIES: Final = 500
"""The entries after which it ends, however small they are."""
_EVENTS: Final = 100
"""About the number of events that are encoded in one iteration of the event loop."""
_MAX_REQUESTS: Final = 2_048
"""Requests of one replica under way; then no more are read until one has ended."""
_WRITE_BUFFER: Final = 4 << 20
"""Bytes that wait for a replica to read them; then it gets no more events until it has."""
_STATUS_INTERVAL: Final = 2.0
_REPORTS_PER_SIZE: Final = 10
"""The size is measured with every tenth report, because some stores count all entries."""
_MAX_UNANSWERED: Final = 15
"""Reports in a row that a replica which serves clients may leave unanswered; then it is disconnected. Time is not
counted: this process may have been suspended."""
_ERRORS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (NotProcessed, "not processed"),
    (Unavailable, "unavailable"),
    (TooLarge, "too large"),
    (StoreError, "error"),
    (ValueError, "invalid"),
)


class StoreServer:
    def __init__(self, store: OwnedStore, numbers: SharedNumbers) -> None:
        """Serve `store`. `numbers` is the memory in which replicas see its revision."""
        self.store = store
        self.compactions = 0
        """The number of compactions that replicas have claimed."""
        self._numbers = numbers
        self._connections: set[ReplicaConnection] = set()
        self._encoded: tuple[int, int, Sequence[bytes]] = (0, 0, ())
        """The last frames of events: the revision that they follow, the revision reached, and their bytes. Replicas
        that are up to date get the same ones."""
        self._reports = 0
        self._loop = asyncio.get_running_loop()
        numbers.committed, numbers.compacted, numbers.size = store.revision, store.compacted, store.size()
        self._subscription = store.watch("", store.revision, self._on_commit)
        store.compaction_listeners.append(self._on_compaction)
        self._timer = self._loop.call_later(_STATUS_INTERVAL, self._report)

    async def connect(
        self, connected: socket.socket, on_serving: Callable[[], None] = lambda: None
    ) -> ReplicaConnection:
        """Serve a replica at the other end of a socket. `on_serving` is called when it reports that it serves."""
        connected.setblocking(False)
        _, connection = await self._loop.create_unix_connection(
            lambda: ReplicaConnection(self, on_serving), sock=connected
        )
        return connection

    def close(self) -> None:
        """Disconnect all replicas."""
        if self._timer.cancelled():
            return
        self._timer.cancel()
        self._subscription.close()
        self.store.compaction_listeners.remove(self._on_compaction)
        for connection in [*self._connections]:
            connection.abort("the store is closed")

    def _on_commit(self, events: Sequence[Event], revision: int) -> None:
        self._numbers.committed = revision
        for connection in [*self._connections]:
            connection.send_events()

    def _on_compaction(self, revision: int) -> None:
        self._numbers.compacted, self._numbers.size = self.store.compacted, self.store.size()

    def _report(self) -> None:
        self._timer = self._loop.call_later(_STATUS_INTERVAL, self._report)
        failure = self.store.failure
        if failure is not None:
            report = frames.encode(frames.FAILED, failure)
        else:
            self._reports += 1
            if self._reports % _REPORTS_PER_SIZE == 0:
                self._numbers.size = self.store.size()
            report = frames.encode(frames.STATUS)
        for connection in [*self._connections]:
            connection.report(report)

    # Called by connections.

    def opened(self, connection: ReplicaConnection) -> None:
        self._connections.add(connection)

    def closed(self, connection: ReplicaConnection) -> None:
        self._connections.discard(connection)

    def events_after(self, after: int) -> tuple[int, Sequence[bytes]]:
        """Return the frames of the next events after a revision, and the revision that they reach."""
        known, reached, encoded = self._encoded
        if known != after or not encoded or reached <= after:
            events, causes, reached = self.store.transactions(after, _EVENTS)
            encoded = frames.encode_events(events, causes, reached)
            self._encoded = after, reached, encoded
        return reached, encoded


class ReplicaConnection(asyncio.Protocol):
    """The connection to one replica."""

    def __init__(self, server: StoreServer, on_serving: Callable[[], None]) -> None:
        self._server = server
        self._on_serving = on_serving
        self._reader = FrameReader(frames.MAX_REQUEST)
        self._tasks = TaskRegistry()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._sent = -1
        """The revision up to which events were sent; -1 while the snapshot is being sent."""
        self._paused = False
        """Whether no requests are read because too many are under way."""
        self._unanswered = 0
        self._serving = False
        self._known_compactions = server.compactions
        self.reason = ""
        """Why this end has disconnected the replica; empty if it has not."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection has ended, for whatever reason."""

    # -- the protocol -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_WRITE_BUFFER)
        self._server.opened(self)
        self._tasks.start(self._send_snapshot())

    def data_received(self, data: bytes) -> None:
        self._unanswered = 0
        try:
            for frame in self._reader.feed(data):
                self._received(frame)
        except (Malformed, ValueError, TypeError) as error:
            self.abort(f"a replica has sent {error}")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        self.send_events()

    def connection_lost(self, error: Exception | None) -> None:
        self._server.closed(self)
        self._tasks.cancel()
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(None)

    def abort(self, reason: str) -> None:
        """Disconnect the replica."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
            self.reason = reason

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    # -- events -------------------------------------------------------------------------------------------------------

    async def _send_snapshot(self) -> None:
        store = self._server.store
        history = store.copy_of_history()
        base = history.compacted
        self._write(frames.encode(frames.HELLO, (frames.VERSION, base)))
        for entries in _chunks(await _state_at_compaction(history)):
            self._write(frames.encode_entries(entries))
            await self._written()
        after = base
        while after < history.revision:
            events, causes, after = history.transactions(after, _EVENTS)
            for frame in frames.encode_events(events, causes, after):
                self._write(frame)
            await self._written()
        self._write(frames.encode(frames.READY, history.revision))
        self._sent = history.revision
        self.send_events()

    async def _written(self) -> None:
        """Let others run, and wait until the replica has read enough."""
        await asyncio.sleep(0)
        await self._writable.wait()

    def send_events(self) -> None:
        """Send the events that the replica does not have, unless it has to read others first."""
        store = self._server.store
        while 0 <= self._sent < store.revision and self._writable.is_set() and self._transport is not None:
            if self._sent < store.compacted:
                self.abort(f"it is at revision {self._sent}, and the history up to {store.compacted} was compacted")
                return
            self._sent, encoded = self._server.events_after(self._sent)
            for frame in encoded:
                self._write(frame)

    def report(self, report: bytes) -> None:
        if self._unanswered >= _MAX_UNANSWERED:
            self.abort(f"it has not answered for {_MAX_UNANSWERED * _STATUS_INTERVAL:g} s")
        elif self._sent >= 0:
            self._unanswered += self._serving  # the start of a server may take long
            self._write(report)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _received(self, frame: Frame) -> None:
        if frame.kind == frames.TXN:
            self._tasks.start(self._txn(*frames.decode_txn(frame)))
            if len(self._tasks) >= _MAX_REQUESTS and self._transport is not None and not self._paused:
                self._paused = True
                self._transport.pause_reading()
        elif frame.kind in (frames.COMPACT, frames.COMPACT_IF_FIRST):
            number, revision = frame.header
            self._tasks.start(self._compact(number, revision, frame.kind == frames.COMPACT_IF_FIRST))
        elif frame.kind == frames.SERVING:
            self._serving = True
            self._on_serving()
        elif frame.kind != frames.ALIVE:
            raise Malformed(f"a frame of the unknown kind {frame.kind}")

    async def _txn(self, number: int, ops: Sequence[Op], cause: bytes) -> None:
        store = self._server.store
        try:
            revision, entries = await store.txn(ops, cause)
            created = [each.create_revision if each is not None else 0 for each in entries]
            self._answer(number, "ok", revision, created)
        except CompareFailed as failed:
            self._answer(number, "compare", store.revision, failed.key)
        except (StoreError, ValueError) as error:
            self._answer(number, *_described(error))
        if self._paused and self._transport is not None and len(self._tasks) <= _MAX_REQUESTS:
            self._paused = False
            self._transport.resume_reading()

    async def _compact(self, number: int, revision: int, if_first: bool) -> None:
        server = self._server
        try:
            claimed = True
            if if_first:
                claimed = self._known_compactions == server.compactions
                server.compactions += claimed
                self._known_compactions = server.compactions
            if claimed:
                await server.store.compact(revision)
            self._answer(number, "ok", claimed)
        except (StoreError, ValueError) as error:
            self._answer(number, *_described(error))

    def _answer(self, number: int, outcome: str, *details: Any) -> None:
        self._write(frames.encode(frames.ANSWER, (number, outcome, *details)))


async def _state_at_compaction(history: History) -> Iterator[KeyValue]:
    """Return the entries as of the revision up to which the history is compacted."""
    changed: dict[str, KeyValue | None] = {}
    after = history.compacted
    while after < history.revision:
        events, _, after = history.transactions(after, _EVENTS)
        for event in events:
            changed.setdefault(event.key, event.before)
        await asyncio.sleep(0)

    def entries() -> Iterator[KeyValue]:
        yield from (each for key, each in history.state.items() if key not in changed)
        yield from (each for each in changed.values() if each is not None)

    return entries()


def _chunks(entries: Iterator[KeyValue]) -> Iterator[list[KeyValue]]:
    chunk, size = list[KeyValue](), 0
    for entry in entries:
        chunk.append(entry)
        size += entry.size
        if size > _SNAPSHOT_FRAME or len(chunk) >= _SNAPSHOT_ENTRIES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _described(error: StoreError | ValueError) -> tuple[str, str]:
    return next(name for kind, name in _ERRORS if isinstance(error, kind)), str(error)
