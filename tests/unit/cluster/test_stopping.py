"""A process ends when it is told to, also while it waits for what never comes."""

from __future__ import annotations

import asyncio

from setpoint.cluster.stopping import Stop


async def started(stops: list[Stop], up: asyncio.Event) -> str:
    stops.append(Stop())
    await up.wait()
    await stops[0].wait()
    return "in order"


async def test_what_is_up_ends_in_order_however_often_it_is_told() -> None:
    stops, up = list[Stop](), asyncio.Event()
    up.set()
    running = asyncio.ensure_future(started(stops, up))
    await asyncio.sleep(0)
    stops[0].ask()
    stops[0].ask()
    assert await running == "in order"


async def test_what_comes_up_late_still_ends_in_order() -> None:
    stops, up = list[Stop](), asyncio.Event()
    running = asyncio.ensure_future(started(stops, up))
    await asyncio.sleep(0)
    stops[0].ask()
    up.set()
    assert await running == "in order"


async def test_what_does_not_come_up_is_broken_off_when_it_is_told_again() -> None:
    stops, up = list[Stop](), asyncio.Event()
    running = asyncio.ensure_future(started(stops, up))
    await asyncio.sleep(0)
    stops[0].ask()
    await asyncio.sleep(0)
    assert not running.done()
    stops[0].ask()
    await asyncio.wait([running])
    assert running.cancelled()
