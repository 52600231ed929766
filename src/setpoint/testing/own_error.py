"""Blocks with tasks beside them whose own error is told as it is: a test that fails shows its assertion, not a group in
a group in a group with one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class OwnError:
    """`with OwnError() as own` around what makes groups of errors, `with own.block()` around the block within: what the
    block raises comes out alone, unless something else failed too."""

    def __init__(self) -> None:
        self._error: BaseException | None = None

    @contextmanager
    def block(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._error = error
            raise

    def __enter__(self) -> OwnError:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if error is not None and error is self._error:
            raise error from error.__cause__


@asynccontextmanager
async def own_tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that lets the block's own error through."""
    with OwnError() as own:
        async with asyncio.TaskGroup() as tasks:
            with own.block():
                yield tasks
