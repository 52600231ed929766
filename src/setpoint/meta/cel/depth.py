"""Room for deep expressions: nesting is bounded by the parser, and Python's own bound is lower than that."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_FRAMES = 10_000
"""Enough for the deepest expression that the parser lets through. Python functions that call one another take no C
stack, so this is memory on the heap."""


_USUAL = sys.getrecursionlimit()
_users: list[None] = []
"""One for each that needs the room now: the limit is one for all threads."""


@contextmanager
def room_for_depth() -> Iterator[None]:
    if _USUAL >= _FRAMES:
        yield
        return
    _users.append(None)
    sys.setrecursionlimit(_FRAMES)
    try:
        yield
    finally:
        _users.pop()
        if not _users:
            sys.setrecursionlimit(_USUAL)
            if _users:  # since a moment ago
                sys.setrecursionlimit(_FRAMES)
