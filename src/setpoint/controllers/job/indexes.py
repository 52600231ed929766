"""Sets of completion indexes in the notation of a Job's status: `0,3-5,7`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Span = tuple[int, int]


class Indexes:
    """An immutable set of indexes. Spans are sorted and not adjacent."""

    __slots__ = ("spans",)

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        joined: list[Span] = []
        for first, last in sorted(spans):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], last))
            else:
                joined.append((first, last))
        self.spans: tuple[Span, ...] = tuple(joined)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Indexes:
        return cls((number, number) for number in numbers)

    @classmethod
    def parse(cls, text: str, completions: int) -> Indexes:
        """Parse the indexes below `completions`, ignoring invalid parts."""
        spans: list[Span] = []
        for part in filter(None, text.split(",")):
            low, *high = part.split("-")
            if not low.isdecimal() or (high and not high[0].isdecimal()):
                continue
            first = int(low)
            if first >= completions:
                break
            spans.append((first, min(int(high[0]), completions - 1) if high else first))
        return cls(spans)

    def __or__(self, other: Indexes) -> Indexes:
        return Indexes((*self.spans, *other.spans))

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.spans, (number, 2**63)) - 1
        return at >= 0 and number <= self.spans[at][1]

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.spans)

    def __str__(self) -> str:
        return ",".join(_written(first, last) for first, last in self.spans)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Indexes) and self.spans == other.spans

    def __hash__(self) -> int:
        return hash(self.spans)

    def common(self, other: Indexes) -> int:
        """Return the size of the intersection."""
        shared, mine, theirs = 0, 0, 0
        while mine < len(self.spans) and theirs < len(other.spans):
            (first, last), (other_first, other_last) = self.spans[mine], other.spans[theirs]
            shared += max(0, min(last, other_last) - max(first, other_first) + 1)
            if last <= other_last:
                mine += 1
            if other_last <= last:
                theirs += 1
        return shared

    def first_missing(self, count: int, completions: int) -> list[int]:
        """Return the lowest `count` numbers below `completions` that are missing."""
        found: list[int] = []
        candidate = 0
        for first, last in (*self.spans, (completions, completions)):
            found += range(candidate, min(first, completions, candidate + count - len(found)))
            candidate = max(candidate, last + 1)
            if len(found) >= count:
                break
        return found


def _written(first: int, last: int) -> str:
    if last <= first:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
