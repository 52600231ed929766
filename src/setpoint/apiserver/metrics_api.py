"""The API group `metrics.k8s.io`: the current resource usage of nodes and Pods.

It has the form of the metrics server of other clusters, and is served only where a UsageSource provides samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from setpoint.apiserver.api_resources import ApiResources, CacheReader
from setpoint.apiserver.internal_writes import current, delete, ensure
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import include_object, respond_value
from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import BadRequest, NotAcceptable, NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import BINARY, of_nano, of_value, parse
from setpoint.meta.selectors import SelectorError, parse_fields, parse_labels
from setpoint.meta.times import format_duration, format_time
from setpoint.wire.message import Answer

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
_READ = ("get", "list")
NODES = Resource(GROUP, VERSION, "NodeMetrics", "nodes", namespaced=False, verbs=_READ)
PODS = Resource(GROUP, VERSION, "PodMetrics", "pods", verbs=_READ)
_FIELDS = ("metadata.name", "metadata.namespace")
_REGISTRATION = "apiregistration.k8s.io"
_NAME = f"{VERSION}.{GROUP}"


class ResourceUsage(NamedTuple):
    """The usage of a container or node."""

    cpu_nano: int
    """Billionths of a core."""
    memory_bytes: int


class PodSample(NamedTuple):
    """The usage of a Pod's containers."""

    window: float
    """Seconds over which the usage was measured."""
    containers: Mapping[str, ResourceUsage]


class Sample(NamedTuple):
    """The usage of all nodes and Pods at one time."""

    at: datetime
    window: float
    nodes: Mapping[str, ResourceUsage] = MappingProxyType({})
    pods: Mapping[str, PodSample] = MappingProxyType({})
    """Usage by uid, of Pods that have run long enough to be measured."""


class UsageSource(Protocol):
    """Provides samples."""

    async def sample(self) -> Sample:
        """Return a recent sample."""
        ...


def _node_metrics(node: Mapping[str, Any], sample: Sample, now: datetime) -> Obj | None:
    """Return the NodeMetrics of a node, or None if it has no sample."""
    usage = sample.nodes.get(node["metadata"]["name"])
    if usage is None:
        return None
    return {
        "metadata": _metadata(node, now),
        "timestamp": _format_time(sample.at),
        "window": _duration(sample.window),
        "usage": _usage_field(usage),
    }


def _pod_metrics(pod: Mapping[str, Any], sample: Sample, now: datetime) -> Obj | None:
    """Return the PodMetrics of a Pod, or None if it has no sample."""
    found = sample.pods.get(pod["metadata"]["uid"])
    if found is None:
        return None
    return {
        "metadata": _metadata(pod, now),
        "timestamp": _format_time(sample.at),
        "window": _duration(found.window),
        "containers": [{"name": name, "usage": _usage_field(usage)} for name, usage in found.containers.items()],
    }


def _metadata(obj: Mapping[str, Any], now: datetime) -> Obj:
    meta = obj["metadata"]
    identity = {key: meta[key] for key in ("name", "namespace") if key in meta}
    labels = {"labels": dict(meta["labels"])} if meta.get("labels") else {}
    return {**identity, "creationTimestamp": _format_time(now), **labels}


def _usage_field(usage: ResourceUsage) -> Obj:
    return dict(_usage_text(usage))


# Cached: many Pods have the same usage, and all have the same time.


@lru_cache(maxsize=1024)
def _usage_text(usage: ResourceUsage) -> Obj:
    return {"cpu": of_nano(usage.cpu_nano).text, "memory": of_value(usage.memory_bytes, BINARY).text}


_format_time = lru_cache(maxsize=16)(format_time)


@lru_cache(maxsize=1024)
def _duration(seconds: float) -> str:
    return format_duration(round(seconds * 1000) * 1_000_000)


# -- tables -----------------------------------------------------------------------------------------------------------


def _metrics_table(items: Iterable[Obj], resource: Resource, meta: Obj, form_version: str, include: str) -> Obj:
    """Return a Table with name, usage and window, as the metrics server prints it."""
    rows, names = [], ["cpu", "memory"]
    for item in items:
        usage = item["usage"] if "usage" in item else _total_usage(item["containers"])
        rows.append(
            {
                "cells": [item["metadata"]["name"], *(usage[name] for name in names), item["window"]],
                "object": _included(item, resource, form_version, include),
            }
        )
    columns = [("Name", "name", "Name of the resource"), *((name, "quantity", "") for name in names)]
    columns.append(("Window", "duration", ""))
    return {
        "kind": "Table",
        "apiVersion": form_version,
        "metadata": meta,
        "columnDefinitions": [
            {"name": name, "type": "string", "format": form, "description": text, "priority": 0}
            for name, form, text in columns
        ]
        if rows
        else None,
        "rows": rows,
    }


def _total_usage(containers: Iterable[Obj]) -> Obj:
    cpu = memory = 0
    for each in containers:
        cpu += parse(each["usage"]["cpu"]).nano
        memory += parse(each["usage"]["memory"]).nano
    return {"cpu": of_nano(cpu).text, "memory": of_nano(memory, BINARY).text}


