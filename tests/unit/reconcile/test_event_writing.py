"""Events come after those whom they tell of, and come all the same."""

from __future__ import annotations

import asyncio

from stopped_clock import StoppedClock

from setpoint.reconcile.event_writing import EventWriting


async def test_a_burst_is_written_a_few_at_a_time_with_rests() -> None:
    clock = StoppedClock()
    writing = EventWriting("tester", clock)
    written: list[int] = []

    def put(number: int) -> None:
        async def write() -> None:
            await clock.sleep(0.1)
            written.append(number)

        writing.put(number, write)

    for number in range(8):
        put(number)
    task = asyncio.ensure_future(writing.run())
    await clock.advance(0.15)
    assert written == [0, 1, 2, 3]
    await clock.advance(0.2)  # three times as long as it took
    assert written == [0, 1, 2, 3]
    await clock.advance(0.2)
    assert written == [*range(8)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
