"""The embedded store: durable in one SQLite file, read from memory.

A transaction is compared with the *head*: the visible state with everything still under way on top. There it gets its
revision, and goes to the writer. When the writer says that it is durable it becomes visible, is told to subscribers,
and is acknowledged, in this order and in one turn of the event loop. Nothing can fail in between except the disk, and
then everything under way fails, in order, and the store stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from setpoint.store.data_loss import DataLoss
from setpoint.store.history import History
from setpoint.store.interface import CompareFailed, Event, KeyValue, Op, StoreError
from setpoint.store.readable import ReadableStore
from setpoint.store.sqlite_file import Dead, SqliteFile
from setpoint.store.sqlite_writer import Chore, Flight, Writer
from setpoint.store.transaction import plan

log = logging.getLogger("setpoint.store")

# So many rows a writer may have to wait for, behind a step of compaction: a few milliseconds.
_DELETE_AT_ONCE = 500
_TOLD_AT_ONCE = 8
_CLOSED = "the store is closed"

_Result = TypeVar("_Result")


class SqliteStore(ReadableStore):
    def __init__(self, file: SqliteFile, history: History, dead: Sequence[Dead]) -> None:
        super().__init__(history)
        self._file = file
        self._head_revision = history.revision
        # The last change under way of each key that has one: the head, where it differs from the visible state.
        self._pending: dict[str, Event] = {}
        self._flights: deque[Flight] = deque()  # all under way, by revision
        self._chores: set[Chore] = set()
        self._writer: Writer | None = None  # begins with the first use of the event loop
        self._ended: asyncio.Future[None] | None = None
        self._left_behind = deque(dead)  # rows of an interrupted compaction, to be deleted by the next
        self._compacting = asyncio.Lock()

    @classmethod
    def open(cls, path: str | PathLike[str], *, accept_data_loss: bool = False) -> SqliteStore:
        """Open or create the file and read it into memory: call it before there is anything to serve. Raises
        StoreError if the directory is missing or in use, or the file damaged, foreign or not to be written; DataLoss
        if acknowledged writes are missing, unless that is accepted."""
        try:
            return cls._open(path)
        except DataLoss as loss:
            if not accept_data_loss:
                raise
            from setpoint.store.recovery import accept_loss  # hardly ever needed

            log.warning("data loss is accepted: %s", loss)
            accept_loss(Path(path))
            return cls._open(path)

    @classmethod
    def _open(cls, path: str | PathLike[str]) -> SqliteStore:
        file = SqliteFile.open(Path(path))
        try:
            history, dead = file.load()
        except BaseException:
            file.close()
            raise
        return cls(file, history, dead)

    # -- writing ------------------------------------------------------------------------------------------------------

    async def txn(self, ops: Sequence[Op], cause: bytes = b"") -> tuple[int, Sequence[KeyValue | None]]:
        while True:
            self._check()
            revision = self._head_revision + 1
            try:
                events, answers = plan(ops, self._head, revision)
                break
            except CompareFailed as failed:
                pending = self._pending.get(failed.key)
                if pending is None:
                    raise
                # The caller must not learn of a change that may yet be lost.
                await self._visible(pending.revision)
                current = self._history.state.get(failed.key)
                expected = next(op.expect for op in ops if op.key == failed.key)
                if expected != (current.mod_revision if current is not None else 0):
                    raise CompareFailed(failed.key, current) from None
                # It was created and deleted again in the meantime: what was expected is true once more.
        if not events:
            # "There is nothing to delete" may rest on a deletion under way.
            if under_way := [self._pending[op.key].revision for op in ops if op.key in self._pending]:
                await self._visible(max(under_way))
            return self._history.revision, answers
        self._head_revision = revision
        for event in events:
            self._pending[event.key] = event
        writer = self._writer or self._start()
        flight = Flight(events, answers, cause, asyncio.get_running_loop().create_future())
        self._flights.append(flight)
        writer.put(flight)
        return await flight.landed

    def _head(self, key: str) -> KeyValue | None:
        pending = self._pending.get(key)
        return self._history.state.get(key) if pending is None else pending.now

    # -- what the writer says, on the event loop ----------------------------------------------------------------------

    def _start(self) -> Writer:
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        self._writer = Writer(
            self._file, loop, landed=self._on_landed, did=self._on_did, failed=self._on_failed, ended=self._on_ended
        )
        return self._writer

    def _on_landed(self, batch: Sequence[Flight]) -> None:
        history, pending = self._history, self._pending
        events: list[Event] = []
        for flight in batch:
            self._flights.popleft()
            history.apply(flight.events, flight.cause)
            for event in flight.events:
                if pending.get(event.key) is event:
                    del pending[event.key]
            events += flight.events
        self._subscriptions.publish(events, history.revision)
        self._tell(batch)
        self._wake_reached()

    def _tell(self, batch: Sequence[Flight], start: int = 0) -> None:
        """A few of the callers in each turn of the loop: what hundreds of them do next would make it a long one."""
        for flight in batch[start : start + _TOLD_AT_ONCE]:
            # Done already means that the caller was cancelled; the transaction happened all the same.
            if not flight.landed.done():
                flight.landed.set_result((flight.events[0].revision, flight.answers))
        if start + _TOLD_AT_ONCE < len(batch):
            asyncio.get_running_loop().call_soon(self._tell, batch, start + _TOLD_AT_ONCE)

    def _on_did(self, chore: Chore, result: Any) -> None:
        self._chores.discard(chore)
        if not chore.done.done():
            chore.done.set_result(result)

    def _on_failed(self, why: StoreError) -> None:
        self._refuse(str(why))
        waiting: list[asyncio.Future[Any]] = [flight.landed for flight in self._flights]
        waiting += [chore.done for chore in self._chores]
        self._flights.clear()
        self._chores.clear()
        self._pending.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(StoreError(str(why)))

    def _on_ended(self) -> None:
        self._refuse(self._refusal or _CLOSED)
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    # -- keeping house ------------------------------------------------------------------------------------------------

    async def compact(self, revision: int) -> None:
        """What is forgotten leaves memory and file step by step, with transactions in between. Interrupted, it is
        finished by the next."""
        self._check()
        async with self._compacting:
            self._check()
            if self._history.compactable(revision):
                await self._in_writer(lambda file: file.compacted(revision))
                self._history.compacted = revision
            while self._left_behind:
                dead = [*islice(self._left_behind, _DELETE_AT_ONCE)]
                await self._delete(dead)
                for _ in dead:
                    self._left_behind.popleft()
            while events := self._history.oldest(_DELETE_AT_ONCE // 2):
                await self._delete([row for event in events for row in _dead(event)])
                self._history.drop(len(events))
            while await self._in_writer(SqliteFile.shrink):
                pass

    async def _delete(self, dead: Sequence[Dead]) -> None:
        if dead:
            await self._in_writer(lambda file: file.delete(dead))

    async def _in_writer(self, do: Callable[[SqliteFile], _Result]) -> _Result:
        self._check()
        writer = self._writer or self._start()
        done: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        chore = Chore(do, done)
        self._chores.add(chore)
        writer.put(chore)
        return await done

    async def check(self) -> None:
        """Make sure that the files on disk are still the ones that this store writes to. If not, the store fails: it
        answers no more, and this raises StoreError."""
        await self._in_writer(SqliteFile.check)

    def size(self) -> int:
        """Bytes of the data file and its write-ahead log."""
        return self._file.size()

    async def close(self) -> None:
        first = self._refusal is None
        if first:
            self._refusal = _CLOSED
        if self._writer is None or self._ended is None:
            self._refuse(self._refusal or _CLOSED)
            self._file.close()
            return
        if first:
            self._writer.put(None)
        await asyncio.shield(self._ended)
        self._writer.join()


def _dead(event: Event) -> Iterator[Dead]:
    """The rows that nobody needs once the event is compacted. Those of one event must go in one step: without its
    deletion, a value would rise from the dead."""
    if event.before is not None:
        yield event.before.mod_revision, event.key
    if event.now is None:
        yield event.revision, event.key
