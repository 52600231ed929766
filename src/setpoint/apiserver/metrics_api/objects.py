"""NodeMetrics and PodMetrics, and the rows in which they are shown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from setpoint.apiserver.metrics_api.source import Sample, Used
from setpoint.kinds.catalog import Resource
from setpoint.meta.quantity import BINARY, of_nano, of_value, parse
from setpoint.meta.times import format_duration, format_time

Obj = dict[str, Any]

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
_READ = ("get", "list")
NODES = Resource(GROUP, VERSION, "NodeMetrics", "nodes", namespaced=False, verbs=_READ)
PODS = Resource(GROUP, VERSION, "PodMetrics", "pods", verbs=_READ)


def node_metrics(node: Mapping[str, Any], sample: Sample, now: datetime) -> Obj | None:
    """None: nothing is known of it."""
    used = sample.nodes.get(node["metadata"]["name"])
    if used is None:
        return None
    return {
        "metadata": _metadata(node, now),
        "timestamp": _stamp(sample.at),
        "window": _duration(sample.window),
        "usage": _usage(used),
    }


def pod_metrics(pod: Mapping[str, Any], sample: Sample, now: datetime) -> Obj | None:
    found = sample.pods.get(pod["metadata"]["uid"])
    if found is None:
        return None
    return {
        "metadata": _metadata(pod, now),
        "timestamp": _stamp(sample.at),
        "window": _duration(found.window),
        "containers": [{"name": name, "usage": _usage(used)} for name, used in found.containers.items()],
    }


def _metadata(about: Mapping[str, Any], now: datetime) -> Obj:
    meta = about["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace") if key in meta}
    labels = {"labels": dict(meta["labels"])} if meta.get("labels") else {}
    return {**kept, "creationTimestamp": _stamp(now), **labels}


def _usage(used: Used) -> Obj:
    return dict(_written(used))


# Many Pods use the same, and all were measured at the same time.


@lru_cache(maxsize=1024)
def _written(used: Used) -> Obj:
    return {"cpu": of_nano(used.cpu_nano).text, "memory": of_value(used.memory_bytes, BINARY).text}


_stamp = lru_cache(maxsize=16)(format_time)


@lru_cache(maxsize=1024)
def _duration(seconds: float) -> str:
    return format_duration(round(seconds * 1000) * 1_000_000)


# -- tables -----------------------------------------------------------------------------------------------------------


def metrics_table(items: Iterable[Obj], resource: Resource, meta: Obj, form_version: str, include: str) -> Obj:
    """Name, what is used, and over which time: as the metrics server prints it."""
    rows, names = [], ["cpu", "memory"]
    for item in items:
        usage = item["usage"] if "usage" in item else total(item["containers"])
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


def total(containers: Iterable[Obj]) -> Obj:
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
