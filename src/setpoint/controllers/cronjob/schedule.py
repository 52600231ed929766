"""Computes the past and next scheduled times of a CronJob."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from setpoint.meta.cron import Schedule, load_zone, next_after, parse
from setpoint.meta.times import parse_time

Obj = Mapping[str, Any]

_MAX_MISSED = 100
_SLACK = timedelta(milliseconds=100)
"""Added to the delay, so that a reconcile runs just after the scheduled time rather than just before it."""


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Due(NamedTuple):
    since: datetime
    """The time from which missed times are counted: the last scheduled one, or the creation."""
    latest: datetime | None
    """The most recent unserved scheduled time; None if there is none."""
    missed: int
    """The approximate number of missed times; 0 also if only one is due just now."""

    @property
    def too_many(self) -> bool:
        return self.missed > _MAX_MISSED


def schedule_of(cron_job: Obj) -> Schedule:
    """Parse the schedule of a CronJob. Raise ValueError."""
    return parse(schedule_text(cron_job["spec"]))


def schedule_text(spec: Obj) -> str:
    """Return the schedule with the time zone in front, if it has a known one and does not name another itself."""
    text: str = spec["schedule"]
    zone = spec.get("timeZone")
    if "TZ" in text or zone is None:
        return text
    try:
        load_zone(zone)
    except ValueError:
        return text
    return f"TZ={zone} {text}"


def due(cron_job: Obj, schedule: Schedule, now: datetime, *, within_deadline: bool) -> Due:
    """Return the due times. With `within_deadline`, times older than startingDeadlineSeconds are ignored. Raise
    ValueError for a schedule that never fires, such as the 31st of February."""
    since = parse_time((cron_job.get("status") or {}).get("lastScheduleTime") or _created(cron_job))
    deadline = cron_job["spec"].get("startingDeadlineSeconds")
    if within_deadline and deadline is not None:
        since = max(since, now - timedelta(seconds=deadline))
    first = next_after(schedule, since)
    if first is not None and now < first:
        return Due(since, None, 0)
    second = next_after(schedule, first) if first is not None else None
    if first is not None and second is not None and now < second:
        return Due(since, first, 0)
    if first is None or second is None or (second - first) < timedelta(seconds=0.5):
        raise ValueError("time difference between two schedules is less than 1 second")
    apart = round((second - first).total_seconds())
    missed = int((now - first).total_seconds()) // apart + 1
    # Start near the end: a schedule that was missed for years need not be walked through. Go back one more step,
    # because times may be unevenly spaced.
    latest = None
    at = next_after(schedule, first + timedelta(seconds=(missed - 2) * apart))
    while at is not None and at <= now:
        latest, at = at, next_after(schedule, at)
    return Due(since, latest, missed)


def seconds_until_next(cron_job: Obj, schedule: Schedule, now: datetime) -> float | None:
    """Return the seconds until the next scheduled time, or None if there is none."""
    try:
        found = due(cron_job, schedule, now, within_deadline=False)
    except ValueError:
        start = now
    else:
        start = found.latest or (now if found.missed else found.since)
    following = next_after(schedule, start)
    return None if following is None else (following + _SLACK - now).total_seconds()


def shown_in_zone(when: datetime, zone_name: str | None) -> str:
    """Format as RFC 3339 with the offset of the zone. Raise ValueError for an unknown zone."""
    zone = load_zone(zone_name or "") or UTC
    local = when.astimezone(zone).replace(microsecond=0)
    text = local.isoformat()
    return text.replace("+00:00", "Z") if local.utcoffset() == timedelta() else text


def shown_in_mail(when: datetime) -> str:
    """Format as RFC 1123 in UTC, independent of the locale."""
    at = when.astimezone(UTC)
    return f"{_DAYS[at.weekday()]}, {at.day:02d} {_MONTHS[at.month - 1]} {at.year:04d} {at:%H:%M:%S} +0000"


def _created(cron_job: Obj) -> str:
    return str(cron_job["metadata"]["creationTimestamp"])
