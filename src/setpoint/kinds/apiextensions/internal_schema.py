"""Definitions as messages show them: in the form of upstream's internal types."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.internal_form import internal_form, items, pointer
from setpoint.meta.objects import Obj, ObjView


def _schema(value: Any) -> Any:
    return None if value is None else show_schema(value)


def _schemas(values: Any) -> Any:
    return [show_schema(value) for value in values] if values else None


def _by_name(values: Any) -> Any:
    return {key: show_schema(values[key]) for key in sorted(values)} if values else None


def _items(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return {"Schema": None, "JSONSchemas": _schemas(value)}
    return {"Schema": show_schema(value), "JSONSchemas": None}


def _or_bool(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bool):
        return {"Allows": value, "Schema": None}
    return {"Allows": True, "Schema": show_schema(value)}


RULE_FORM = {
    "rule": "",
    "message": "",
    "messageExpression": "",
    "reason": None,
    "fieldPath": "",
    "optionalOldSelf": None,
}
_SCHEMA_FORM = {
    "id=ID": "",
    "$schema=Schema": "",
    "$ref=Ref": None,
    "description": "",
    "type": "",
    "nullable": False,
    "format": "",
    "title": "",
    "default": None,
    "maximum": None,
    "exclusiveMaximum": False,
    "minimum": None,
    "exclusiveMinimum": False,
    "maxLength": None,
    "minLength": None,
    "pattern": "",
    "maxItems": None,
    "minItems": None,
    "uniqueItems": False,
    "multipleOf": None,
    "enum": None,
    "maxProperties": None,
    "minProperties": None,
    "required": None,
    "items": _items,
    "allOf": _schemas,
    "oneOf": _schemas,
    "anyOf": _schemas,
    "not": _schema,
    "properties": _by_name,
    "additionalProperties": _or_bool,
    "patternProperties": _by_name,
    "dependencies": None,
    "additionalItems": _or_bool,
    "definitions": _by_name,
    "externalDocs": pointer({"description": "", "url=URL": ""}),
    "example": None,
    "x-kubernetes-preserve-unknown-fields=XPreserveUnknownFields": None,
    "x-kubernetes-embedded-resource=XEmbeddedResource": False,
    "x-kubernetes-int-or-string=XIntOrString": False,
    "x-kubernetes-list-map-keys=XListMapKeys": None,
    "x-kubernetes-list-type=XListType": None,
    "x-kubernetes-map-type=XMapType": None,
    "x-kubernetes-validations=XValidations": items(RULE_FORM),
}
SCHEMA_FIELDS = {
    name: go_name or name[0].upper() + name[1:] for name, _, go_name in (field.partition("=") for field in _SCHEMA_FORM)
}
"""Go's names of a schema's fields, in Go's order."""

_VERSION_FORM = {
    "name": "",
    "served": False,
    "storage": False,
    "deprecated": False,
    "deprecationWarning": None,
    "schema": pointer({"openAPIV3Schema": _schema}),
    "subresources": pointer(
        {
            "status": pointer({}),
            "scale": pointer({"specReplicasPath": "", "statusReplicasPath": "", "labelSelectorPath": None}),
        }
    ),
    "additionalPrinterColumns": items(
        {
            "name": "",
            "type": "",
            "format": "",
            "description": "",
            "priority": 0,
            "jsonPath=JSONPath": "",
        }
    ),
    "selectableFields": items({"jsonPath=JSONPath": ""}),
}


def show_schema(schema: ObjView) -> Obj:
    return internal_form(schema, _SCHEMA_FORM)


def show_versions(versions: list[Obj]) -> list[Obj]:
    return [internal_form(version, _VERSION_FORM) for version in versions]
