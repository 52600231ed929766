"""Runs an operation many times in growing batches, because an operation that fails once would likely fail every
time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def slow_start(count: int, do: Callable[[], Awaitable[None]]) -> tuple[int, Exception | None]:
    """Run `do` in concurrent batches of 1, 2, 4, ... and stop after the first batch with a failure. Return the number
    of successes and the first failure."""
    succeeded, batch = 0, 1
    while succeeded < count:
        outcomes = await asyncio.gather(*(do() for _ in range(min(batch, count - succeeded))), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        succeeded += len(outcomes) - len(failures)
        for failure in failures:
            if not isinstance(failure, Exception):
                raise failure
        if failures:
            return succeeded, failures[0]  # type: ignore[return-value]
        batch *= 2
    return succeeded, None
