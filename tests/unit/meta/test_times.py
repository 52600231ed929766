from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from setpoint.meta import times
from setpoint.meta.times import TimeError


def test_formats() -> None:
    when = datetime(2024, 2, 29, 23, 59, 58, 1500, tzinfo=UTC)
    assert times.format_time(when) == "2024-02-29T23:59:58Z"
    assert times.format_micro(when) == "2024-02-29T23:59:58.001500Z"
    assert times.format_time(when.astimezone(timezone(timedelta(hours=2)))) == "2024-02-29T23:59:58Z"
    assert times.parse_time("2024-02-29T23:59:58.001500Z") == when


@pytest.mark.parametrize(
    ("when", "shown"),
    [
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
        (datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC), "1969-12-31T23:59:59Z"),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "9999-12-31T23:59:59Z"),
    ],
)
def test_fractions_of_a_second_are_truncated(when: datetime, shown: str) -> None:
    assert times.format_time(when) == shown


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("2024-01-01T00:00:01Z", "2024-01-01T00:00:01Z"),
        ("2024-01-01T00:00:01.999Z", "2024-01-01T00:00:01Z"),
        ("2024-01-01T00:00:00+02:00", "2023-12-31T22:00:00Z"),
        ("2024-01-01T1:00:00Z", "2024-01-01T01:00:00Z"),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_times_come_out_in_utc(text: str, canonical: str | None) -> None:
    assert times.canonical_time(text) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yesterday", 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"'),
        ("2024-01-01", 'parsing time "2024-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"'),
        ("2024-13-01T00:00:00Z", 'parsing time "2024-13-01T00:00:00Z": month out of range'),
        ("2023-02-29T00:00:00Z", 'parsing time "2023-02-29T00:00:00Z": day out of range'),
        ("2024-01-01T24:00:00Z", 'parsing time "2024-01-01T24:00:00Z": hour out of range'),
        ("2024-01-01T00:00:00Zx", 'parsing time "2024-01-01T00:00:00Zx": extra text: "x"'),
        ("a\nb", r'parsing time "a\x0ab" as "2006-01-02T15:04:05Z07:00": cannot parse "a\x0ab" as "2006"'),
    ],
)
def test_invalid_times(text: str, message: str) -> None:
    with pytest.raises(TimeError) as caught:
        times.canonical_time(text)
    assert str(caught.value) == message


def test_micro_times_require_six_digits() -> None:
    assert times.canonical_micro("2024-01-01T00:00:01.000250Z") == "2024-01-01T00:00:01.000250Z"
    assert times.canonical_micro("2024-01-01T02:00:01.000250+02:00") == "2024-01-01T00:00:01.000250Z"
    with pytest.raises(TimeError) as caught:
        times.canonical_micro("2024-01-01T00:00:01Z")
    layout = "2006-01-02T15:04:05.000000Z07:00"
    assert str(caught.value) == f'parsing time "2024-01-01T00:00:01Z" as "{layout}": cannot parse "Z" as ".000000"'


@pytest.mark.parametrize(
    ("seconds", "age", "short"),
    [
        (-2, "<invalid>", "<invalid>"),
        (-0.5, "0s", "0s"),
        (0, "0s", "0s"),
        (119.9, "119s", "1m"),
        (120, "2m", "2m"),
        (200, "3m20s", "3m"),
        (600, "10m", "10m"),
        (10799, "179m", "2h"),
        (10800, "3h", "3h"),
        (18720, "5h12m", "5h"),
        (28800, "8h", "8h"),
        (172800, "2d", "2d"),
        (273600, "3d4h", "3d"),
        (700000, "8d", "8d"),
        (86400 * 365 * 2, "2y", "2y"),
        (86400 * 760, "2y30d", "2y"),
        (86400 * 365 * 9, "9y", "9y"),
    ],
)
def test_ages(seconds: float, age: str, short: str) -> None:
    assert times.human_duration(seconds) == age
    assert times.short_human_duration(seconds) == short


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("72h", "72h0m0s"),
        ("1h2m3s", "1h2m3s"),
        ("90s", "1m30s"),
        ("1.5s", "1.5s"),
        ("20ms", "20ms"),
        ("0", "0s"),
        ("-1.5h", "-1h30m0s"),
        ("1µs", "1µs"),
        ("1m0.25s", "1m0.25s"),
        (".5s", "500ms"),
    ],
)
def test_durations(text: str, printed: str) -> None:
    assert times.format_duration(times.parse_duration(text)) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("x", 'time: invalid duration "x"'),
        ("1", 'time: missing unit in duration "1"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
    ],
)
def test_invalid_durations(text: str, message: str) -> None:
    with pytest.raises(TimeError) as caught:
        times.parse_duration(text)
    assert str(caught.value) == message


def test_dates_of_http_and_days() -> None:
    assert times.http_date(datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)) == "Sun, 06 Nov 1994 08:49:37 GMT"
    assert (
        times.http_date(datetime(2026, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=1))))
        == "Wed, 31 Dec 2025 23:30:00 GMT"
    )
    assert times.parse_day("2026-11-19") == datetime(2026, 11, 19)
    for text in ("", "today", "2026-11-31", "2026-W47-4", "20261119", "2026-11-19T00:00:00Z", "2026-1-9"):
        assert times.parse_day(text) is None, text
