"""The metrics that the autoscaler reads, as Kubernetes serves them: metrics.k8s.io, custom.metrics.k8s.io,
external.metrics.k8s.io.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Protocol

from setpoint.client import Client, Unreachable
from setpoint.client.resources import query_of
from setpoint.controllers.subresources import group_resource, resources_of_kind
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import milli_value
from setpoint.meta.times import parse_duration, parse_time

_CUSTOM = "custom.metrics.k8s.io"


class MetricsFailure(Exception):
    """A metric is unavailable; the text says why."""


class PodMetric(NamedTuple):
    value: int
    """The value in thousandths."""
    at: datetime | None = None
    window: float = 60.0
    """Seconds before `at` that the measurement covers."""


PodMetrics = dict[str, PodMetric]
"""Metrics by Pod name."""


class Metrics(Protocol):
    """Reads metrics, all in thousandths. Every method raises MetricsFailure."""

    async def resource(self, name: str, namespace: str, selector: str, container: str = "") -> PodMetrics:
        """Return the usage of a resource (cpu, memory) by the selected Pods, or by one container of each."""
        ...

    async def pods(self, name: str, namespace: str, selector: str, metric_selector: str) -> PodMetrics:
        """Return a custom metric of each selected Pod."""
        ...

    async def object(self, name: str, namespace: str, reference: Obj, metric_selector: str) -> int:
        """Return a custom metric of another object."""
        ...

    async def external(self, name: str, namespace: str, metric_selector: str) -> list[int]:
        """Return the matching values of an external metric."""
        ...


class MetricsApis:
    """Reads metrics as Kubernetes serves them: metrics.k8s.io, custom.metrics.k8s.io, external.metrics.k8s.io."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def resource(self, name: str, namespace: str, selector: str, container: str = "") -> PodMetrics:
        path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"
        missing = "the server could not find the requested resource (get pods.metrics.k8s.io)"
        items = await self._items("resource", path, {"labelSelector": selector}, missing)
        found: PodMetrics = {}
        for item in items:
            containers = item.get("containers") or []
            if container:
                containers = [each for each in containers if each["name"] == container]
            used = [(each.get("usage") or {}).get(name) for each in containers]
            if used and None not in used:
                window = parse_duration(item.get("window") or "0") / 1e9
                total = sum(milli_value(amount) for amount in used if amount is not None)
                found[item["metadata"]["name"]] = PodMetric(total, _time(item), window)
        return found

    async def pods(self, name: str, namespace: str, selector: str, metric_selector: str) -> PodMetrics:
        path = f"{await self._custom()}/namespaces/{namespace}/pods/*/{name}"
        query = {"labelSelector": selector, "metricLabelSelector": metric_selector}
        items = await self._items("custom", path, query)
        return {
            item["describedObject"]["name"]: PodMetric(
                milli_value(item["value"]), _time(item), float(item.get("windowSeconds") or 60)
            )
            for item in items
        }

    async def object(self, name: str, namespace: str, reference: Obj, metric_selector: str) -> int:
        base, kind = await self._custom(), reference["kind"]
        group = reference.get("apiVersion", "").rpartition("/")[0]
        if (group, kind) == ("", "Namespace"):
            path = f"{base}/namespaces/{namespace}/metrics/{name}"
        else:
            try:
                (resource, *_) = await resources_of_kind(self._client, group, kind)
            except ApiError as error:
                raise MetricsFailure(f"unable to fetch metrics from custom metrics API: {error}") from None
            path = f"{base}/namespaces/{namespace}/{group_resource(resource)}/{reference['name']}/{name}"
        answer = await self._read("custom", path, {"metricLabelSelector": metric_selector})
        items = answer.get("items") or []
        if len(items) != 1:
            text = f"the custom metrics API server returned {len(items)} results when we asked for exactly one"
            raise MetricsFailure(f"unable to fetch metrics from custom metrics API: {text}")
        return milli_value(items[0]["value"])

    async def external(self, name: str, namespace: str, metric_selector: str) -> list[int]:
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}"
        missing = f"the server could not find the requested resource (get {name}.external.metrics.k8s.io)"
        items = await self._items("external", path, {"labelSelector": metric_selector}, missing)
        return [milli_value(item["value"]) for item in items]

    async def _custom(self) -> str:
        """Return the newest served version."""
        try:
            versions = {each.version for each in await self._client.discovery.resources() if each.group == _CUSTOM}
            if not versions:
                fresh = await self._client.discovery.resources(fresh=True)
                versions = {each.version for each in fresh if each.group == _CUSTOM}
        except (ApiError, Unreachable) as error:
            raise MetricsFailure(f"unable to fetch metrics from custom metrics API: {error}") from None
        if not versions:
            text = f"no custom metrics API ({_CUSTOM}) registered"
            raise MetricsFailure(f"unable to fetch metrics from custom metrics API: {text}")
        return f"/apis/{_CUSTOM}/{max(versions)}"

    async def _items(self, api: str, path: str, query: Obj, missing: str = "") -> list[Obj]:
        items: list[Obj] = (await self._read(api, path, query, missing)).get("items") or []
        if not items:
            raise MetricsFailure(f"no metrics returned from {api} metrics API")
        return items

    async def _read(self, api: str, path: str, query: Obj, missing: str = "") -> Obj:
        try:
            return await self._client.sender.json("GET", path, query_of(query))
        except NotFound as error:
            text = missing if missing and not error.details else str(error)
            raise MetricsFailure(f"unable to fetch metrics from {api} metrics API: {text}") from None
        except (ApiError, Unreachable) as error:
            raise MetricsFailure(f"unable to fetch metrics from {api} metrics API: {error}") from None


def _time(item: Obj) -> datetime | None:
    return parse_time(item["timestamp"]) if item.get("timestamp") else None
