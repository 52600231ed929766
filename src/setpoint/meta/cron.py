"""Cron schedules: the five fields, `@daily` and the other descriptors, `@every 1h30m`, and a leading `TZ=`.

`parse` reports errors with the messages of the parser that upstream uses. `next_after` advances in absolute time and
compares the local time in the schedule's zone: a local time that daylight saving skips is skipped that day, and one
that occurs twice fires twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from setpoint.meta.caching import memoized
from setpoint.meta.goformat import quote
from setpoint.meta.times import TimeError, parse_duration

_STAR = 1 << 63
"""Bit of a field that was given as `*`: day of month and day of week must then both match."""
_MAX_YEARS_AHEAD = 5


@dataclass(frozen=True, slots=True)
class Fields:
    """The sets of values of the five fields, as bits."""

    minute: int
    hour: int
    day: int
    month: int
    weekday: int
    zone: tzinfo | None
    """Time zone of the schedule; None means the caller's zone."""


@dataclass(frozen=True, slots=True)
class Every:
    delay: timedelta


Schedule = Fields | Every


@dataclass(frozen=True, slots=True)
class _Bounds:
    low: int
    high: int
    names: tuple[str, ...] = ()
    first_name: int = 0


_MINUTE = _Bounds(0, 59)
_HOUR = _Bounds(0, 23)
_DAY = _Bounds(1, 31)
_MONTH = _Bounds(
    1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), first_name=1
)
_WEEKDAY = _Bounds(0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))


@memoized(maxsize=1024)
def parse(text: str) -> Schedule:
    """Parse a schedule. Raises ValueError with upstream's message."""
    if not text:
        raise ValueError("empty spec string")
    zone: tzinfo | None = None
    if text.startswith(("TZ=", "CRON_TZ=")):
        space, equals = text.find(" "), text.find("=")
        if space < 0:
            raise ValueError("invalid schedule format: runtime error: slice bounds out of range [:-1]")
        name = text[equals + 1 : space]
        try:
            zone = load_zone(name)
        except ValueError as error:
            raise ValueError(f"provided bad location {name}: {error}") from None
        text = text[space:].strip()
    if text.startswith("@"):
        return _descriptor(text, zone)
    fields = text.split()
    if len(fields) != 5:
        raise ValueError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    bounds = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)
    minute, hour, day, month, weekday = (_field(field, bound) for field, bound in zip(fields, bounds))
    return Fields(minute, hour, day, month, weekday, zone)


def load_zone(name: str) -> tzinfo | None:
    """Return the time zone of that name, or None for `Local`. Raises ValueError with Go's message."""
    if name in ("", "UTC"):
        return UTC
    if name == "Local":
        return None
    if ".." in name or name[0] in "/\\" or "\\" in name:
        raise ValueError("time: invalid location name")
    try:
        return ZoneInfo(name)
    except IsADirectoryError:
        raise ValueError("is a directory") from None
    except (KeyError, ValueError, OSError):
        raise ValueError(f"unknown time zone {name}") from None


