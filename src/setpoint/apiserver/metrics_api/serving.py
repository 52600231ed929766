"""Adds `metrics.k8s.io` to a server: its resources, and the APIService that shows it."""

from __future__ import annotations

from setpoint.apiserver.metrics_api.handlers import MetricsHandlers
from setpoint.apiserver.metrics_api.objects import GROUP, NODES, PODS, VERSION
from setpoint.apiserver.metrics_api.source import UsageSource
from setpoint.apiserver.own_writes import current, delete, ensure
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Obj

_REGISTRATION = "apiregistration.k8s.io"
_NAME = f"{VERSION}.{GROUP}"


def _api_service() -> Obj:
    return {
        "apiVersion": f"{_REGISTRATION}/v1",
        "kind": "APIService",
        "metadata": {"name": _NAME, "labels": {"k8s-app": "metrics-server"}},
        "spec": {"group": GROUP, "version": VERSION, "groupPriorityMinimum": 100, "versionPriority": 100},
    }


async def serve_metrics(api: ApiServer, source: UsageSource) -> None:
    handlers = MetricsHandlers(source, CacheReader(api))
    for resource, handler in ((NODES, handlers.nodes), (PODS, handlers.pods)):
        api.resources[(GROUP, VERSION, resource.plural)] = resource
        api.reviews[(GROUP, resource.plural)] = handler
    api.announce()
    await ensure(api, _REGISTRATION, "apiservices", _api_service())


async def retire_metrics(api: ApiServer) -> None:
    """An earlier run on the same store may have shown what this server does not serve."""
    left = current(api, _REGISTRATION, "apiservices", "", _NAME)
    if left is not None and "service" not in left.obj["spec"]:
        await delete(api, _REGISTRATION, "apiservices", left)
