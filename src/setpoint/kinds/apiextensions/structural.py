"""Structural schemas: the type of every field is specified outside of conditions, which can only constrain it.

Checks use the schema as written. Everything inside `allOf`, `anyOf`, `oneOf` or `not` is a condition.
"""

from __future__ import annotations

from setpoint.kinds.apiextensions import Schema
from setpoint.kinds.apiextensions.schema_scalars import pattern_error
from setpoint.meta.field import Errors, forbidden, invalid, required

_ROOT, _ITEM, _FIELD = "at the root", "for specified array items", "for specified object fields"
_UNSUPPORTED = ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_EMBEDDED, _PRESERVE = "x-kubernetes-embedded-resource", "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING_FLAG = "x-kubernetes-int-or-string"
_FORBIDDEN_IN_CONDITIONS = (
    ("default", "must be undefined"),
    ("title", "must be empty"),
    ("description", "must be empty"),
    ("nullable", "must be false"),
    (_PRESERVE, "must be false"),
    (_EMBEDDED, "must be false"),
    (_INT_OR_STRING_FLAG, "must be false"),
    ("x-kubernetes-list-map-keys", "must be empty"),
    ("x-kubernetes-list-type", "must be undefined"),
    ("x-kubernetes-map-type", "must be undefined"),
    ("x-kubernetes-validations", "must be empty"),
)


