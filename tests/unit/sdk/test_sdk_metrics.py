"""Custom metrics of operators, and the limit on their series."""

from __future__ import annotations

import pytest

from setpoint.meta.exposition import text
from setpoint.sdk import Counter, Gauge, Histogram
from setpoint.sdk.metrics import MAX_SERIES, Measurements

BREWED = Counter("teapots_brewed_total", "Teapots that were brewed.", labels=("tea", "pot"))


def test_metrics_are_written_in_the_text_format() -> None:
    found = Measurements()
    found.count(BREWED, 1, {"tea": "green", "pot": "a"})
    found.count(BREWED, 2, {"pot": "a", "tea": "green"})
    found.set(Gauge("level", "How full."), 0.5, {})
    found.set(Gauge("level", "How full."), 0.25, {})
    found.observe(Histogram("brewing_seconds", "How long.", bounds=(1.0, 2.0)), 1.5, {})
    assert text(found.families()).splitlines() == [
        "# HELP teapots_brewed_total Teapots that were brewed.",
        "# TYPE teapots_brewed_total counter",
        'teapots_brewed_total{tea="green",pot="a"} 3',
        "# HELP level How full.",
        "# TYPE level gauge",
        "level 0.25",
        "# HELP brewing_seconds How long.",
        "# TYPE brewing_seconds histogram",
        'brewing_seconds_bucket{le="1"} 0',
        'brewing_seconds_bucket{le="2"} 1',
        'brewing_seconds_bucket{le="+Inf"} 1',
        "brewing_seconds_sum 1.5",
        "brewing_seconds_count 1",
    ]


def test_the_number_of_series_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    found = Measurements()
    for number in range(MAX_SERIES + 10):
        found.count(BREWED, 1, {"tea": str(number), "pot": "a"})
    found.count(BREWED, 1, {"tea": "0", "pot": "a"})
    (family,) = found.families()
    assert len(family.samples) == MAX_SERIES
    assert family.samples[0].value == 2, "those that are known go on"
    assert [record.message for record in caplog.records] == [
        "teapots_brewed_total has more than 1000 different labels: further ones are not counted"
    ]


def test_invalid_metrics_are_rejected() -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        Counter("no spaces", "")
    with pytest.raises(ValueError, match="'le' cannot be a label"):
        Histogram("x", "", labels=("le",))
    with pytest.raises(ValueError, match=r"the labels of teapots_brewed_total are \['tea', 'pot'\], not \['tea'\]"):
        Measurements().count(BREWED, 1, {"tea": "green"})
    with pytest.raises(ValueError, match="only grows"):
        Measurements().count(BREWED, -1, {"tea": "green", "pot": "a"})
