"""What is told of priority and fairness, under upstream's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from setpoint.apiserver.fairness.fairness import Fairness
from setpoint.apiserver.fairness.levels import Level
from setpoint.meta.exposition import Family, counter, gauge

_GAUGES: dict[str, tuple[str, Callable[[Level], int]]] = {
    "nominal_limit_seats": ("Seats that are a level's by right.", lambda level: level.nominal),
    "lower_limit_seats": ("Seats that a level never lends.", lambda level: level.least),
    "upper_limit_seats": ("Seats that a level has at most, borrowed ones included.", lambda level: level.most),
    "current_limit_seats": ("Seats that a level has now.", lambda level: level.queues.limit),
    "current_executing_seats": ("Seats that are taken.", lambda level: level.queues.in_use),
    "current_executing_requests": ("Requests that have a seat.", lambda level: level.executing),
    "current_inqueue_requests": ("Requests that wait for a seat.", lambda level: level.queues.waiting),
    "current_inqueue_seats": ("Seats that are waited for.", lambda level: level.queues.seats_waiting),
}


def told(fairness: Fairness) -> Iterable[Family]:
    levels: list[Level] = [level for _, level in sorted(fairness.levels.items())]
    for name, (help_text, read) in _GAUGES.items():
        yield gauge(
            f"apiserver_flowcontrol_{name}", help_text,
            [({"priority_level": level.name}, float(read(level))) for level in levels],
        )  # fmt: skip
    yield counter(
        "apiserver_flowcontrol_dispatched_requests_total",
        "Requests that were worked on.",
        [
            ({"priority_level": level.name, "flow_schema": schema}, count)
            for level in levels
            for schema, (count,) in sorted(level.dispatched.items())
        ],
    )
    yield counter(
        "apiserver_flowcontrol_rejected_requests_total",
        "Requests that were refused.",
        [
            ({"priority_level": level.name, "flow_schema": schema, "reason": reason}, count)
            for level in levels
            for (schema, reason), count in sorted(level.rejected.items())
        ],
    )
