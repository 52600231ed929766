"""Metrics of an operator: those of its control loops, with controller-runtime's names, and custom ones.

    BREWED = Counter("teapots_brewed_total", "Teapots that were brewed.", labels=("tea",))

    async def brew(ctx, teapot):
        ctx.count(BREWED, tea="green")

A metric is a declaration; its values belong to the running operator, which serves them at `/metrics`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from setpoint.meta import exposition
from setpoint.meta.exposition import Family

log = logging.getLogger("setpoint.operator")

MAX_SERIES = 1000
"""The maximum number of series of one metric: labels with unbounded values (such as object names) would exhaust
memory."""
SECONDS = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.15,
    0.2,
    0.25,
    0.3,
    0.35,
    0.4,
    0.45,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    1.0,
    1.25,
    1.5,
    1.75,
    2.0,
    2.5,
    3.0,
    3.5,
    4.0,
    4.5,
    5.0,
    6.0,
    7.0,
    8.0,
    9.0,
    10.0,
    15.0,
    20.0,
    25.0,
    30.0,
    40.0,
    50.0,
    60.0,
)
"""The bucket bounds of controller-runtime's duration histograms, in seconds."""
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True)
class Metric:
    name: str
    help: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} cannot be the name of a metric")
        for label in self.labels:
            if not _LABEL.fullmatch(label) or label == "le":
                raise ValueError(f"{label!r} cannot be a label of {self.name}")


class Counter(Metric):
    """A metric that only increases: `ctx.count(BREWED, tea="green")`."""


class Gauge(Metric):
    """A metric that goes up and down: `ctx.gauge(LEVEL, 0.7)`."""


@dataclass(frozen=True)
class Histogram(Metric):
    """A distribution of values: `ctx.observe(BREWING, 3.2)`."""

    bounds: tuple[float, ...] = SECONDS


Series = tuple[str, ...]


class Measurements:
    """The values of all metrics of one running operator."""

    def __init__(self) -> None:
        self._values: dict[Metric, dict[Series, float]] = {}
        self._histograms: dict[Histogram, dict[Series, exposition.Histogram]] = {}
        self._warned: set[str] = set()

    def count(self, metric: Counter, by: float, labels: Mapping[str, str]) -> None:
        if by < 0:
            raise ValueError(f"{metric.name} only grows")
        series = self._series(metric, labels)
        values = self._values.setdefault(metric, {})
        if self._has_capacity(metric, series, values):
            values[series] = values.get(series, 0.0) + by

    def set(self, metric: Gauge, value: float, labels: Mapping[str, str]) -> None:
        series = self._series(metric, labels)
        values = self._values.setdefault(metric, {})
        if self._has_capacity(metric, series, values):
            values[series] = value

    def observe(self, metric: Histogram, value: float, labels: Mapping[str, str]) -> None:
        series = self._series(metric, labels)
        found = self._histograms.setdefault(metric, {})
        if self._has_capacity(metric, series, found):
            found.setdefault(series, exposition.Histogram(metric.bounds)).observe(value)

    def families(self) -> list[Family]:
        shown = [
            (exposition.counter if isinstance(metric, Counter) else exposition.gauge)(
                metric.name, metric.help, [(dict(zip(metric.labels, series)), each) for series, each in values.items()]
            )
            for metric, values in self._values.items()
        ]
        return shown + [
            exposition.histogram(
                metric.name, metric.help, [(dict(zip(metric.labels, series)), each) for series, each in found.items()]
            )
            for metric, found in self._histograms.items()
        ]

    def _series(self, metric: Metric, labels: Mapping[str, str]) -> Series:
        if len(labels) != len(metric.labels) or not all(name in labels for name in metric.labels):
            raise ValueError(f"the labels of {metric.name} are {list(metric.labels)}, not {list(labels)}")
        return tuple(str(labels[name]) for name in metric.labels)

    def _has_capacity(self, metric: Metric, series: Series, known: Mapping[Series, object]) -> bool:
        if series in known or len(known) < MAX_SERIES:
            return True
        if metric.name not in self._warned:
            self._warned.add(metric.name)
            log.warning("%s has more than %d different labels: further ones are not counted", metric.name, MAX_SERIES)
        return False
