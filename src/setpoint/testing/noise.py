"""Everything that may go wrong between a component and the server, by chance."""

from __future__ import annotations

import random
from typing import Any

from setpoint.client import Unreachable
from setpoint.client.interface import WatchEvent
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict, Expired, InternalError
from setpoint.testing.link import Go, Write


class Noise:
    """Writes are refused, or happen without an answer; watches come late, twice, break off, or expire."""

    def __init__(self, chance: random.Random, clock: Clock) -> None:
        self._chance = chance
        self._clock = clock

    async def write(self, write: Write, go: Go) -> Any:
        drawn = self._chance.random()
        if drawn < 0.08:
            raise Conflict.modified("", write.resource, write.name)
        if drawn < 0.14:
            raise InternalError.of("the server is not well")
        if drawn < 0.2:
            raise Unreachable("the connection broke")
        answer = await go()
        if self._chance.random() < 0.1:
            raise Unreachable("the connection broke before the answer came")
        return answer

    async def events(self, given: list[WatchEvent]) -> list[WatchEvent]:
        drawn = self._chance.random()
        if drawn < 0.04:
            raise Unreachable("the watch broke off")  # the event is lost with it, and comes again from its revision
        if drawn < 0.06:
            raise Expired("too old resource version")
        if drawn < 0.3:
            await self._clock.sleep(self._chance.uniform(0, 3))
        return [*given, *given] if drawn > 0.85 else given