def _descriptor(text: str, zone: tzinfo | None) -> Schedule:
    first = {
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
        "@monthly": "0 0 1 * *",
        "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@hourly": "0 * * * *",
    }.get(text)
    if first is not None:
        plain = parse(first)
        assert isinstance(plain, Fields)
        return Fields(plain.minute, plain.hour, plain.day, plain.month, plain.weekday, zone)
    if text.startswith("@every "):
        try:
            nanoseconds = parse_duration(text[len("@every ") :])
        except TimeError as error:
            raise ValueError(f"failed to parse duration {text}: {error}") from None
        return Every(timedelta(seconds=max(nanoseconds // 10**9, 1)))
    raise ValueError(f"unrecognized descriptor: {text}")


def _field(field: str, bounds: _Bounds) -> int:
    bits = 0
    for expression in field.split(","):
        if expression:
            bits |= _range(expression, bounds)
    return bits


def _range(expression: str, bounds: _Bounds) -> int:
    span, *steps = expression.split("/")
    low, *rest = span.split("-")
    star = 0
    if low in ("*", "?"):
        start, end, star = bounds.low, bounds.high, _STAR
    else:
        start = end = _number_or_name(low, bounds)
        if len(rest) > 1:
            raise ValueError(f"too many hyphens: {expression}")
        if rest:
            end = _number_or_name(rest[0], bounds)
    step = 1
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {expression}")
    if steps:
        step = _number(steps[0])
        if not rest:
            end = bounds.high
        if step > 1:
            star = 0
    if start < bounds.low:
        raise ValueError(f"beginning of range ({start}) below minimum ({bounds.low}): {expression}")
    if end > bounds.high:
        raise ValueError(f"end of range ({end}) above maximum ({bounds.high}): {expression}")
    if start > end:
        raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {expression}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {expression}")
    return star | sum(1 << value for value in range(start, end + 1, step))


def _number_or_name(text: str, bounds: _Bounds) -> int:
    name = text.lower()
    return bounds.names.index(name) + bounds.first_name if name in bounds.names else _number(text)


def _number(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"failed to parse int from {text}: strconv.Atoi: parsing {quote(text)}: invalid syntax")
    # Go's integers overflow long before Python's limit on digits.
    if len(digits.lstrip("0")) > 19 or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"failed to parse int from {text}: strconv.Atoi: parsing {quote(text)}: value out of range")
    number = int(text)
    if number < 0:
        raise ValueError(f"negative number ({number}) not allowed: {text}")
    return number


# -- time --------------------------------------------------------------------------------------------------------------

_SECOND, _MINUTE_STEP, _HOUR_STEP = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def next_after(schedule: Schedule, when: datetime) -> datetime | None:
    """Return the first time after `when` (which must know its zone), in the zone of `when`; None: not within five
    years."""
    try:
        if isinstance(schedule, Every):
            return when.replace(microsecond=0) + schedule.delay
        if not all((schedule.minute, schedule.hour, schedule.month, schedule.day | schedule.weekday)):
            return None
        found = _next(schedule, schedule.zone or when.tzinfo or UTC, when.astimezone(UTC))
        return None if found is None else found.astimezone(when.tzinfo)
    except OverflowError:
        return None


def _next(schedule: Fields, zone: tzinfo, now: datetime) -> datetime | None:
    """Advance in UTC and compare in `zone`: month, day, hour, minute, starting over whenever one overflows."""
    at = (now.replace(microsecond=0) + _SECOND).astimezone(zone)
    last_year = at.year + _MAX_YEARS_AHEAD
    # Until the first increment the smaller units of `at` are those of `now`; after it they start at their minimum.
    moved = False
    while at.year <= last_year:
        if not schedule.month >> at.month & 1:
            at = _wall(at.year, at.month + 1, 1, 0, 0, 0, zone)
            moved = True
            continue
        if not _day_matches(schedule, at):
            hour, minute, second = (at.hour, at.minute, at.second) if moved else (0, 0, 0)
            at = _wall(at.year, at.month, at.day + 1, hour, minute, second, zone)
            moved = True
            if at.hour:
                # Midnight does not exist here: the clock went from 23 to 1, or back to 23.
                at = _add(at, timedelta(hours=24 - at.hour if at.hour > 12 else -at.hour), zone)
            continue
        if not schedule.hour >> at.hour & 1:
            if not moved:
                at = _wall(at.year, at.month, at.day, at.hour, 0, 0, zone)
                moved = True
            at = _add(at, _HOUR_STEP, zone)
            continue
        if not schedule.minute >> at.minute & 1:
            if not moved:
                at = _add(at, timedelta(seconds=-at.second), zone)
                moved = True
            at = _add(at, _MINUTE_STEP, zone)
            continue
        if at.second:
            at = _add(at, timedelta(seconds=60 - at.second), zone)
            moved = True
            continue
        return at.astimezone(UTC)
    return None


def _day_matches(schedule: Fields, at: datetime) -> bool:
    day = bool(schedule.day >> at.day & 1)
    weekday = bool(schedule.weekday >> (at.isoweekday() % 7) & 1)
    return day and weekday if (schedule.day | schedule.weekday) & _STAR else day or weekday


def _add(at: datetime, step: timedelta, zone: tzinfo) -> datetime:
    """Add in absolute time; Python's own arithmetic on zoned times uses local time."""
    return (at.astimezone(UTC) + step).astimezone(zone)


def _wall(year: int, month: int, day: int, hour: int, minute: int, second: int, zone: tzinfo) -> datetime:
    """Return the instant at which a wall clock shows this time; day and month may overflow.

    Where the clock skips or repeats the time, Go's choice applies: the offset in force at the first estimate."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    naive = datetime(year, month, 1, hour, minute, second, tzinfo=UTC) + timedelta(days=day - 1)
    guess = naive.astimezone(zone).utcoffset() or timedelta()
    offset = (naive - guess).astimezone(zone).utcoffset() or timedelta()
    return (naive - offset).astimezone(zone)
