"""The fields of a kind, from the OpenAPI document of its group: for completion, documentation and suggestions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from setpoint.meta.yaml_places import FieldPath

_MAX_REFERENCES = 8
_KINDS = "x-kubernetes-group-version-kind"


class SchemaField(NamedTuple):
    """A field that an object may have at some place."""

    name: str
    type: str
    """The type of its value: `string`, `integer`, `[]Container`, `map[string]string`, `DeploymentSpec`."""
    required: bool
    description: str
    has_fields: bool
    """Whether its value has fields of its own, or items that have."""
    is_list: bool
    values: tuple[str, ...] = ()
    """The values that are allowed; empty means any."""


class KindSchema:
    """The schema of one kind."""

    def __init__(self, document: Mapping[str, Any], group: str, version: str, kind: str) -> None:
        """`document` is the OpenAPI document (version 3) of the group and version."""
        self._schemas: Mapping[str, Any] = (document.get("components") or {}).get("schemas") or {}
        wanted = {"group": group, "version": version, "kind": kind}
        self._root = next((each for each in self._schemas.values() if wanted in (each.get(_KINDS) or ())), None)

    @property
    def found(self) -> bool:
        return self._root is not None

    def fields(self, path: FieldPath) -> list[SchemaField]:
        """Return the fields that are allowed in the value at a path, sorted by name."""
        schema = self._at(path)
        properties = schema.get("properties") or {}
        required = schema.get("required") or ()
        return [self._field(name, properties[name], name in required) for name in sorted(properties)]

    def field(self, path: FieldPath) -> SchemaField | None:
        """Return the field at a path; None if the schema does not know it."""
        name = next((each for each in reversed(path) if isinstance(each, str)), "")
        outer = path[: len(path) - path[::-1].index(name) - 1] if name else ()
        return next((each for each in self.fields(outer) if each.name == name), None)

    def close_names(self, path: FieldPath) -> list[str]:
        """Return names of fields that the last name of a path may be a misspelling of."""
        *outer, name = path
        names = [each.name for each in self.fields(tuple(outer))]
        return get_close_matches(str(name), names, 2, 0.6)

    def _at(self, path: Sequence[str | int]) -> Mapping[str, Any]:
        schema = self._resolved(self._root or {})
        for step in path:
            if isinstance(step, int):
                schema = self._resolved(schema.get("items") or {})
                continue
            inner = (schema.get("properties") or {}).get(step)
            if inner is None:
                rest = schema.get("additionalProperties")
                inner = rest if isinstance(rest, Mapping) else {}
            schema = self._resolved(inner)
        return schema

    def _field(self, name: str, schema: Mapping[str, Any], required: bool) -> SchemaField:
        resolved = self._resolved(schema)
        items = self._resolved(resolved.get("items") or {})
        description = schema.get("description") or resolved.get("description") or ""
        return SchemaField(
            name,
            self._type(schema),
            required,
            str(description),
            bool(resolved.get("properties") or items.get("properties")),
            resolved.get("type") == "array",
            tuple(str(each) for each in resolved.get("enum") or items.get("enum") or ()),
        )

    def _type(self, schema: Mapping[str, Any]) -> str:
        if name := _referenced(schema):
            return name.rpartition(".")[2]
        resolved = self._resolved(schema)
        kind = str(resolved.get("type") or "object")
        if kind == "array":
            return f"[]{self._type(resolved.get('items') or {})}"
        extra = resolved.get("additionalProperties")
        if kind == "object" and isinstance(extra, Mapping):
            return f"map[string]{self._type(extra)}"
        if resolved.get("x-kubernetes-int-or-string") or resolved.get("format") == "int-or-string":
            return "integer or string"
        return kind

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        for _ in range(_MAX_REFERENCES):
            name = _referenced(schema)
            if not name:
                break
            schema = self._schemas.get(name) or {}
        return schema


def _referenced(schema: Mapping[str, Any]) -> str:
    """Return the name of the schema that this one refers to; empty if it does not."""
    for each in (schema, *_parts(schema)):
        if reference := each.get("$ref"):
            return str(reference).rpartition("/")[2]
    return ""


def _parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for each in schema.get("allOf") or ():
        if isinstance(each, Mapping):
            yield each
