"""Who is served now and who waits.

Each request belongs to a flow, each flow to a level, and each level has so many seats. Who finds no seat waits, in fair
order; who finds no room to wait is told to come again.

There is one more thing of which there is not enough, and which seats do not count: this process has one thread. When
requests come in faster than they can be answered, most of them never take a seat for longer than it takes to answer
them; they would be answered in the order in which they came, and whoever sends a thousand at once would be answered a
thousand times before the next one is. So whoever comes when this turn of the loop (`Turns`) has lasted long enough
waits too, in the same queues, and of those who wait a few are called in each turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from setpoint.apiserver.call import Call
from setpoint.apiserver.fairness.classification import Classifier, Flow
from setpoint.apiserver.fairness.dropped import Dropped
from setpoint.apiserver.fairness.levels import Level, lend
from setpoint.apiserver.fairness.queues import QueueFull, Waiting
from setpoint.apiserver.filters.authorize import Access
from setpoint.apiserver.filters.inflight import Overloaded
from setpoint.apiserver.turns import Turns
from setpoint.kinds.bootstrap.flowcontrol import MANDATORY, flow_schemas, priority_levels
from setpoint.meta.clock import Clock

Obj = Mapping[str, Any]
Objects = Callable[[str], Iterable[Obj]]
"""All flow schemas, or all priority levels, by their plural."""

_CALLED = 4
"""Seats that those who wait get in a turn."""
_PATIENCE = 15.0
"""How long somebody waits, or a little longer: a quarter of the time that a request may take."""
_LENDING = 10.0
"""Seconds after which seats are lent and given back."""


class Seat:
    """What a request holds while it is worked on, or waits for. Moments are the clock's monotonic ones."""

    __slots__ = ("access", "began", "call", "came", "count", "flow", "of", "waiting")

    def __init__(self, of: Fairness, flow: Flow, count: int, call: Call, access: Access, came: float) -> None:
        self.of = of
        self.flow = flow
        self.count = count
        self.call = call
        self.access = access
        self.came = came
        self.began: float | None = None
        """None: it is still to come, and `Fairness.seated` waits for it."""
        self.waiting: Waiting | None = None
        """Where it waits, or has waited."""

    def leave(self) -> None:
        self.of.left(self)


