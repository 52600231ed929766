"""Release of the frames that tracebacks of handled exceptions reference."""

from __future__ import annotations

_MAX_CHAIN_LENGTH = 32


def drop_traceback(error: BaseException) -> None:
    """Release the frames that a handled exception passed through, and those of the exceptions it was raised from.

    A frame that holds the exception in a local variable (`asyncio.TaskGroup` does for every cancellation) forms a
    reference cycle with it. The cycle would keep all frames up to the handler, with the requests, connections and
    objects in them, until the garbage collector runs."""
    pending: list[BaseException | None] = [error]
    for _ in range(_MAX_CHAIN_LENGTH):
        if not pending:
            return
        current = pending.pop()
        if current is None or current.__traceback__ is None:
            continue
        current.__traceback__ = None
        pending += (current.__cause__, current.__context__)
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions
