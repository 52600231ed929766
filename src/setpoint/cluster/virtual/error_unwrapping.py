"""Unwrapping of exception groups: a failed test shows its own assertion instead of nested groups with one exception."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class ErrorUnwrapper:
    """Raise the error of an inner block without the exception groups around it, unless something else failed too.

    Use `with ErrorUnwrapper() as unwrapper` around the code that creates groups, and `with unwrapper.block()` around
    the inner block.
    """

    def __init__(self) -> None:
        self._error: BaseException | None = None

    @contextmanager
    def block(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._error = error
            raise

    def __enter__(self) -> ErrorUnwrapper:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if error is not None and error is self._error:
            raise error from error.__cause__


@asynccontextmanager
async def unwrapping_task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Return a task group that raises the error of its block without an exception group."""
    with ErrorUnwrapper() as unwrapper:
        async with asyncio.TaskGroup() as tasks:
            with unwrapper.block():
                yield tasks