class Fairness:
    def __init__(self, objects: Objects, revision: Callable[[], int], clock: Clock, turns: Turns, seats: int) -> None:
        """`revision` moves whenever an object changes. There are so many seats in all."""
        self._objects = objects
        self._revision = revision
        self._clock = clock
        self._turns = turns
        self._total = seats
        self._seen = -1
        self.levels: dict[str, Level] = {}
        self._classifier: Classifier
        self._dropped: dict[str, Dropped] = {}
        self._calling = False
        self._next = 0
        self.under_way: set[Seat] = set()
        """Of all requests that take part, those who wait included."""
        self._patient: deque[tuple[float, Flow, Waiting]] = deque()
        """Who waits, and until when at most, in the order in which they came."""

    # -- what a request does ------------------------------------------------------------------------------------------

    def flow(self, access: Access) -> Flow:
        revision = self._revision()
        if revision != self._seen:
            self._seen = revision
            self._configure()
        return self._classifier.flow(access)

    def enter(
        self, flow: Flow, call: Call, access: Access, now: float, seats: int = 1, *, outside: bool = True
    ) -> Seat:
        """A seat, or one to wait for. Those from within the process take part in what seats there are, but do
        not wait for the loop: they are what it is busy with. Raises Overloaded."""
        level = flow.level
        queues = level.queues
        wait = queues.waiting or (outside and queues.can_wait and self._turns.long())
        if level.exempt or (queues.fits(seats) and (not wait or queues.is_next(flow.hash, seats))):
            queues.in_use += seats
            seat = Seat(self, flow, seats, call, access, now)
            self._begin(seat, now)
        else:
            seat = Seat(self, flow, seats, call, access, now)
            try:
                seat.waiting = queues.wait(flow.hash, seats)
            except QueueFull:
                raise self._refused(flow, "queue-full" if queues.can_wait else "concurrency-limit") from None
            level.seats_changed(now)
            self._call_soon()
        self.under_way.add(seat)
        return seat

    async def seated(self, seat: Seat) -> None:
        """Returns when it is its turn. Raises Overloaded when that takes too long."""
        waiting = seat.waiting
        assert waiting is not None
        patient = self._patient
        while patient and patient[0][2].gone:
            patient.popleft()  # so that there are never many to be looked at in one go
        patient.append((self._clock.monotonic() + _PATIENCE, seat.flow, waiting))
        try:
            await waiting.turn
        except BaseException as error:
            self.under_way.discard(seat)
            if isinstance(error, asyncio.CancelledError):
                self._went_away(seat, waiting)
            raise
        self._begin(seat, self._clock.monotonic())

    def _went_away(self, seat: Seat, waiting: Waiting) -> None:
        queues, turn = seat.flow.level.queues, waiting.turn
        if not turn.done() or turn.cancelled():
            queues.give_up(waiting)
        elif turn.exception() is None:
            queues.in_use -= seat.count  # it had come, in the very moment

    def left(self, seat: Seat) -> None:
        self.under_way.discard(seat)
        level = seat.flow.level
        level.queues.in_use -= seat.count
        level.executing -= 1
        now = self._clock.monotonic()
        level.seats_changed(now)
        if level.queues.waiting:
            self._call_soon()

    def _begin(self, seat: Seat, now: float) -> None:
        seat.began = now
        flow = seat.flow
        flow.level.executing += 1
        flow.dispatched[0] += 1
        flow.level.seats_changed(now)

    def _tire(self, now: float) -> None:
        """Who has waited too long is refused."""
        while self._patient and (self._patient[0][2].gone or self._patient[0][0] <= now):
            _, flow, waiting = self._patient.popleft()
            if not waiting.gone and not waiting.turn.done():
                flow.level.queues.give_up(waiting)
                waiting.turn.set_exception(self._refused(flow, "time-out"))

    def _refused(self, flow: Flow, reason: str) -> Overloaded:
        level = flow.level
        level.reject(flow.schema, reason)
        dropped = self._dropped.setdefault(level.name, Dropped())
        return Overloaded.until(dropped.one_more(int(self._clock.monotonic())))

    # -- turns of the loop --------------------------------------------------------------------------------------------

    def _call_soon(self) -> None:
        """Those who wait are called in the next one."""
        if not self._calling:
            self._calling = True
            self._turns.first(self._call)

    def _call(self) -> None:
        """Levels take turns too; whoever is left waits for a seat, or is called in the next turn of the loop."""
        self._calling = False
        busy = [level for level in self.levels.values() if level.queues.waiting]
        if not busy:
            return
        self._next = (self._next + 1) % len(busy)
        busy = [*busy[self._next :], *busy[: self._next]]
        called = 0
        while busy and called < _CALLED:
            given = [level.queues.dispatch() for level in busy]
            called += sum(given)
            busy = [level for level, seats in zip(busy, given, strict=True) if seats]
        if busy:
            self._call_soon()

    # -- what is configured -------------------------------------------------------------------------------------------

    def _configure(self) -> None:
        now = self._clock.monotonic()
        given = list(self._objects("prioritylevelconfigurations"))
        names = {each["metadata"]["name"] for each in given}
        given += [each for each in priority_levels() if each["metadata"]["name"] in MANDATORY - names]
        before, self.levels = self.levels, {}
        for each in given:
            name = each["metadata"]["name"]
            level = self.levels[name] = before.get(name) or Level(name, now)
            level.configure(each["spec"])
        shares = sum(level.shares for level in self.levels.values())
        for level in self.levels.values():
            level.share(self._total, shares)
        lend(self.levels.values(), now)
        schemas = list(self._objects("flowschemas"))
        known = {each["metadata"]["name"] for each in schemas}
        schemas += [each for each in flow_schemas() if each["metadata"]["name"] in MANDATORY - known]
        uids = {each["metadata"]["name"]: each["metadata"].get("uid", "") for each in given}
        self._classifier = Classifier(schemas, self.levels, uids)
        # Those who wait on a level that is gone are let in: there is nobody left for whom they would have to wait.
        for level in before.values():
            if level.name not in self.levels:
                level.queues.limit = level.queues.in_use + level.queues.seats_waiting
                while level.queues.dispatch():
                    pass

    async def run(self) -> None:
        """Whoever waits does not wait for ever; and seats are lent and given back."""
        while True:
            for _ in range(2):
                await self._clock.sleep(_LENDING / 2)
                self._tire(self._clock.monotonic())
            now = self._clock.monotonic()
            lend(self.levels.values(), now)
            self._call_soon()
