"""The writer thread, which makes transactions durable: many transactions with one sync of the disk.

Everything that is queued while the disk is busy goes into the next batch. A failure ends the thread, and nothing queued
after it is written, so the file never holds a transaction without those before it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, cast

from setpoint.store.interface import Event, KeyValue, NotedCause, StoreError, recorded_form
from setpoint.store.sqlite_file import SqliteFile, to_store_error

_MAX_BATCH_ITEMS = 1_024
_MAX_BYTES = 16 << 20
_SWITCH_INTERVAL = 0.0005


class PendingTransaction:
    """A transaction that has its revision and is not durable yet. `committed` resolves to the result of `txn`."""

    __slots__ = ("answers", "cause", "committed", "events")

    def __init__(
        self,
        events: Sequence[Event],
        answers: Sequence[KeyValue | None],
        cause: bytes | NotedCause,
        committed: asyncio.Future[tuple[int, Sequence[KeyValue | None]]],
    ) -> None:
        self.events = events
        self.answers = answers
        self.cause = cause
        self.committed = committed


class MaintenanceTask:
    """An operation on the file, other than a transaction, that the writer runs in queue order."""

    __slots__ = ("result", "run")

    def __init__(self, run: Callable[[SqliteFile], Any], result: asyncio.Future[Any]) -> None:
        self.run = run
        self.result = result


_Work = PendingTransaction | MaintenanceTask


class Writer:
    """Owns the writer thread. It calls the callbacks on the event loop, in the order of the work."""

    def __init__(
        self,
        file: SqliteFile,
        loop: asyncio.AbstractEventLoop,
        *,
        on_committed: Callable[[Sequence[PendingTransaction]], None],
        on_task_completed: Callable[[MaintenanceTask, Any], None],
        on_failed: Callable[[StoreError], None],
        on_ended: Callable[[], None],
    ) -> None:
        self._file = file
        self._loop = loop
        self._on_committed, self._on_task_completed = on_committed, on_task_completed
        self._on_failed, self._on_ended = on_failed, on_ended
        self._queue: SimpleQueue[list[_Work | None]] = SimpleQueue()
        # Submitted in this iteration of the event loop; only the event loop uses it.
        self._outbox: list[_Work | None] = []
        # Dequeued and not yet started; only the thread uses it.
        self._backlog: deque[_Work | None] = deque()
        # By default a busy event loop holds the interpreter lock for 5 ms, and much longer if it blocks briefly within
        # that time, as it does to poll its sockets. The writer needs the lock a few times for each batch.
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL))
        # A daemon thread: a process that ends without closing the store has crashed, which the file survives.
        self._thread = threading.Thread(target=self._run, name="setpoint-store", daemon=True)
        self._thread.start()

    def put(self, item: _Work | None) -> None:
        """Queue work for the thread; None closes the file and ends the thread after everything queued before.

        Work from one iteration of the event loop is queued together: waking the thread costs more than writing many
        transactions, and if the first one woke it, the disk would be synced for that one alone."""
        if not self._outbox:
            self._loop.call_soon(self._flush_outbox)
        self._outbox.append(item)

    def _flush_outbox(self) -> None:
        items, self._outbox = self._outbox, []
        self._queue.put(items)

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                for kind, items in groupby(self._next_batch(), type):
                    if kind is PendingTransaction:
                        transactions = cast("list[PendingTransaction]", [*items])
                        for transaction in transactions:
                            transaction.cause = recorded_form(transaction.cause)
                        self._file.append([(each.events, recorded_form(each.cause)) for each in transactions])
                        self._post(self._on_committed, transactions)
                    elif kind is MaintenanceTask:
                        for task in cast("Iterator[MaintenanceTask]", items):
                            self._post(self._on_task_completed, task, task.run(self._file))
                    else:
                        return
        except Exception as error:
            self._post(self._on_failed, to_store_error(self._file.path, error))
        finally:
            self._file.close()
            self._post(self._on_ended)

    def _next_batch(self) -> list[_Work | None]:
        """Wait for work and return all of it, up to the limits of a batch."""
        backlog = self._backlog
        if not backlog:
            backlog.extend(self._queue.get())
        with suppress(Empty):
            while True:
                backlog.extend(self._queue.get_nowait())
        work: list[_Work | None] = []
        size = 0
        while backlog and len(work) < _MAX_BATCH_ITEMS and size < _MAX_BYTES:
            item = backlog.popleft()
            work.append(item)
            if isinstance(item, PendingTransaction):
                size += sum(event.now.size for event in item.events if event.now is not None)
        return work

    def _post(self, callback: Callable[..., None], *args: Any) -> None:
        # The loop may be closed, and with it every caller that waits for a result.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)
