"""Metrics of requests with upstream's names, collected in dicts and formatted when requested.

Labels come from served resources, never from client input, so the number of series is bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

from setpoint.apiserver.request_context import RequestContext
from setpoint.meta.exposition import Family, Histogram, counter, gauge, histogram, merged, text

_BUCKETS = (
    0.005,
    0.025,
    0.05,
    0.1,
    0.2,
    0.4,
    0.6,
    0.8,
    1.0,
    1.25,
    1.5,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    15,
    20,
    30,
    45,
    60,
)
_KNOWN_VERBS = frozenset({"GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "DELETE", "DELETECOLLECTION", "HEAD"})
_METHODS = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
}

Series = tuple[str, ...]
Gauge = Callable[[], Iterable[tuple[dict[str, str], float]]]


class Metrics:
    def __init__(self) -> None:
        self._requests: dict[Series, int] = {}
        self._durations: dict[Series, list[float]] = {}
        self._gauges: dict[str, tuple[str, Gauge]] = {}
        self.sources: list[Callable[[], Iterable[Family]]] = []
        """Further sources of metrics in this process."""
        self._series: dict[tuple[object, ...], tuple[Series, Series]] = {}
        """Cached labels by kind of request."""

    def gauge(self, name: str, help_text: str, read: Gauge) -> None:
        """Register a gauge, which is read with each request for metrics."""
        self._gauges[name] = (help_text, read)

    def request(self, ctx: RequestContext, status: int, seconds: float) -> None:
        """Count a request."""
        target = ctx.target
        request_kind = (
            ctx.verb,
            target.group,
            target.version,
            target.resource,
            target.subresource,
            bool(target.name),
            bool(target.namespace),
            status,
        )
        series = self._series.get(request_kind)
        if series is None:
            series = self._labels_of(ctx, status)
            if ctx.resource is not None and status < 400:
                # Only successful requests of served resources are cached: their number is bounded.
                self._series[request_kind] = series
        labels, counted = series
        self._requests[counted] = self._requests.get(counted, 0) + 1
        if labels[0] != "WATCH":
            row = self._durations.get(labels)
            if row is None:
                row = self._durations[labels] = [0.0] * (len(_BUCKETS) + 2)
            row[bisect_left(_BUCKETS, seconds)] += 1
            row[-1] += seconds

    def forget(self, group: str, plural: str) -> None:
        """Drop the series of a custom resource that is no longer served."""
        for table in (self._requests, self._durations):
            for series in [each for each in table if each[1] == group and each[3] == plural]:
                del table[series]
        for request_kind in [each for each in self._series if each[1] == group and each[3] == plural]:
            del self._series[request_kind]

    def _labels_of(self, ctx: RequestContext, status: int) -> tuple[Series, Series]:
        """Return the labels of durations and of counts."""
        resource = ctx.resource
        verb = _METHODS.get(ctx.verb, ctx.request.method)
        if verb not in _KNOWN_VERBS:
            verb = "other"
        if resource is None:
            labels: Series = (verb, "", "", "", "", "")
        else:
            target = ctx.target
            sub = target.subresource if resource.subresource(target.subresource) else ""
            scope = "resource" if target.name else "namespace" if target.namespace else "cluster"
            labels = (verb, resource.group, resource.version, resource.plural, sub, scope)
        return labels, (*labels, str(status))

    def text(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        return text(merged([*self._families(), *(family for source in self.sources for family in source())])).encode()

    def _families(self) -> Iterable[Family]:
        names = ("verb", "group", "version", "resource", "subresource", "scope")
        yield counter(
            "apiserver_request_total",
            "Number of requests by verb, resource and response code.",
            ((dict(zip((*names, "code"), series)), requests) for series, requests in sorted(self._requests.items())),
        )
        yield histogram(
            "apiserver_request_duration_seconds",
            "Response latency in seconds.",
            ((dict(zip(names, series)), _histogram(row)) for series, row in sorted(self._durations.items())),
        )
        for name, (help_text, read) in self._gauges.items():
            yield gauge(name, help_text, read())


def _histogram(row: list[float]) -> Histogram:
    result = Histogram(_BUCKETS)
    result.counts, result.sum = [int(count) for count in row[:-1]], row[-1]
    return result
