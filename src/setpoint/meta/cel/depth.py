"""Room for deep expressions: nesting is bounded by the parser, and Python's own bound is lower than that."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_FRAMES = 10_000
"""Enough for the deepest expression that the parser lets through. Python functions that call one another take no C
stack, so this is memory on the heap."""


@contextmanager
def room_for_depth() -> Iterator[None]:
    before = sys.getrecursionlimit()
    if before >= _FRAMES:
        yield
        return
    sys.setrecursionlimit(_FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
