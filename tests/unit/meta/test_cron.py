from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.meta.cron import Every, next_after, parse


def upcoming(text: str, start: str, count: int, zone: str = "UTC") -> list[str]:
    when: datetime | None = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone))
    found = []
    for _ in range(count):
        assert when is not None
        when = next_after(parse(text), when)
        found.append("never" if when is None else when.isoformat())
    return found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty spec string"),
        ("bogus", "expected exactly 5 fields, found 1: [bogus]"),
        ("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("5-2 * * * *", "beginning of range (5) beyond end of range (2): 5-2"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("a * * * *", 'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax'),
        ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
        (
            "99999999999999999999 * * * *",
            'failed to parse int from 99999999999999999999: strconv.Atoi: parsing "99999999999999999999": '
            "value out of range",
        ),
        ("@foo", "unrecognized descriptor: @foo"),
        ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
        ("TZ=Mars/Base * * * * *", "provided bad location Mars/Base: unknown time zone Mars/Base"),
        ("TZ=UTC", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_every() -> None:
    assert parse("@every 1h30m") == Every(timedelta(minutes=90))
    assert parse("@every 100ms") == Every(timedelta(seconds=1)), "never more often than once a second"
    assert upcoming("@every 90s", "2024-01-01T00:00:10", 1) == ["2024-01-01T00:01:40+00:00"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*/20 * * * *", ["2024-03-09T12:20:00+00:00", "2024-03-09T12:40:00+00:00"]),
        ("0 9-17/4 * jan-MAR mon,Fri", ["2024-03-11T09:00:00+00:00", "2024-03-11T13:00:00+00:00"]),
        ("@monthly", ["2024-04-01T00:00:00+00:00", "2024-05-01T00:00:00+00:00"]),
        ("0 0 29 2 *", ["2028-02-29T00:00:00+00:00", "2032-02-29T00:00:00+00:00"]),
        ("0 0 13 * 5", ["2024-03-13T00:00:00+00:00", "2024-03-15T00:00:00+00:00"]),  # either day will do
        ("0 0 13 * *", ["2024-03-13T00:00:00+00:00", "2024-04-13T00:00:00+00:00"]),
        ("0 0 30 2 *", ["never"]),
        (", * * * *", ["never"]),
    ],
)
def test_upcoming(text: str, expected: list[str]) -> None:
    assert upcoming(text, "2024-03-09T12:00:30", len(expected)) == expected


def test_a_time_that_daylight_saving_skips_does_not_fire() -> None:
    assert upcoming("30 2 * * *", "2024-03-09T12:00:00", 2, "America/New_York") == [
        "2024-03-11T02:30:00-04:00",
        "2024-03-12T02:30:00-04:00",
    ]


def test_a_time_that_occurs_twice_fires_twice() -> None:
    assert upcoming("30 1 * * *", "2024-11-02T12:00:00", 3, "America/New_York") == [
        "2024-11-03T01:30:00-04:00",
        "2024-11-03T01:30:00-05:00",
        "2024-11-04T01:30:00-05:00",
    ]


def test_midnight_may_not_exist() -> None:
    assert upcoming("0 8 9 * *", "2024-09-07T12:00:00", 1, "America/Santiago") == ["2024-09-09T08:00:00-03:00"]


def test_a_zone_in_the_schedule_takes_precedence() -> None:
    assert upcoming("TZ=Asia/Tokyo 0 9 * * *", "2024-01-01T00:00:00", 1) == ["2024-01-02T00:00:00+00:00"]


@given(
    st.lists(st.sampled_from(["*", "0", "5", "*/7", "1-3", "2,4"]), min_size=5, max_size=5),
    st.datetimes(datetime(2000, 1, 1), datetime(2040, 1, 1)),
)
def test_the_next_time_is_later_and_matches(fields: list[str], moment: datetime) -> None:
    text = " ".join(fields)
    if fields[2] == "0" or fields[3] == "0":  # no such day, no such month
        return
    when = moment.replace(tzinfo=UTC)
    found = next_after(parse(text), when)
    assert found is not None and found > when and found.second == 0
    before = next_after(parse(text), found - timedelta(seconds=1))
    assert before == found
