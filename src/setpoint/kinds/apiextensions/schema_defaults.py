"""Defaults in schemas must themselves be valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.apiextensions.schema_values import compile_schema, validate_value
from setpoint.meta.field import Errors, FieldError, invalid, required

Schema = Mapping[str, Any]
META_FIELDS = ("apiVersion", "kind", "metadata")
_EMBEDDED, _PRESERVE = "x-kubernetes-embedded-resource", "x-kubernetes-preserve-unknown-fields"


def has_unknown(value: Any, schema: Schema | None, embedded: bool = False) -> bool:
    """Return whether pruning by this schema would remove something."""
    if isinstance(value, dict):
        if schema is None:
            return bool(value)
        preserves = bool(schema.get(_PRESERVE))
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        embedded = embedded or bool(schema.get(_EMBEDDED))
        for key, item in value.items():
            if embedded and key in META_FIELDS:
                continue
            if key in properties:
                if has_unknown(item, properties[key]):
                    return True
            elif others is not None:
                if has_unknown(item, others if isinstance(others, dict) else None):
                    return True
            elif not preserves:
                return True
        return False
    if isinstance(value, list):
        items = schema.get("items") if schema is not None else None
        if schema is not None and schema.get(_PRESERVE) and items is None:
            return False
        return any(has_unknown(item, items) for item in value)
    return False


def _type_error(value: Any, schema: Schema | None, path: str, embedded: bool = False) -> FieldError | None:
    """Return the error for the first kind or apiVersion of an embedded object that is not a string."""
    if schema is None:
        return None
    inner: list[tuple[Any, Schema | None, str]] = []
    if isinstance(value, dict):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            if (embedded or schema.get(_EMBEDDED)) and key in ("apiVersion", "kind") and not isinstance(item, str):
                return invalid(f"{path}.{key}", item, "must be a string")
            if key in properties:
                inner.append((item, properties[key], f"{path}.{key}"))
            elif isinstance(others, dict):
                inner.append((item, others, f"{path}[{key}]"))
    elif isinstance(value, list):
        inner = [(item, schema.get("items"), f"{path}[{i}]") for i, item in enumerate(value)]
    return next((error for part in inner if (error := _type_error(*part))), None)


def validate_embedded(value: Any, schema: Schema | None, path: str, errs: Errors, embedded: bool = False) -> None:
    """Validate that embedded objects have a kind and an apiVersion."""
    if schema is None:
        return
    if isinstance(value, dict):
        if embedded or schema.get(_EMBEDDED):
            for name in ("apiVersion", "kind"):
                if name not in value:
                    errs.append(required(f"{path}.{name}"))
                elif not value[name]:
                    errs.append(invalid(f"{path}.{name}", "", "must not be empty"))
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            if key in properties:
                validate_embedded(item, properties[key], f"{path}.{key}", errs)
            elif isinstance(others, dict):
                validate_embedded(item, others, f"{path}[{key}]", errs)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            validate_embedded(item, schema.get("items"), f"{path}[{i}]", errs)


def validate_defaults(schema: Schema, path: str, errs: Errors) -> None:
    """Validate the defaults of a structural schema; other schemas have none."""
    _validate(schema, path, errs, inside_meta=False, root=True)


def _validate(schema: Schema, path: str, errs: Errors, inside_meta: bool, root: bool = False) -> None:
    embedded = root or bool(schema.get(_EMBEDDED))
    inside_meta = inside_meta and not embedded
    default, at = schema.get("default"), f"{path}.default"
    if default is not None:
        if not inside_meta and has_unknown(default, schema, root):
            errs.append(invalid(at, default, "must not have unknown fields"))
        before = len(errs)
        if not inside_meta:
            if error := _type_error(default, schema, at, root):
                errs.append(error)
            else:
                validate_embedded(default, schema, at, errs, root)
        if len(errs) == before:
            validate_value(compile_schema(schema, of_default=True), default, at, errs)
    if isinstance(schema.get("items"), dict):
        _validate(schema["items"], f"{path}.items", errs, inside_meta)
    for key, item in (schema.get("properties") or {}).items():
        _validate(item, f"{path}.properties[{key}]", errs, inside_meta or (embedded and key in META_FIELDS))
