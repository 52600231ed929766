"""Release of large objects, and of the frames that tracebacks of handled exceptions reference."""

from __future__ import annotations

from collections.abc import Iterator
from gc import get_referents
from sys import getrefcount
from types import CellType, FunctionType, NoneType
from typing import Any

_MAX_CHAIN_LENGTH = 32
_UNSHARED = 4
"""Reference count of an item of `release_parts` that only its container holds besides: that of the container, of the
list, of the local variable and of the count's argument."""
_CONTAINERS = (dict, list, tuple, FunctionType, CellType)
_ATOMS = frozenset({str, bytes, int, float, bool, NoneType})


def drop_traceback(error: BaseException) -> None:
    """Release the frames that a handled exception passed through, and those of the exceptions it was raised from.

    A frame that holds the exception in a local variable (`asyncio.TaskGroup` does for every cancellation) forms a
    reference cycle with it. The cycle would keep all frames up to the handler, with the requests, connections and
    objects in them, until the garbage collector runs."""
    for each in _chain(error):
        each.__traceback__ = None


def release_frames(error: BaseException) -> None:
    """Do what `drop_traceback` does, for frames whose local variables hold large objects. Call it on a worker thread.

    Nothing is changed. The frame that handles the exception, which the traceback starts with, is left alone."""
    objects: dict[int, Any] = {}
    for each in _chain(error):
        frames, each.__traceback__ = each.__traceback__, None
        while frames is not None and (frames := frames.tb_next) is not None:
            objects |= {id(value): value for value in frames.tb_frame.f_locals.values()}
    held = [value for value in objects.values() if type(value) in (dict, list)]
    objects.clear()
    release_parts(held)


def release_parts(held: list[Any]) -> None:
    """Empty a list of large objects, and release those that nothing else references. Call it on a worker thread.

    Releasing a list of 50,000 dicts is a single step of the interpreter, which blocks all threads for milliseconds.
    Here the parts of large objects are collected first and released one by one, so that other threads can run in
    between. The parts of shared objects, which other references keep, are not collected."""
    for item in held:  # the list grows meanwhile
        if isinstance(item, _CONTAINERS) and getrefcount(item) <= _UNSHARED:
            parts = list(item.values()) if isinstance(item, dict) else get_referents(item)
            held += [part for part in parts if type(part) not in _ATOMS]
            del parts
    held.reverse()  # containers are released before their parts
    while held:
        held.pop()


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception that has a traceback and, after the caller has removed it, those it was raised from."""
    pending: list[BaseException | None] = [error]
    for _ in range(_MAX_CHAIN_LENGTH):
        if not pending:
            return
        current = pending.pop()
        if current is None or current.__traceback__ is None:
            continue
        yield current
        pending += (current.__cause__, current.__context__)
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions
