"""Reads of `metrics.k8s.io`: the nodes and Pods that there are, with the latest sample of what they use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from setpoint.apiserver.call import Call
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.metrics_api.objects import GROUP, NODES, PODS, metrics_table, node_metrics, pod_metrics
from setpoint.apiserver.metrics_api.source import Sample, UsageSource
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import include_object, respond_value
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import BadRequest, NotAcceptable, NotFound
from setpoint.meta.selectors import SelectorError, parse_fields, parse_labels

Obj = dict[str, Any]
Make = Callable[[Mapping[str, Any], Sample, datetime], Obj | None]

_FIELDS = ("metadata.name", "metadata.namespace")


class MetricsHandlers:
    def __init__(self, source: UsageSource, reader: CacheReader) -> None:
        self._source = source
        self._reader = reader

    async def nodes(self, call: Call, _: Registry, form: Form) -> Answer:
        return await self._answer(call, form, NODES, node_metrics)

    async def pods(self, call: Call, _: Registry, form: Form) -> Answer:
        return await self._answer(call, form, PODS, pod_metrics)

    async def _answer(self, call: Call, form: Form, resource: Resource, make: Make) -> Answer:
        sample = await self._source.sample()
        if call.target.name:
            return self._one(call, form, resource, make, sample)
        return self._list(call, form, resource, make, sample)

    def _one(self, call: Call, form: Form, resource: Resource, make: Make, sample: Sample) -> Answer:
        namespace, name = call.target.namespace, call.target.name
        about = self._reader.get("", resource.plural, namespace, name)
        if about is None:
            raise NotFound.of("", resource.plural, name)
        item = make(about, sample, call.now)
        if item is None:
            raise NotFound.of(GROUP, resource.plural, f"{namespace}/{name}" if namespace else name)
        if form.transform == "Table":
            return self._table(call, form, resource, [item])
        if form.transform == "PartialObjectMetadata":
            return respond_value(call, form, _partial(item, form))
        if form.transform:
            raise NotAcceptable(f"you requested {form.transform}, but the requested object is not a list")
        return respond_value(call, form, {"kind": resource.kind, "apiVersion": resource.api_version, **item})

    def _list(self, call: Call, form: Form, resource: Resource, make: Make, sample: Sample) -> Answer:
        try:
            labels = parse_labels(call.option("labelSelector"))
            fields = parse_fields(call.option("fieldSelector"))
        except SelectorError as error:
            raise BadRequest(str(error)) from None
        for requirement in fields.requirements:
            if requirement.key not in _FIELDS:
                raise BadRequest(f"field label not supported: {requirement.key}")
        items = []
        for about in self._reader.list("", resource.plural, call.target.namespace):
            meta = about["metadata"]
            place = {"metadata.name": meta["name"], "metadata.namespace": meta.get("namespace", "")}
            if labels.matches(meta.get("labels") or {}) and fields.matches(place):
                item = make(about, sample, call.now)
                if item is not None:
                    items.append(item)
        if form.transform == "Table":
            return self._table(call, form, resource, items)
        if form.transform:
            kind, version = "PartialObjectMetadataList", form.meta_version
            return respond_value(call, form, _listed(kind, version, [_partial(item, form) for item in items]))
        return respond_value(call, form, _listed(resource.list_kind, resource.api_version, items))

    @staticmethod
    def _table(call: Call, form: Form, resource: Resource, items: list[Obj]) -> Answer:
        return respond_value(call, form, metrics_table(items, resource, {}, form.meta_version, include_object(call)))


def _listed(kind: str, version: str, items: list[Obj]) -> Obj:
    return {"kind": kind, "apiVersion": version, "metadata": {}, "items": items}


def _partial(item: Obj, form: Form) -> Obj:
    return {"kind": "PartialObjectMetadata", "apiVersion": form.meta_version, "metadata": item["metadata"]}
