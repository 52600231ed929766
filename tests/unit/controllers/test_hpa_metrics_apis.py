"""The autoscaler's reads from the three metrics APIs, and its errors when they are unavailable."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from setpoint.controllers.podautoscaler.metrics import MetricsApis, MetricsFailure, PodMetric
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import Forbidden, NotFound
from setpoint.meta.objects import Obj

AT = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = "2026-01-01T00:00:00Z"


def apis(answers: dict[str, Any], *served: Resource) -> MetricsApis:
    async def json(method: str, path: str, query: str = "") -> Any:
        answer = answers.get(f"{path}?{query}" if query else path, NotFound("404 page not found"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def resources(*, fresh: bool = False) -> tuple[Resource, ...]:
        return served

    client: Any = SimpleNamespace(sender=SimpleNamespace(json=json), discovery=SimpleNamespace(resources=resources))
    return MetricsApis(client)


def usage(name: str, *containers: tuple[str, Obj]) -> Obj:
    listed = [{"name": each, "usage": used} for each, used in containers]
    return {"metadata": {"name": name}, "timestamp": STAMP, "window": "10s", "containers": listed}


async def test_the_containers_of_a_pod_are_added_up() -> None:
    items = [
        usage("a", ("c", {"cpu": "250m", "memory": "1Mi"}), ("d", {"cpu": "1", "memory": "1Mi"})),
        usage("b", ("c", {"cpu": "1"}), ("d", {})),
        usage("none"),
    ]
    metrics = apis({"/apis/metrics.k8s.io/v1beta1/namespaces/n/pods?labelSelector=app%3Dweb": {"items": items}})
    assert await metrics.resource("cpu", "n", "app=web") == {"a": PodMetric(1250, AT, 10.0)}
    assert await metrics.resource("cpu", "n", "app=web", "c") == {
        "a": PodMetric(250, AT, 10.0),
        "b": PodMetric(1000, AT, 10.0),
    }
    assert (await metrics.resource("memory", "n", "app=web"))["a"].value == 2 * 2**20 * 1000


async def test_errors_without_resource_metrics() -> None:
    start = "unable to fetch metrics from resource metrics API: "
    with pytest.raises(MetricsFailure) as nothing:
        await apis({}).resource("cpu", "n", "")
    assert str(nothing.value) == start + "the server could not find the requested resource (get pods.metrics.k8s.io)"
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/n/pods"
    with pytest.raises(MetricsFailure) as refused:
        await apis({path: Forbidden("no")}).resource("cpu", "n", "")
    assert str(refused.value) == start + "no"
    with pytest.raises(MetricsFailure) as empty:
        await apis({path: {"items": []}}).resource("cpu", "n", "")
    assert str(empty.value) == "no metrics returned from resource metrics API"


CUSTOM = (
    Resource("custom.metrics.k8s.io", "v1beta2", "MetricValueList", "pods/x"),
    Resource("custom.metrics.k8s.io", "v1beta1", "MetricValueList", "pods/x"),
)


def value(name: str, amount: str, **more: Any) -> Obj:
    return {"describedObject": {"name": name}, "timestamp": STAMP, "value": amount, **more}


async def test_custom_metrics_are_read_in_the_newest_version() -> None:
    base = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/n"
    answers = {
        f"{base}/pods/*/depth?labelSelector=app%3Dweb&metricLabelSelector=a%3Db": {
            "items": [value("a", "5"), value("b", "1500m", windowSeconds=20)]
        },
        f"{base}/ingresses.networking.k8s.io/main/hits": {"items": [value("main", "10k")]},
        f"{base}/services/main/hits": {"items": []},
        f"{base}/metrics/quiet": {"items": [value("n", "3")]},
    }
    metrics = apis(answers, *CUSTOM)
    assert await metrics.pods("depth", "n", "app=web", "a=b") == {
        "a": PodMetric(5000, AT, 60.0),
        "b": PodMetric(1500, AT, 20.0),
    }
    ingress = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"}
    assert await metrics.object("hits", "n", ingress, "") == 10_000_000
    assert await metrics.object("quiet", "n", {"apiVersion": "v1", "kind": "Namespace", "name": "n"}, "") == 3000
    with pytest.raises(MetricsFailure, match="returned 0 results when we asked for exactly one"):
        await metrics.object("hits", "n", {"apiVersion": "v1", "kind": "Service", "name": "main"}, "")
    with pytest.raises(MetricsFailure, match=r'no matches for kind "Crowd" in group "example\.com"'):
        await metrics.object("hits", "n", {"apiVersion": "example.com/v1", "kind": "Crowd", "name": "main"}, "")


async def test_external_metrics() -> None:
    path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/n/queue?labelSelector=q%3Dmain"
    items = [{"metricName": "queue", "timestamp": STAMP, "value": each} for each in ("3", "500m")]
    assert await apis({path: {"items": items}}).external("queue", "n", "q=main") == [3000, 500]
    with pytest.raises(MetricsFailure) as nothing:
        await apis({}).external("queue", "n", "")
    text = "the server could not find the requested resource (get queue.external.metrics.k8s.io)"
    assert str(nothing.value) == f"unable to fetch metrics from external metrics API: {text}"
