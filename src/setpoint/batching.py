"""Collects calls that many coroutines make, and makes them together.

A `CallBatcher` runs coroutines that are written as if each were alone, in the task of its caller and one after the
other. Where such a coroutine makes a call (`CallBatcher.call`), it is suspended and the next one is run; when all of
them are suspended, the calls are made together, and each coroutine continues with its own outcome. No coroutine needs a
task or a future of its own.

A coroutine may also wait for something else, such as a response from a network. It then continues in the task of the
caller, because it may have set a timeout there, and what the others need happens in other tasks: one makes the calls
that have been collected by then, and the coroutines that were not started yet run concurrently, each in a task of its
own. So a slow coroutine delays no other one. A coroutine must not hold a lock while it waits for its call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextvars import Context, copy_context
from typing import Any, Final, Generic, TypeVar, cast

_MAX_CALLS: Final = 48
"""Number of calls that are made together."""
_MAX_SECONDS: Final = 0.004
"""Seconds for which coroutines are run before their calls are made and other tasks run."""

C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")
_RUNNING: Final = object()


class _Pending(Generic[C, R]):
    """A call that a coroutine waits for. Awaiting it yields it to the batcher, which sets the outcome."""

    __slots__ = ("call", "outcome")

    def __init__(self, call: C) -> None:
        self.call = call
        self.outcome: R | Exception | None = None

    def __await__(self) -> Generator[_Pending[C, R], None, R]:
        yield self
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return cast("R", self.outcome)


class _Started:
    """A coroutine that has been started: what it waits for, or its result."""

    __slots__ = ("_context", "_coroutine", "_owner", "result", "waits_for")

    def __init__(self, owner: CallBatcher[Any, Any], coroutine: Coroutine[Any, Any, Any], context: Context) -> None:
        self._owner = owner
        self._coroutine = coroutine
        self._context = context
        self.waits_for: Any = None
        """The value that the coroutine has yielded: a `_Pending`, a future, or None to continue in the next iteration
        of the event loop."""
        self.result: Any = _RUNNING
        """The result, or the exception with which the coroutine ended."""

    def advance(self, error: BaseException | None = None) -> None:
        """Run the coroutine until it waits for something or ends. Raises what is not an Exception."""
        owner = self._owner
        owner.is_running = True
        try:
            if error is None:
                self.waits_for = self._context.run(self._coroutine.send, None)
            else:
                self.waits_for = self._context.run(self._coroutine.throw, error)
        except StopIteration as ended:
            self.result = ended.value
        except Exception as failure:
            self.result = failure
        finally:
            owner.is_running = False

    def __await__(self) -> Generator[Any, None, None]:
        """Wait for what is not a call of the batcher, until the coroutine ends or makes such a call."""
        while self.result is _RUNNING and not isinstance(self.waits_for, _Pending):
            try:
                yield self.waits_for
            except BaseException as error:
                self.advance(error)
            else:
                self.advance()

    async def cancel(self) -> None:
        """Raise CancelledError in the coroutine, unless it has ended, and wait until it ends."""
        try:
            while self.result is _RUNNING:
                if not (isinstance(self.waits_for, asyncio.Future) and self.waits_for.cancel()):
                    self.advance(asyncio.CancelledError())
                await self
        except BaseException:
            return  # the coroutine has ended with it


class CallBatcher(Generic[C, R]):
    """Runs coroutines, and makes the calls of many of them together."""

    __slots__ = ("_call_all", "is_running")

    def __init__(self, call_all: Callable[[Sequence[C]], Awaitable[Sequence[R | Exception]]]) -> None:
        """`call_all` makes many independent calls, and returns the outcome of each in their order. What it raises is
        the outcome of all of them."""
        self._call_all = call_all
        self.is_running = False
        """Whether one of the coroutines is run by the batcher at this moment, and not by a task of its own. Only then
        `call` may be called."""

    def call(self, call: C) -> Awaitable[R]:
        """Make a call together with those of other coroutines."""
        return _Pending(call)

    async def run(self, starts: Iterable[Callable[[], Coroutine[Any, Any, T]]]) -> list[T | Exception]:
        """Run the coroutines, each in a context of its own, and return the result of each or the exception with which
        it ended, in their order.

        If the caller is cancelled, so is each coroutine that has not ended."""
        remaining = iter(starts)
        started: list[_Started] = []
        pending: list[_Started] = []
        others: list[T | Exception] = []
        time = asyncio.get_running_loop().time
        until = time() + _MAX_SECONDS
        try:
            for start in remaining:
                context = copy_context()
                each = _Started(self, context.run(start), context)
                started.append(each)
                each.advance()
                if each.result is _RUNNING:
                    if not isinstance(each.waits_for, _Pending):
                        others = await self._run_concurrently(each, pending, remaining)
                        break
                    pending.append(each)
                if len(pending) >= _MAX_CALLS or time() >= until:
                    await self._make_calls(pending)
                    await asyncio.sleep(0)
                    until = time() + _MAX_SECONDS
            await self._make_calls(pending)
        except BaseException:
            for each in started:
                await each.cancel()
            raise
        return [each.result for each in started] + others

    async def _run_concurrently(
        self,
        waiting: _Started,
        pending: list[_Started],
        remaining: Iterable[Callable[[], Coroutine[Any, Any, T]]],
    ) -> list[T | Exception]:
        """Run a coroutine that waits for something else until it ends, and meanwhile all others in tasks of their own.
        Return the results of the remaining ones. Clears `pending`."""
        calling, pending[:] = pending[:], []
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(_outcome(start())) for start in remaining]
            if calling:
                tasks.create_task(self._make_calls(calling))
            await waiting
            while waiting.result is _RUNNING:
                await self._make_calls([waiting])
        return [other.result() for other in others]

    async def _make_calls(self, pending: list[_Started]) -> None:
        """Make the calls that coroutines wait for, and run the coroutines until they end. Clears the list."""
        while pending:
            calls: list[_Pending[C, R]] = [each.waits_for for each in pending]
            outcomes: Sequence[R | Exception]
            try:
                outcomes = await self._call_all([each.call for each in calls])
            except Exception as error:
                outcomes = [error] * len(calls)
            again: list[_Started] = []
            for each, call, outcome in zip(pending, calls, outcomes, strict=True):
                call.outcome = outcome
                each.advance()
                if each.result is _RUNNING:
                    await each
                if each.result is _RUNNING:
                    again.append(each)
            pending[:] = again


async def _outcome(coroutine: Coroutine[Any, Any, T]) -> T | Exception:
    try:
        return await coroutine
    except Exception as error:
        return error
