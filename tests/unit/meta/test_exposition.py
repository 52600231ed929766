"""Prometheus' text format."""

from __future__ import annotations

from setpoint.meta.exposition import Histogram, counter, exponential, gauge, histogram, merged, text


def test_counters_and_gauges() -> None:
    shown = text(
        [
            counter("requests_total", "Requests,\nby verb.", [({"verb": "GET"}, 3), ({"verb": 'a "b" \\'}, 1)]),
            gauge("load", "How much.", [({}, 0.25)]),
            gauge("bytes", "Many.", [({}, 123456789012)]),
        ]
    )
    assert shown == (
        "# HELP requests_total Requests,\\nby verb.\n# TYPE requests_total counter\n"
        'requests_total{verb="GET"} 3\nrequests_total{verb="a \\"b\\" \\\\"} 1\n'
        "# HELP load How much.\n# TYPE load gauge\nload 0.25\n"
        "# HELP bytes Many.\n# TYPE bytes gauge\nbytes 123456789012\n"
    )
    assert text([]) == ""


def test_histogram_buckets_are_cumulative() -> None:
    found = Histogram((0.1, 1, 10))
    for value in (0.1, 0.5, 1, 7, 100):
        found.observe(value)
    assert text([histogram("took_seconds", "T.", [({"who": "x"}, found)])]).splitlines()[2:] == [
        'took_seconds_bucket{who="x",le="0.1"} 1',
        'took_seconds_bucket{who="x",le="1"} 3',
        'took_seconds_bucket{who="x",le="10"} 4',
        'took_seconds_bucket{who="x",le="+Inf"} 5',
        'took_seconds_sum{who="x"} 108.6',
        'took_seconds_count{who="x"} 5',
    ]
    assert exponential(0.001, 2, 4) == (0.001, 0.002, 0.004, 0.008)


def test_a_family_is_declared_once() -> None:
    one, two, other = (gauge(name, "H.", [({"of": of}, 1)]) for name, of in (("a", "x"), ("a", "y"), ("b", "z")))
    assert text(merged([one, other, two])) == text([one._replace(samples=[*one.samples, *two.samples]), other])
