"""Complete schemas of kinds from the OpenAPI documents, with references resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from setpoint.client.client import Client
from setpoint.controllers.policy_status.matched_kinds import GroupVersionKind
from setpoint.meta.cel import SchemaType, schema_type
from setpoint.meta.errors import NotFound

_PREFIX: Final = "#/components/schemas/"
_KINDS: Final = "x-kubernetes-group-version-kind"
_CIRCULAR: Final = {"type": "object"}
Schemas = Mapping[str, Mapping[str, Any]]


class SchemaSource:
    """A schema source for one check of one policy. Documents are large and not retained longer than that."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._documents: dict[str, Schemas] = {}

    async def type_of(self, kind: GroupVersionKind, name: str) -> tuple[bool, SchemaType | None]:
        """Return whether the schema is known, and its CEL type with this name."""
        schemas = await self._schemas(kind)
        for reference, schema in schemas.items():
            if any(_is(each, kind) for each in schema.get(_KINDS) or ()):
                return True, schema_type(resolved(schemas, schema, (reference,)), name=name, root=True)
        return False, None

    async def _schemas(self, kind: GroupVersionKind) -> Schemas:
        place = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
        if place not in self._documents:
            try:
                document = await self._client.sender.json("GET", f"/openapi/v3/{place}")
            except NotFound:
                document = {}
            self._documents[place] = (document.get("components") or {}).get("schemas") or {}
        return self._documents[place]


def _is(named: Mapping[str, Any], kind: GroupVersionKind) -> bool:
    return (named.get("group") or "", named.get("version"), named.get("kind")) == kind


def resolved(schemas: Schemas, schema: Mapping[str, Any], seen: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the schema with references resolved. A recursive reference becomes an object of unknown type. `seen` are
    the references that led here."""
    reference = _reference(schema)
    if reference is not None:
        if reference in seen:
            return _CIRCULAR
        schema, seen = schemas.get(reference) or {}, (*seen, reference)
    whole = dict(schema)
    if whole.get("format") == "int-or-string":
        whole["x-kubernetes-int-or-string"] = True
    if isinstance(properties := whole.get("properties"), Mapping):
        whole["properties"] = {name: resolved(schemas, each, seen) for name, each in properties.items()}
    for part in ("additionalProperties", "items"):
        if isinstance(whole.get(part), Mapping):
            whole[part] = resolved(schemas, whole[part], seen)
    return whole


def _reference(schema: Mapping[str, Any]) -> str | None:
    """Return the reference of a schema, also one wrapped to carry a description or default."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_PREFIX)
    for part in schema.get("allOf") or ():
        found = _reference(part)
        if found is not None:
            return found
    return None