def _included(item: Obj, resource: Resource, version: str, include: str) -> Obj | None:
    if include == "None":
        return None
    if include == "Object":
        return {"kind": resource.kind, "apiVersion": resource.api_version, **item}
    return {"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": item["metadata"]}


_MetricsOf = Callable[[Mapping[str, Any], Sample, datetime], Obj | None]


class _MetricsHandlers:
    """Handles reads of `metrics.k8s.io`: the existing nodes and Pods with their latest samples."""

    def __init__(self, source: UsageSource, reader: CacheReader) -> None:
        self._source = source
        self._reader = reader

    async def nodes(self, ctx: RequestContext, _: Registry, form: Form) -> Answer:
        return await self._answer(ctx, form, NODES, _node_metrics)

    async def pods(self, ctx: RequestContext, _: Registry, form: Form) -> Answer:
        return await self._answer(ctx, form, PODS, _pod_metrics)

    async def _answer(self, ctx: RequestContext, form: Form, resource: Resource, metrics_of: _MetricsOf) -> Answer:
        sample = await self._source.sample()
        if ctx.target.name:
            return self._one(ctx, form, resource, metrics_of, sample)
        return self._list(ctx, form, resource, metrics_of, sample)

    def _one(
        self, ctx: RequestContext, form: Form, resource: Resource, metrics_of: _MetricsOf, sample: Sample
    ) -> Answer:
        namespace, name = ctx.target.namespace, ctx.target.name
        obj = self._reader.get("", resource.plural, namespace, name)
        if obj is None:
            raise NotFound.of("", resource.plural, name)
        item = metrics_of(obj, sample, ctx.now)
        if item is None:
            raise NotFound.of(GROUP, resource.plural, f"{namespace}/{name}" if namespace else name)
        if form.transform == "Table":
            return self._table(ctx, form, resource, [item])
        if form.transform == "PartialObjectMetadata":
            return respond_value(ctx, form, _partial(item, form))
        if form.transform:
            raise NotAcceptable(f"you requested {form.transform}, but the requested object is not a list")
        return respond_value(ctx, form, {"kind": resource.kind, "apiVersion": resource.api_version, **item})

    def _list(
        self, ctx: RequestContext, form: Form, resource: Resource, metrics_of: _MetricsOf, sample: Sample
    ) -> Answer:
        try:
            labels = parse_labels(ctx.option("labelSelector"))
            fields = parse_fields(ctx.option("fieldSelector"))
        except SelectorError as error:
            raise BadRequest(str(error)) from None
        for requirement in fields.requirements:
            if requirement.key not in _FIELDS:
                raise BadRequest(f"field label not supported: {requirement.key}")
        items = []
        for obj in self._reader.list("", resource.plural, ctx.target.namespace):
            meta = obj["metadata"]
            place = {"metadata.name": meta["name"], "metadata.namespace": meta.get("namespace", "")}
            if labels.matches(meta.get("labels") or {}) and fields.matches(place):
                item = metrics_of(obj, sample, ctx.now)
                if item is not None:
                    items.append(item)
        if form.transform == "Table":
            return self._table(ctx, form, resource, items)
        if form.transform:
            kind, version = "PartialObjectMetadataList", form.meta_version
            return respond_value(ctx, form, _listed(kind, version, [_partial(item, form) for item in items]))
        return respond_value(ctx, form, _listed(resource.list_kind, resource.api_version, items))

    @staticmethod
    def _table(ctx: RequestContext, form: Form, resource: Resource, items: list[Obj]) -> Answer:
        return respond_value(ctx, form, _metrics_table(items, resource, {}, form.meta_version, include_object(ctx)))


def _listed(kind: str, version: str, items: list[Obj]) -> Obj:
    return {"kind": kind, "apiVersion": version, "metadata": {}, "items": items}


def _partial(item: Obj, form: Form) -> Obj:
    return {"kind": "PartialObjectMetadata", "apiVersion": form.meta_version, "metadata": item["metadata"]}


def _api_service() -> Obj:
    return {
        "apiVersion": f"{_REGISTRATION}/v1",
        "kind": "APIService",
        "metadata": {"name": _NAME, "labels": {"k8s-app": "metrics-server"}},
        "spec": {"group": GROUP, "version": VERSION, "groupPriorityMinimum": 100, "versionPriority": 100},
    }


async def serve_metrics(api: ApiResources, source: UsageSource) -> None:
    """Serve `metrics.k8s.io`, and create its APIService."""
    handlers = _MetricsHandlers(source, CacheReader(api))
    for resource, handler in ((NODES, handlers.nodes), (PODS, handlers.pods)):
        api.serve_computed(resource, handler)
    api.announce()
    await ensure(api, _REGISTRATION, "apiservices", _api_service())


async def retire_metrics(api: ApiResources) -> None:
    """Delete the APIService of an earlier run on the same store that served `metrics.k8s.io`."""
    left = current(api, _REGISTRATION, "apiservices", "", _NAME)
    if left is not None and "service" not in left.obj["spec"]:
        await delete(api, _REGISTRATION, "apiservices", left)
