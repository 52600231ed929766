"""The seats at which the teacher looks; the pages of their learners show a banner.

The front counts the open views of the teacher's page and the streams that it reads; a single request counts for
`_READ_SECONDS`. So nothing of a seat is read for the teacher without the learner's knowledge, whatever the teacher's
page does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from setpoint.cluster.classroom.worker_link import WorkerLink
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.tasks import run_all, within

LOOKS_PATH: Final = "/class/v1/looks"
_READ_SECONDS: Final = 2.0
"""Seconds for which a seat counts as looked at after a request."""
_REPORT_INTERVAL: Final = 1.0
"""Seconds between two reports to a worker at most, while the teacher looks at one of its seats."""


class Looks:
    """Counts who is looked at, and reports it to the workers in `run`."""

    def __init__(
        self, clock: Clock, workers: Sequence[WorkerLink], seats_of: Callable[[WorkerLink], Collection[str]]
    ) -> None:
        """`seats_of` returns the ids of the seats that a worker has now."""
        self._clock = clock
        self._workers = workers
        self._seats_of = seats_of
        self._open: dict[str, int] = {}
        """The number of open views and streams of each seat that has one."""
        self._read_at: dict[str, float] = {}
        """When each seat was read last, on the monotonic clock; entries older than `_READ_SECONDS` are dropped."""
        self._changed = asyncio.Event()
        """Set, and replaced, when the teacher begins or ends to look at a seat."""

    @contextmanager
    def looking(self, seat: str) -> Iterator[None]:
        """Count a view or a stream of a seat while the block runs."""
        self._open[seat] = self._open.get(seat, 0) + 1
        if self._open[seat] == 1:
            self._notify()
        try:
            yield
        finally:
            self._open[seat] -= 1
            if not self._open[seat]:
                del self._open[seat]
                self._notify()

    def note_request(self, seat: str) -> None:
        """Count a request to a seat for a while."""
        is_new = seat not in self.current()
        self._read_at[seat] = self._clock.monotonic()
        if is_new:
            self._notify()

    def current(self) -> set[str]:
        """Return the ids of the seats that the teacher looks at."""
        since = self._clock.monotonic() - _READ_SECONDS
        self._read_at = {seat: at for seat, at in self._read_at.items() if at > since}
        return {*self._open, *self._read_at}

    async def run(self) -> None:
        """Report to the workers until cancelled."""
        await run_all(*(self._report(worker) for worker in self._workers))

    async def _report(self, worker: WorkerLink) -> None:
        """Send the seats of a worker that are looked at: when they change, and again after an interval, because a
        worker that was started again knows nothing."""
        known: set[str] = set()
        """The seats that the worker may take as looked at."""
        while True:
            changed = self._changed
            seats = self.current().intersection(self._seats_of(worker))
            if not seats and not known:
                await changed.wait()
                continue
            try:
                await worker.call("PUT", LOOKS_PATH, {"seats": sorted(seats)})
                known = seats
            except ApiError:  # it starts again
                known |= seats
            with suppress(TimeoutError):
                await within(self._clock, _REPORT_INTERVAL, changed.wait())

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
