"""Termination by signals, also while a process is starting."""

from __future__ import annotations

import asyncio

from setpoint.cluster.signals import StopEvent


async def started(stops: list[StopEvent], up: asyncio.Event) -> str:
    stops.append(StopEvent())
    await up.wait()
    await stops[0].wait()
    return "in order"


async def test_a_running_process_shuts_down_in_order_despite_repeated_signals() -> None:
    stops, up = list[StopEvent](), asyncio.Event()
    up.set()
    running = asyncio.ensure_future(started(stops, up))
    await asyncio.sleep(0)
    stops[0].request()
    stops[0].request()
    assert await running == "in order"


async def test_a_slow_start_shuts_down_in_order() -> None:
    stops, up = list[StopEvent](), asyncio.Event()
    running = asyncio.ensure_future(started(stops, up))
    await asyncio.sleep(0)
    stops[0].request()
    up.set()
    assert await running == "in order"


async def test_the_second_signal_cancels_a_start() -> None:
    stops, up = list[StopEvent](), asyncio.Event()
    running = asyncio.ensure_future(started(stops, up))
    await asyncio.sleep(0)
    stops[0].request()
    await asyncio.sleep(0)
    assert not running.done()
    stops[0].request()
    await asyncio.wait([running])
    assert running.cancelled()
