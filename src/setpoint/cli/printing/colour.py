"""Colours on a terminal: dim headers, green for healthy, yellow for pending, red for failed states."""

from __future__ import annotations

import re
from collections.abc import Mapping

from setpoint.cli.tabwriter import Paint

_GREEN, _YELLOW, _RED, _DIM, _END = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
_STATES = frozenset(("STATUS", "REASON", "TYPE", "PHASE", "CONDITION"))
"""The columns whose values are states."""
_COUNTS = frozenset(("READY", "COMPLETIONS"))
_GOOD = frozenset(
    (
        "Running",
        "Ready",
        "Active",
        "Bound",
        "Available",
        "Succeeded",
        "Complete",
        "Completed",
        "Established",
        "True",
    )
)
_WAITING = frozenset(
    (
        "Pending",
        "ContainerCreating",
        "PodInitializing",
        "Terminating",
        "Released",
        "Suspended",
        "Warning",
        "Unknown",
        "Waiting",
        "Creating",
        "SchedulingDisabled",
        "NotReady",
        "SchedulingGated",
        "Progressing",
    )
)
_BAD = re.compile(
    r"Err|Fail|BackOff|OOMKilled|Evicted|Lost|Invalid|Denied|DeadlineExceeded|StartError|Unschedulable|NodeLost|Dead"
    r"|CannotRun|Signal:|ExitCode:|Preempt|Crash|Kill"
)
_COUNT = re.compile(r"(\d+)/(\d+)")


def painter(headers: Mapping[int, list[str]], names: list[str]) -> Paint:
    """Return a painter for lines with these headers; `names` are the columns above the first line."""
    current = list(names)

    def paint(line: int, column: int, text: str) -> str:
        nonlocal current
        if line in headers:
            current = headers[line]
            return f"{_DIM}{text}{_END}" if text else text
        name = current[column] if column < len(current) else ""
        colour = _colour(name, text)
        return f"{colour}{text}{_END}" if colour else text

    return paint


def _colour(name: str, text: str) -> str:
    if name in _STATES:
        return _state(text)
    if name in _COUNTS and (found := _COUNT.fullmatch(text)):
        return "" if int(found[1]) >= int(found[2]) else _YELLOW
    return ""


def _state(text: str) -> str:
    if _BAD.search(text):
        return _RED
    words = text.removeprefix("Init:").split(",")
    if any(word in _WAITING for word in words) or text.startswith("Init:"):
        return _YELLOW
    return _GREEN if text in _GOOD or words[0] in _GOOD else ""
