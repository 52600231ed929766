"""The schedule of a CronJob, with upstream's own edge cases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from setpoint.controllers.cronjob import (
    due,
    schedule_of,
    schedule_text,
    seconds_until_next,
    shown_in_mail,
    shown_in_zone,
)
from setpoint.meta.times import format_time

TOP = datetime(2016, 5, 19, 10, 0, tzinfo=UTC)
HOURLY = "0 * * * ?"


def a_cron_job(schedule: str, created: datetime, last: datetime | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "c", "creationTimestamp": format_time(created)},
        "spec": {"schedule": schedule, **spec},
        "status": {} if last is None else {"lastScheduleTime": format_time(last)},
    }


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


@pytest.mark.parametrize(
    ("schedule", "created", "last", "deadline", "now", "latest", "too_many"),
    [
        (HOURLY, minutes(-10), None, None, minutes(-1), None, False),
        (HOURLY, minutes(-10), None, None, minutes(0.1), minutes(0), False),
        (HOURLY, minutes(-10), minutes(0), None, minutes(1), None, False),
        (HOURLY, minutes(-10), minutes(0), None, minutes(61), minutes(60), False),
        (HOURLY, minutes(-10), None, None, minutes(5 * 60 + 1), minutes(300), False),
        (HOURLY, minutes(-10), None, 120, minutes(61), minutes(60), False),
        (HOURLY, minutes(-10), None, 60, minutes(62), None, False),
        (HOURLY, minutes(-10), None, None, timedelta(days=10), timedelta(days=10), True),
        (HOURLY, minutes(-10), None, 3600, timedelta(days=10, minutes=1), timedelta(days=10), False),
        ("30 6-16/4 * * 1-5", minutes(-10), None, None, timedelta(days=4), timedelta(days=3, hours=20.5), False),
        ("@every 1h", minutes(0), None, None, minutes(61), minutes(60), False),
        ("@every 1h", minutes(7), minutes(67), None, minutes(67 + 185), minutes(67 + 180), False),
        ("0 0 * * *", minutes(-10), None, None, timedelta(days=3, hours=15), timedelta(days=3, hours=14), False),
    ],
)
def test_the_latest_missed_time(
    schedule: str, created: Any, last: Any, deadline: int | None, now: Any, latest: Any, too_many: bool
) -> None:
    spec = {} if deadline is None else {"startingDeadlineSeconds": deadline}
    cron_job = a_cron_job(schedule, TOP + created, None if last is None else TOP + last, **spec)
    found = due(cron_job, schedule_of(cron_job), TOP + now, within_deadline=True)
    assert found.latest == (None if latest is None else TOP + latest)
    assert found.too_many == too_many


def test_a_schedule_that_never_occurs_is_an_error() -> None:
    cron_job = a_cron_job("59 23 31 2 *", TOP)
    with pytest.raises(ValueError, match="time difference between two schedules is less than 1 second"):
        due(cron_job, schedule_of(cron_job), TOP + minutes(1), within_deadline=True)
    assert seconds_until_next(cron_job, schedule_of(cron_job), TOP) is None


@pytest.mark.parametrize(
    ("schedule", "last", "now", "seconds"),
    [
        (HOURLY, None, minutes(0.5), 60 * 60 - 30 + 0.1),
        (HOURLY, minutes(0), minutes(0.5), 60 * 60 - 30 + 0.1),
        (HOURLY, minutes(0), minutes(600.5), 60 * 60 - 30 + 0.1),
        ("@every 1h", minutes(7), minutes(67 + 185), 55 * 60 + 0.1),
    ],
)
def test_the_next_reconcile_is_just_after_the_scheduled_time(
    schedule: str, last: Any, now: Any, seconds: float
) -> None:
    cron_job = a_cron_job(schedule, TOP - minutes(1), None if last is None else TOP + last)
    assert seconds_until_next(cron_job, schedule_of(cron_job), TOP + now) == pytest.approx(seconds)


def test_the_time_zone_is_prepended_unless_the_schedule_has_one() -> None:
    assert schedule_text({"schedule": "0 0 * * *"}) == "0 0 * * *"
    assert schedule_text({"schedule": "0 0 * * *", "timeZone": "Europe/Rome"}) == "TZ=Europe/Rome 0 0 * * *"
    assert schedule_text({"schedule": "0 0 * * *", "timeZone": "No/Where"}) == "0 0 * * *"
    assert schedule_text({"schedule": "TZ=UTC 0 0 * * *", "timeZone": "Europe/Rome"}) == "TZ=UTC 0 0 * * *"


def test_midnight_depends_on_the_time_zone() -> None:
    cron_job = a_cron_job("0 0 * * *", TOP, timeZone="America/New_York")
    assert seconds_until_next(cron_job, schedule_of(cron_job), TOP) == pytest.approx(18 * 3600 + 0.1)


def test_formats_of_times() -> None:
    assert shown_in_zone(TOP, None) == "2016-05-19T10:00:00Z"
    assert shown_in_zone(TOP, "Europe/Rome") == "2016-05-19T12:00:00+02:00"
    assert shown_in_mail(TOP) == "Thu, 19 May 2016 10:00:00 +0000"
