"""Log lines: exceptions always have a text, and repeated lines are limited."""

from __future__ import annotations

import asyncio
import logging

import pytest
from stopped_clock import StoppedClock

from setpoint.cluster.klog import LogFilter, concerns_copy


class Clock(StoppedClock):
    def spend(self, seconds: float) -> None:
        self._elapsed += seconds


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(clock: Clock) -> Lines:
    lines = Lines()
    lines.addFilter(LogFilter(clock.monotonic))
    return lines


@pytest.fixture
def log(lines: Lines) -> logging.Logger:
    log = logging.Logger("test")
    log.addHandler(lines)
    return log


@pytest.mark.parametrize("error", [TimeoutError(), asyncio.CancelledError(), ConnectionResetError(), ValueError("")])
def test_an_exception_without_a_message_is_shown_by_its_type(
    log: logging.Logger, lines: Lines, error: BaseException
) -> None:
    log.warning("cannot acquire or renew the lease %s: %s", "x", error)
    log.warning("cannot acquire or renew the lease %s: %s", "x", ValueError("because"))
    assert lines.found == [
        f"cannot acquire or renew the lease x: {type(error).__name__}",
        "cannot acquire or renew the lease x: because",
    ]


def test_repeated_lines_are_counted(log: logging.Logger, lines: Lines, clock: Clock) -> None:
    for number in range(300):
        log.warning("SSL connection is closed")
        log.warning("another, %d", number)
        clock.spend(0.1)
    assert lines.found.count("SSL connection is closed") == 5
    assert sum(line.startswith("another") for line in lines.found) == 300
    lines.found.clear()
    clock.spend(60)
    log.warning("SSL connection is closed")
    log.warning("SSL connection is closed")
    assert lines.found == ["SSL connection is closed (and 295 times more since)", "SSL connection is closed"]


def test_lines_with_tracebacks_or_other_levels_are_distinct(log: logging.Logger, lines: Lines) -> None:
    for _ in range(10):
        try:
            raise ValueError
        except ValueError:
            log.exception("failed")
        log.info("failed")
    assert len(lines.found) == 15


def test_the_number_of_tracked_lines_is_bounded(log: logging.Logger, lines: Lines) -> None:
    for number in range(5_000):
        log.warning("line %d", number)
    (found,) = lines.filters
    assert isinstance(found, LogFilter)
    assert len(found._lines) == 1_000


def test_warnings_about_a_copy_are_dropped(log: logging.Logger, lines: Lines) -> None:
    token = concerns_copy.set(True)
    log.warning("cannot list or watch pods")
    log.error("a defect")
    concerns_copy.reset(token)
    log.warning("cannot list or watch nodes")
    assert lines.found == ["a defect", "cannot list or watch nodes"]
