"""Merge rules of lists and maps: sets, keyed lists, atomic values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.apiextensions.internal_schema import show_schema
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required

Schema = Mapping[str, Any]
_LIST_TYPE, _MAP_TYPE, _KEYS = "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-list-map-keys"


def validate_list_and_map_types(schema: Schema, path: str, errs: Errors) -> None:
    list_type, map_type, keys = schema.get(_LIST_TYPE), schema.get(_MAP_TYPE), schema.get(_KEYS) or ()
    if map_type is not None:
        _require_type("object", _MAP_TYPE, schema, path, errs)
        if map_type not in ("atomic", "granular"):
            errs.append(not_supported(f"{path}.{_MAP_TYPE}", map_type, ("atomic", "granular")))
    items = schema.get("items")
    if list_type is not None:
        if schema.get("type", "") != "array":
            _require_type("array", _LIST_TYPE, schema, path, errs)
        elif list_type == "set" and isinstance(items, dict):
            _validate_set_items(items, f"{path}.items", errs)
        if list_type not in ("atomic", "set", "map"):
            errs.append(not_supported(f"{path}.{_LIST_TYPE}", list_type, ("atomic", "set", "map")))
    if keys and list_type != "map":
        text = f"must be map if {_KEYS} is non-empty"
        at = f"{path}.{_LIST_TYPE}"
        errs.append(required(at, text) if list_type is None else invalid(at, list_type, text))
    if list_type == "map":
        _validate_keyed(schema, path, errs)
    if list_type in ("set", "map") and isinstance(items, dict):
        _validate_items_present(items, list_type, keys, f"{path}.items", errs)


def _require_type(wanted: str, because: str, schema: Schema, path: str, errs: Errors) -> None:
    kind, text = schema.get("type", ""), f"must be {wanted} if {because} is specified"
    if not kind:
        errs.append(required(f"{path}.type", text))
    elif kind != wanted:
        errs.append(invalid(f"{path}.type", kind, text))


def _validate_set_items(items: Schema, path: str, errs: Errors) -> None:
    text = f"must be atomic as item of a list with {_LIST_TYPE}=set"
    kind, list_type = items.get("type", ""), items.get(_LIST_TYPE)
    if kind == "array" and list_type not in (None, "atomic"):
        errs.append(invalid(f"{path}.{_LIST_TYPE}", list_type, text))
    elif kind == "object" and items.get(_MAP_TYPE) != "atomic":
        errs.append(invalid(f"{path}.{_MAP_TYPE}", list_type, text))


def _validate_keyed(schema: Schema, path: str, errs: Errors) -> None:
    keys, items = schema.get(_KEYS) or [], schema.get("items")
    if not keys:
        errs.append(required(f"{path}.{_KEYS}", f"must not be empty if {_LIST_TYPE} is map"))
    if items is None:
        errs.append(required(f"{path}.items", f"must have a schema if {_LIST_TYPE} is map"))
    elif isinstance(items, list):
        shown = {"Schema": None, "JSONSchemas": [show_schema(item) for item in items]}
        errs.append(invalid(f"{path}.items", shown, f"must only have a single schema if {_LIST_TYPE} is map"))
    elif items.get("type", "") != "object":
        text = f"must be object if parent array's {_LIST_TYPE} is map"
        errs.append(invalid(f"{path}.items.type", items.get("type", ""), text))
    else:
        properties = items.get("properties") or {}
        for i, key in enumerate(keys):
            if key not in properties:
                errs.append(invalid(f"{path}.{_KEYS}", keys, "entries must all be names of item properties"))
            elif properties[key].get("type") in ("array", "object"):
                at = f"{path}.items.properties[{key}].type"
                text = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
                errs.append(invalid(at, items["type"], text))
            if key in keys[:i]:
                errs.append(invalid(f"{path}.{_KEYS}", keys, "must not contain duplicate entries"))


def _validate_items_present(items: Schema, list_type: str, keys: Any, path: str, errs: Errors) -> None:
    if items.get("nullable"):
        errs.append(forbidden(f"{path}.nullable", f"cannot be nullable when {_LIST_TYPE} is {list_type}"))
    if list_type != "map":
        return
    properties, needed = items.get("properties") or {}, items.get("required") or ()
    for key in keys:
        if key not in properties:
            continue
        at, because = f"{path}.properties[{key}]", f"this property is in {_KEYS}, so it"
        if key not in needed and properties[key].get("default") is None:
            errs.append(required(f"{at}.default", f"{because} must have a default or be a required property"))
        if properties[key].get("nullable"):
            errs.append(forbidden(f"{at}.nullable", f"{because} cannot be nullable"))
