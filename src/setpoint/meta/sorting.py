"""Sorting of what may be very long, in steps."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge

AT_ONCE = 10_000
"""Texts that one call sorts: a few milliseconds, in which no other thread runs."""


def in_order(texts: Iterable[str]) -> list[str]:
    """As `sorted`, but long inputs are sorted piece by piece and merged: slower, but other threads may run."""
    found = list(texts)
    if len(found) <= AT_ONCE:
        found.sort()
        return found
    return list(merge(*(sorted(found[at : at + AT_ONCE]) for at in range(0, len(found), AT_ONCE))))
