"""Moments of the past, as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from setpoint.meta.moments import is_mark_name, parse_moment

NOW = datetime(2026, 3, 2, 12, 30, 15, 500_000, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("103018", 103018),
        ("0", 0),
        ("now", "2026-03-02T11:30:15.5"),
        ("12:30", "2026-03-02T11:30:00"),
        ("12:31", "2026-03-01T11:31:00"),
        ("9:05:07.25", "2026-03-02T08:05:07.25"),
        ("yesterday 13:00", "2026-03-01T12:00:00"),
        ("yesterday_01:00", "2026-03-01T00:00:00"),
        ("-5m", "2026-03-02T11:25:15.5"),
        ("-1h30m0.5s", "2026-03-02T10:00:15"),
        ("-2d", "2026-02-28T11:30:15.5"),
        ("-1d12h", "2026-02-28T23:30:15.5"),
        ("2026-01-31T13:02:11.25Z", "2026-01-31T13:02:11.25"),
        ("2026-01-31T13:02:11.123456789Z", "2026-01-31T13:02:11.123456"),
        ("2026-01-31T13:02:11+02:00", "2026-01-31T11:02:11"),
        ("2026-01-31 13:02", "2026-01-31T12:02:00"),
        ("before-release", None),
        ("start", None),
    ],
)
def test_texts(text: str, expected: int | str | None) -> None:
    found = parse_moment(text, NOW)
    if isinstance(expected, str):
        assert isinstance(found, datetime)
        assert found.astimezone(UTC) == datetime.fromisoformat(expected).replace(tzinfo=UTC)
    else:
        assert found == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "-5",
        "-5x",
        "25:00",
        "12:60",
        "yesterday",
        "yesterday 25:00",
        "2026-13-01T00:00:00Z",
        "5m",
        "1.5",
        "x" * 65,
        "-5m\n",
        "12:30Z",
        "a/b",
        "../..",
        "-999999999d-1h",
    ],
)
def test_other_texts(text: str) -> None:
    with pytest.raises(ValueError, match="is not a "):
        parse_moment(text, NOW)


def test_an_interval_of_any_length_is_a_time() -> None:
    assert parse_moment("-999999999s", NOW) < NOW  # type: ignore[operator]


def test_names_of_marks() -> None:
    assert all(map(is_mark_name, ("a", "before", "v1.2", "Release_3", "a" * 63)))
    assert not any(map(is_mark_name, ("", "1a", "start", "now", "yesterday", "a-", "-a", "a b", "a" * 64)))
