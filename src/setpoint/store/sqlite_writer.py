"""The one thread of the program: it makes transactions durable, many with one sync of the disk.

Everything queued while the disk was busy goes into the next batch. A failure ends the thread; nothing queued after it
is tried, so the file never holds a transaction without those before it.
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

from setpoint.store.interface import Event, KeyValue, StoreError
from setpoint.store.sqlite_file import SqliteFile, explained

_MOST_AT_ONCE = 1_024
_MOST_BYTES = 16 << 20
_SWITCH_INTERVAL = 0.0005


class Flight:
    """A transaction under way: it has its revision and waits to become durable."""

    __slots__ = ("answers", "cause", "events", "landed")

    def __init__(
        self,
        events: Sequence[Event],
        answers: Sequence[KeyValue | None],
        cause: bytes,
        landed: asyncio.Future[tuple[int, Sequence[KeyValue | None]]],
    ) -> None:
        self.events = events
        self.answers = answers
        self.cause = cause
        self.landed = landed


class Chore:
    """Something else to do with the file, in its turn."""

    __slots__ = ("do", "done")

    def __init__(self, do: Callable[[SqliteFile], Any], done: asyncio.Future[Any]) -> None:
        self.do = do
        self.done = done


class Writer:
    """The callbacks are called on the event loop, in the order of the work."""

    def __init__(
        self,
        file: SqliteFile,
        loop: asyncio.AbstractEventLoop,
        *,
        landed: Callable[[Sequence[Flight]], None],
        did: Callable[[Chore, Any], None],
        failed: Callable[[StoreError], None],
        ended: Callable[[], None],
    ) -> None:
        self._file = file
        self._loop = loop
        self._landed, self._did, self._failed, self._ended = landed, did, failed, ended
        self._queue: SimpleQueue[list[Flight | Chore | None]] = SimpleQueue()
        self._outbox: list[Flight | Chore | None] = []  # the loop's: what came in this turn of it
        self._backlog: deque[Flight | Chore | None] = deque()  # the thread's: taken over, not yet begun
        # By default a busy event loop keeps the interpreter lock for 5 ms, and much longer if it pauses briefly within
        # that time, as it does to look at its sockets. The writer needs the lock a few times for each batch.
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL))
        # A daemon: a program that ends without closing the store is a crash, which the file survives.
        self._thread = threading.Thread(target=self._run, name="setpoint-store", daemon=True)
        self._thread.start()

    def put(self, item: Flight | Chore | None) -> None:
        """Work for the thread, in order; None: close the file and end, after everything before.

        What comes in one turn of the loop is handed over together: waking the thread costs more than the work of many
        transactions, and woken for the first it would sync the disk for that one alone."""
        if not self._outbox:
            self._loop.call_soon(self._hand_over)
        self._outbox.append(item)

    def _hand_over(self) -> None:
        items, self._outbox = self._outbox, []
        self._queue.put(items)

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                for kind, items in groupby(self._take(), type):
                    if kind is Flight:
                        flights = cast("list[Flight]", [*items])
                        self._file.append([(flight.events, flight.cause) for flight in flights])
                        self._tell(self._landed, flights)
                    elif kind is Chore:
                        for chore in cast("Iterator[Chore]", items):
                            self._tell(self._did, chore, chore.do(self._file))
                    else:
                        return
        except Exception as error:
            self._tell(self._failed, explained(self._file.path, error))
        finally:
            self._file.close()
            self._tell(self._ended)

    def _take(self) -> list[Flight | Chore | None]:
        """Waits for work, then takes all there is, within reason."""
        backlog = self._backlog
        if not backlog:
            backlog.extend(self._queue.get())
        with suppress(Empty):
            while True:
                backlog.extend(self._queue.get_nowait())
        work: list[Flight | Chore | None] = []
        size = 0
        while backlog and len(work) < _MOST_AT_ONCE and size < _MOST_BYTES:
            item = backlog.popleft()
            work.append(item)
            if isinstance(item, Flight):
                size += sum(len(event.now.value) for event in item.events if event.now is not None)
        return work

    def _tell(self, callback: Callable[..., None], *args: Any) -> None:
        # The loop may be gone, and with it everyone who waits for an answer.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)
