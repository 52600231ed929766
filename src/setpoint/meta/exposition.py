"""Metrics in Prometheus' text format: families of counters, gauges and histograms."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

Labels = Mapping[str, str]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    suffix: str
    labels: Labels
    value: float


class Family(NamedTuple):
    name: str
    kind: str
    help: str
    samples: Sequence[Sample]


class Histogram:
    """A histogram: the number of values up to each bound, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Create a histogram with these ascending bounds."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Number of values between each bound and the next; the last is for values above all bounds."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Return exponentially growing bounds."""
    return tuple(first * factor**step for step in range(count))


def counter(name: str, help_text: str, values: Iterable[tuple[Labels, float]]) -> Family:
    return Family(name, "counter", help_text, [Sample("", labels, value) for labels, value in values])


def gauge(name: str, help_text: str, values: Iterable[tuple[Labels, float]]) -> Family:
    return Family(name, "gauge", help_text, [Sample("", labels, value) for labels, value in values])


def histogram(name: str, help_text: str, series: Iterable[tuple[Labels, Histogram]]) -> Family:
    samples: list[Sample] = []
    for labels, found in series:
        total = 0
        for bound, count in zip((*map(_number, found.bounds), "+Inf"), found.counts, strict=True):
            total += count
            samples.append(Sample("_bucket", {**labels, "le": bound}, total))
        samples.append(Sample("_sum", labels, found.sum))
        samples.append(Sample("_count", labels, total))
    return Family(name, "histogram", help_text, samples)


def merged(families: Iterable[Family]) -> list[Family]:
    """Return each family once, with the samples of all families of its name."""
    found: dict[str, Family] = {}
    for family in families:
        known = found.get(family.name)
        found[family.name] = family if known is None else known._replace(samples=[*known.samples, *family.samples])
    return list(found.values())


def text(families: Iterable[Family]) -> str:
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += [
            f"{family.name}{sample.suffix}{_labels(sample.labels)} {_number(sample.value)}" for sample in family.samples
        ]
    return "\n".join(lines) + "\n" if lines else ""


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    shown = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return f"{{{shown}}}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _escaped(help_text: str) -> str:
    return help_text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(value: str) -> str:
    return _escaped(value).replace('"', r"\"")
