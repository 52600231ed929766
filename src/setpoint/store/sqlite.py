"""The embedded store: durable in one SQLite file, read from memory.

A transaction is compared with the *head*: the visible state plus all pending transactions. It gets its revision and is
queued for the writer thread. Once the writer reports it as durable it becomes visible, is published to subscribers, and
is acknowledged, in this order and in one iteration of the event loop. Only the disk can fail in between, and then all
pending transactions fail, in order, and the store stops.
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

from setpoint.store.durable_revision import DataLoss
from setpoint.store.history import History
from setpoint.store.in_memory_reads import InMemoryReads
from setpoint.store.interface import CompareFailed, Event, KeyValue, NotedCause, Op, StoreError
from setpoint.store.sqlite_file import ObsoleteRow, SqliteFile
from setpoint.store.sqlite_writer import MaintenanceTask, PendingTransaction, Writer
from setpoint.store.transaction import plan

log = logging.getLogger("setpoint.store")

# Number of rows deleted by one step of compaction. Transactions wait a few milliseconds behind a step.
_DELETE_BATCH = 500
_RESULTS_PER_ITERATION = 8
_CLOSED = "the store is closed"

_Result = TypeVar("_Result")


class SqliteStore(InMemoryReads):
    def __init__(self, file: SqliteFile, history: History, obsolete: Sequence[ObsoleteRow]) -> None:
        super().__init__(history)
        self._file = file
        self._head_revision = history.revision
        # The last pending change of each key that has one: where the head differs from the visible state.
        self._pending_events: dict[str, Event] = {}
        self._in_flight: deque[PendingTransaction] = deque()  # pending transactions, by revision
        self._maintenance_tasks: set[MaintenanceTask] = set()
        self._writer: Writer | None = None  # started with the first use of the event loop
        self._writer_ended: asyncio.Future[None] | None = None
        self._leftover_rows = deque(obsolete)  # rows of an interrupted compaction, deleted by the next
        self._compacting = asyncio.Lock()

    @classmethod
    def open(cls, path: str | PathLike[str], *, accept_data_loss: bool = False) -> SqliteStore:
        """Open or create the file and read it into memory. It blocks: call it before serving starts.

        Raises StoreError if the directory is missing or in use, or if the file is damaged, not writable or not a
        Setpoint database; DataLoss if acknowledged writes are missing, unless `accept_data_loss` is set."""
        try:
            return cls._open(path)
        except DataLoss as loss:
            if not accept_data_loss:
                raise
            from setpoint.store.recovery import accept_loss  # rarely needed

            log.warning("data loss is accepted: %s", loss)
            accept_loss(Path(path))
            return cls._open(path)

    @classmethod
    def _open(cls, path: str | PathLike[str]) -> SqliteStore:
        file = SqliteFile.open(Path(path))
        try:
            history, obsolete = file.load()
        except BaseException:
            file.close()
            raise
        return cls(file, history, obsolete)

    # -- writing ------------------------------------------------------------------------------------------------------

    async def txn(self, ops: Sequence[Op], cause: bytes | NotedCause = b"") -> tuple[int, Sequence[KeyValue | None]]:
        while True:
            self._check()
            revision = self._head_revision + 1
            try:
                events, answers = plan(ops, self._head, revision)
                break
            except CompareFailed as failed:
                pending = self._pending_events.get(failed.key)
                if pending is None:
                    raise
                # The caller must not see a change that is not durable yet.
                await self._wait_visible(pending.revision)
                current = self._history.state.get(failed.key)
                expected = next(op.expect for op in ops if op.key == failed.key)
                if expected != (current.mod_revision if current is not None else 0):
                    raise CompareFailed(failed.key, current) from None
                # The key was created and deleted in the meantime, and the expectation holds again: retry.
        if not events:
            # The keys may be absent because of a pending deletion: wait until it is durable.
            wanted = [self._pending_events[op.key].revision for op in ops if op.key in self._pending_events]
            if wanted:
                await self._wait_visible(max(wanted))
            return self._history.revision, answers
        self._head_revision = revision
        for event in events:
            self._pending_events[event.key] = event
        writer = self._writer or self._start()
        transaction = PendingTransaction(events, answers, cause, asyncio.get_running_loop().create_future())
        self._in_flight.append(transaction)
        writer.put(transaction)
        return await transaction.committed

    def _head(self, key: str) -> KeyValue | None:
        pending = self._pending_events.get(key)
        return self._history.state.get(key) if pending is None else pending.now

    # -- the writer thread's callbacks, on the event loop -------------------------------------------------------------

    def _start(self) -> Writer:
        loop = asyncio.get_running_loop()
        self._writer_ended = loop.create_future()
        self._writer = Writer(
            self._file,
            loop,
            on_committed=self._on_committed,
            on_task_completed=self._on_task_completed,
            on_failed=self._on_failed,
            on_ended=self._on_ended,
        )
        return self._writer

    def _on_committed(self, batch: Sequence[PendingTransaction]) -> None:
        history, pending = self._history, self._pending_events
        events: list[Event] = []
        for transaction in batch:
            self._in_flight.popleft()
            history.apply(transaction.events, transaction.cause)
            for event in transaction.events:
                if pending.get(event.key) is event:
                    del pending[event.key]
            events += transaction.events
        self._subscriptions.publish(events, history.revision)
        self._resolve(batch)
        self._wake_waiters()

    def _resolve(self, batch: Sequence[PendingTransaction], start: int = 0) -> None:
        """Resolve the futures of a few callers in each iteration of the event loop.

        Resolving hundreds at once would block the loop with what the callers do next."""
        for transaction in batch[start : start + _RESULTS_PER_ITERATION]:
            # A done future means that the caller was cancelled; the transaction happened nevertheless.
            if not transaction.committed.done():
                transaction.committed.set_result((transaction.events[0].revision, transaction.answers))
        if start + _RESULTS_PER_ITERATION < len(batch):
            asyncio.get_running_loop().call_soon(self._resolve, batch, start + _RESULTS_PER_ITERATION)

    def _on_task_completed(self, task: MaintenanceTask, result: Any) -> None:
        self._maintenance_tasks.discard(task)
        if not task.result.done():
            task.result.set_result(result)

    def _on_failed(self, why: StoreError) -> None:
        self._fail(str(why))
        waiting: list[asyncio.Future[Any]] = [transaction.committed for transaction in self._in_flight]
        waiting += [task.result for task in self._maintenance_tasks]
        self._in_flight.clear()
        self._maintenance_tasks.clear()
        self._pending_events.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(StoreError(str(why)))

    def _on_ended(self) -> None:
        self._fail(self._failure or _CLOSED)
        if self._writer_ended is not None and not self._writer_ended.done():
            self._writer_ended.set_result(None)

    # -- maintenance --------------------------------------------------------------------------------------------------

    async def compact(self, revision: int) -> None:
        """Compact memory and file step by step, with transactions in between.

        The next call completes an interrupted compaction."""
        self._check()
        async with self._compacting:
            self._check()
            if self._history.compactable(revision):
                await self.archive_until(revision)
                await self._run_in_writer(lambda file: file.set_compacted(revision))
                self._set_compacted(revision)
            while self._leftover_rows:
                obsolete = [*islice(self._leftover_rows, _DELETE_BATCH)]
                await self._delete(obsolete)
                for _ in obsolete:
                    self._leftover_rows.popleft()
            while events := self._history.compacted_events(_DELETE_BATCH // 2):
                await self._delete([row for event in events for row in _obsolete_rows(event)])
                self._history.drop(len(events))
            while await self._run_in_writer(SqliteFile.shrink):
                pass

    async def _delete(self, obsolete: Sequence[ObsoleteRow]) -> None:
        if obsolete:
            await self._run_in_writer(lambda file: file.delete(obsolete))

    async def _run_in_writer(self, run: Callable[[SqliteFile], _Result]) -> _Result:
        self._check()
        writer = self._writer or self._start()
        result: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        task = MaintenanceTask(run, result)
        self._maintenance_tasks.add(task)
        writer.put(task)
        return await result

    async def check(self) -> None:
        """Verify that the files on disk are still the ones that this store writes to.

        Otherwise the store fails: this and every later call raises StoreError."""
        await self._run_in_writer(SqliteFile.check)

    def size(self) -> int:
        """Return the bytes of the data file and its write-ahead log."""
        return self._file.size()

    async def close(self) -> None:
        first = self._failure is None
        if first:
            self._failure = _CLOSED
        if self._writer is None or self._writer_ended is None:
            self._fail(self._failure or _CLOSED)
            self._file.close()
            return
        if first:
            self._writer.put(None)
        await asyncio.shield(self._writer_ended)
        self._writer.join()


def _obsolete_rows(event: Event) -> Iterator[ObsoleteRow]:
    """Yield the rows that are unused once the event is compacted.

    The rows of one event must be deleted in one step: without the row of its deletion, an old value would come back."""
    if event.before is not None:
        yield event.before.mod_revision, event.key
    if event.now is None:
        yield event.revision, event.key
