"""The picture of the timeline: what its marks, bars and times say. The page's code is run by node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import page_sources
import pytest

DRIVER = Path(page_sources.__file__).with_name("timeline_picture.mjs")
BEGIN = 1_790_000_000_000
SINGLE = 4
"""The least width of a write that has a mark of its own."""
Picture = Callable[..., dict[str, Any]]


@pytest.fixture
def picture(tmp_path: Path) -> Iterator[Picture]:
    with page_sources.page_code(DRIVER, tmp_path) as happens:

        def draw(spans: list[dict[str, Any]], width: int, count: int | None = None) -> dict[str, Any]:
            answer: dict[str, Any] = happens("draw", {"spans": spans, "width": width, "count": count})
            return answer

        yield draw


def write(revision: int, at: float, part: str) -> dict[str, Any]:
    """A write at a number of seconds."""
    time = BEGIN + int(at * 1000)
    found = {"revision": revision, "lane": "you", "verb": "update", "part": part, "objects": [], "reconcile": ""}
    known = {"first": revision, "last": revision, "begin": time, "end": time, "total": 1}
    return {**known, "lanes": {"you": 1}, "write": {**found, "sentence": ""}}


def test_bars_of_one_part_have_its_colour(picture: Picture) -> None:
    """Where writes are too close for marks, their bars say what the marks would."""
    parts = ["status"] * 400 + ["metadata"] * 400 + ["created"] * 400 + ["deleted"] * 400
    found = picture([write(number, number / 100, part) for number, part in enumerate(parts, 1)], 800)
    assert found["scale"] < SINGLE
    colours = [colour for colour, _, _ in found["bars"]]
    assert list(dict.fromkeys(colours)) == ["status", "metadata", "created", "deleted"]


def test_counted_writes_look_like_none_of_the_parts(picture: Picture) -> None:
    counted = {**write(1, 0, "status"), "last": 5_000, "total": 5_000, "lanes": {"you": 5_000}, "write": None}
    found = picture([counted], 800)
    assert {colour for colour, _, _ in found["bars"]} == {"soft"}


def test_the_latest_writes_have_marks_beside_gaps(picture: Picture) -> None:
    """Two writes every ten seconds: most of the width would be gaps."""
    spans = [write(number, number // 2 * 10, "status") for number in range(1, 200)]
    found = picture(spans, 600, count=150)
    assert found["scale"] >= SINGLE
    assert found["bars"] == []
    assert found["marks"]


def test_times_and_gaps_do_not_overlap(picture: Picture) -> None:
    spans = [write(number, number + number // 20 * 10, "status") for number in range(1, 61)]
    for width in range(280, 900, 5):
        texts = sorted(picture(spans, width, count=150)["texts"], key=lambda each: each[1])
        assert len(texts) > 2
        for (one, _, right), (other, left, _) in pairwise(texts):
            assert right <= left, f"{one!r} and {other!r} at a width of {width}"
        assert texts[-1][2] <= width
