"""Many independent writes in one call.

    results = await write_all([partial(client.create, pod) for pod in pods])

Each write is a coroutine that makes ordinary calls of a client, of one or of several. Its result, its cause and its
refusal are the same as if it ran alone. Where the API server is in this process, requests of many such coroutines are
sent to it together, which costs less than sending each of them; elsewhere the coroutines run concurrently.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from setpoint.batching import CallBatcher
from setpoint.client.transport import ObjectCall, ObjectReply
from setpoint.tasks import run_all

T = TypeVar("T")

ObjectCalls = CallBatcher[ObjectCall, ObjectReply]

current_calls: ContextVar[ObjectCalls | None] = ContextVar("current_calls", default=None)
"""Collects the requests of the current coroutine; None if nothing does. It must be asked whether it is running, because
tasks inherit it."""


async def write_all(writes: Iterable[Callable[[], Coroutine[Any, Any, T]]]) -> list[T | Exception]:
    """Run the writes, and return the result of each, or the exception that it raised, in their order.

    The number of writes is bounded by the caller: without a server in this process, all of them run concurrently."""
    batcher = ObjectCalls(_exchange_all)
    before = current_calls.set(batcher)
    try:
        return await batcher.run(writes)
    finally:
        current_calls.reset(before)


async def _exchange_all(calls: Sequence[ObjectCall]) -> Sequence[ObjectReply | Exception]:
    """Send the requests; those to one server in one call."""
    by_server: dict[int, list[int]] = {}
    for at, call in enumerate(calls):
        by_server.setdefault(id(call.transport.bulk_server), []).append(at)
    if len(by_server) == 1:
        return await calls[0].transport.exchange_all(calls)
    replies: list[Any] = [None] * len(calls)
    positions = list(by_server.values())
    found = await run_all(*(calls[group[0]].transport.exchange_all([calls[at] for at in group]) for group in positions))
    for group, answers in zip(positions, found, strict=True):
        for at, answer in zip(group, answers, strict=True):
            replies[at] = answer
    return replies
