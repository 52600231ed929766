"""Recursion limit for deep expressions: the parser bounds nesting, but Python's default limit is lower than that
bound."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_FRAMES = 10_000
"""Recursion limit for the deepest expression that the parser accepts.

Python functions that call each other use no C stack, so this is memory on the heap."""


_USUAL = sys.getrecursionlimit()
_users: list[None] = []
"""One item for each current user of the raised limit, which is shared by all threads."""


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