def parts(schema: Schema) -> list[Schema]:
    """Return the schemas directly inside this one."""
    found: list[Schema] = []
    for name in ("allOf", "anyOf", "oneOf"):
        found += schema.get(name) or ()
    for name in ("not", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            found.append(schema[name])
    items = schema.get("items")
    found += items if isinstance(items, list) else [items] if isinstance(items, dict) else []
    found += (schema.get("properties") or {}).values()
    return found


def unsupported(schema: Schema) -> str:
    """Return why this cannot be a structural schema at all; empty: it can."""
    for name in _UNSUPPORTED:
        if schema.get(name) not in (None, "", {}, []):
            return f"OpenAPIV3Schema '{name.removeprefix('$') if name == '$schema' else name}' is not supported"
    if schema.get(_PRESERVE) is False:
        return f"internal error: '{_PRESERVE}' must be true or undefined"
    if isinstance(schema.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    for part in parts(schema):
        if text := unsupported(part):
            return text
    return ""


def validate_structural(schema: Schema, path: str, errs: Errors) -> None:
    found: Errors = []
    _invariants(schema, _ROOT, path, found)
    _complete_conditions(schema, schema, path, path, found)
    errs.extend(sorted(found, key=lambda error: error.message()))


def _invariants(schema: Schema, level: str, path: str, errs: Errors) -> None:
    kind, items, additional = schema.get("type", ""), schema.get("items"), schema.get("additionalProperties")
    properties, embedded = schema.get("properties") or {}, schema.get(_EMBEDDED)
    if kind == "array" and items is None:
        errs.append(required(f"{path}.items", "must be specified"))
    if items is not None:
        _invariants(items, _ITEM, f"{path}.items", errs)
    for key, item in properties.items():
        _invariants(item, _FIELD, f"{path}.properties[{key}]", errs)
    if additional is not None:
        if level is _ROOT:
            errs.append(forbidden(f"{path}.additionalProperties", "must not be used at the root"))
        if isinstance(additional, dict):
            _invariants(additional, _FIELD, f"{path}.additionalProperties", errs)
    if schema.get(_INT_OR_STRING_FLAG):
        for name in (_PRESERVE, _EMBEDDED):
            if schema.get(name):
                errs.append(invalid(f"{path}.{name}", True, f"must be false if {_INT_OR_STRING_FLAG} is true"))
    first_all_of = (schema.get("allOf") or [{}])[0]
    _conditions(
        schema,
        path,
        errs,
        skip_any_of=schema.get("anyOf") == _INT_OR_STRING,
        skip_first_all_of=first_all_of.get("anyOf") == _INT_OR_STRING,
    )
    if embedded and kind != "object":
        text = f"must be object if {_EMBEDDED} is true"
        errs.append(invalid(f"{path}.type", kind, text) if kind else required(f"{path}.type", text))
    elif not kind and not schema.get(_INT_OR_STRING_FLAG) and not schema.get(_PRESERVE):
        errs.append(required(f"{path}.type", f"must not be empty {level}"))
    if embedded and additional is not None:
        errs.append(forbidden(f"{path}.additionalProperties", f"must not be used if {_EMBEDDED} is set"))
    if level is _ROOT and kind and kind != "object":
        errs.append(invalid(f"{path}.type", kind, "must be object at the root"))
    if level is _ROOT or embedded:
        for name in ("kind", "apiVersion"):
            if name in properties and properties[name].get("type", "") != "string":
                at = f"{path}.properties[{name}].type"
                errs.append(invalid(at, properties[name].get("type", ""), "must be string"))
    if "metadata" in properties:
        at, metadata = f"{path}.properties[metadata]", properties["metadata"]
        if (level is _ROOT or embedded) and metadata.get("type", "") != "object":
            errs.append(invalid(f"{at}.type", metadata.get("type", ""), "must be object"))
        if level is _ROOT and _has_other_constraints(metadata):
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            errs.append(forbidden(at, text))
    if embedded and not schema.get(_PRESERVE) and not properties:
        text = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
        errs.append(required(f"{path}.properties", text))


def _has_other_constraints(metadata: Schema) -> bool:
    rest = {name for name in metadata if name not in ("type", "default")}
    if set(metadata.get("properties") or ()) <= {"name", "generateName"}:
        rest.discard("properties")
    return bool(rest)


def _conditions(
    schema: Schema, path: str, errs: Errors, skip_any_of: bool = False, skip_first_all_of: bool = False
) -> None:
    if not skip_any_of:
        for i, condition in enumerate(schema.get("anyOf") or ()):
            _condition(condition, f"{path}.anyOf[{i}]", errs)
    for i, condition in enumerate(schema.get("allOf") or ()):
        _condition(condition, f"{path}.allOf[{i}]", errs, skip_any_of=skip_first_all_of and i == 0)
    for i, condition in enumerate(schema.get("oneOf") or ()):
        _condition(condition, f"{path}.oneOf[{i}]", errs)
    if schema.get("not") is not None:
        _condition(schema["not"], f"{path}.not", errs)
    pattern = schema.get("pattern")
    if pattern and (text := pattern_error(pattern)):
        errs.append(invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {text}"))


def _condition(condition: Schema, path: str, errs: Errors, skip_any_of: bool = False) -> None:
    _conditions(condition, path, errs, skip_any_of=skip_any_of)
    if condition.get("items") is not None:
        _condition(condition["items"], f"{path}.items", errs)
    properties = condition.get("properties") or {}
    for key, item in properties.items():
        _condition(item, f"{path}.properties[{key}]", errs)
    if condition.get("type"):
        errs.append(forbidden(f"{path}.type", "must be empty to be structural"))
    if condition.get("additionalProperties") not in (None, False):
        errs.append(forbidden(f"{path}.additionalProperties", "must be undefined to be structural"))
    for name, text in _FORBIDDEN_IN_CONDITIONS:
        value = condition.get(name)
        if value is not None and (name == "default" or value not in (False, "", [], {})):
            errs.append(forbidden(f"{path}.{name}", f"{text} to be structural"))
    if "metadata" in properties:
        errs.append(forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context"))


def _complete_conditions(condition: Schema, schema: Schema, path: str, condition_path: str, errs: Errors) -> None:
    """Validate that the fields of a condition are specified outside of conditions too."""
    if condition.get("not") is not None:
        _complete(condition["not"], schema, path, f"{condition_path}.not", errs)
    for name in ("allOf", "anyOf", "oneOf"):
        for i, item in enumerate(condition.get(name) or ()):
            _complete(item, schema, path, f"{condition_path}.{name}[{i}]", errs)


def _complete(condition: Schema, schema: Schema | None, path: str, condition_path: str, errs: Errors) -> None:
    if schema is None:
        errs.append(required(path, f"because it is defined in {condition_path}"))
        return
    _complete_conditions(condition, schema, path, condition_path, errs)
    if condition.get("items") is not None:
        _complete(condition["items"], schema.get("items"), f"{path}.items", f"{condition_path}.items", errs)
    properties = schema.get("properties") or {}
    for key, item in (condition.get("properties") or {}).items():
        at, from_condition = f"{path}.properties[{key}]", f"{condition_path}.properties[{key}]"
        _complete(item, properties.get(key), at, from_condition, errs)
