"""Sorting of what may be very long, in steps."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge

CHUNK_SIZE = 10_000
"""Number of texts sorted in one call: a few milliseconds, in which no other thread runs."""


def sorted_in_chunks(texts: Iterable[str]) -> list[str]:
    """Return the texts sorted. Long inputs are sorted in chunks and merged: slower, but other threads can run."""
    found = list(texts)
    if len(found) <= CHUNK_SIZE:
        found.sort()
        return found
    return list(merge(*(sorted(found[at : at + CHUNK_SIZE]) for at in range(0, len(found), CHUNK_SIZE))))
