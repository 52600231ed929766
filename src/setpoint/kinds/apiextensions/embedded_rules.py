"""Whole objects inside objects: they have a kind and a version, and metadata as any object has."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.apiextensions.value_walk import Rule, Schema
from setpoint.meta.field import Errors, invalid, required
from setpoint.meta.names import dns1035_label, path_segment, path_segment_prefix
from setpoint.meta.objectmeta import validate_object_meta


def embedded_rule(schema: Schema) -> Rule | None:
    return validate_embedded if schema.get("x-kubernetes-embedded-resource") else None


def validate_embedded(value: Any, path: str, errs: Errors) -> None:
    if value.__class__ is not dict:
        return
    at = f"{path}." if path else ""
    for name in ("apiVersion", "kind"):
        if name not in value:
            errs.append(required(f"{at}{name}"))
    for name, check in (("apiVersion", _version_problem), ("kind", _kind_problem)):
        if name in value:
            given = value[name]
            if text := check(given) if isinstance(given, str) else "must be a string":
                errs.append(invalid(f"{at}{name}", given, text))
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        # A name is not asked for.
        named = metadata if metadata.get("name") else {**metadata, "name": "fakename"}
        validate_object_meta(named, bool(metadata.get("namespace")), _segment, f"{at}metadata", errs)


def _version_problem(given: str) -> str:
    if not given:
        return "must not be empty"
    return f"unexpected GroupVersion string: {given}" if given.count("/") > 1 else ""


def _kind_problem(given: str) -> str:
    if not given:
        return "must not be empty"
    texts = dns1035_label(given.lower())
    return "may have mixed case, but should otherwise match: " + ",".join(texts) if texts else ""


def _segment(name: str, prefix: bool) -> list[str]:
    return path_segment_prefix(name) if prefix else path_segment(name)
