"""Rules for every schema of a definition, at every depth, and for the defaults in schemas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from setpoint.kinds.apiextensions import Schema
from setpoint.kinds.apiextensions.internal_schema import RULE_FORM, SCHEMA_FIELDS, show_schema
from setpoint.kinds.apiextensions.rule_costs import (
    RULE_LIMIT,
    SCHEMA_LIMIT,
    TotalCost,
    cost_message,
    max_elements,
    times,
)
from setpoint.kinds.apiextensions.schema_paths import PathError, follow
from setpoint.kinds.apiextensions.schema_values import compile_schema, validate_value
from setpoint.kinds.apiextensions.structural import unsupported, validate_structural
from setpoint.kinds.internal_form import internal_form
from setpoint.meta.field import Errors, FieldError, forbidden, internal, invalid, not_supported, required

if TYPE_CHECKING:
    from setpoint.kinds.apiextensions.rule_validation import CompiledRule


META_FIELDS = ("apiVersion", "kind", "metadata")
_EMBEDDED, _PRESERVE = "x-kubernetes-embedded-resource", "x-kubernetes-preserve-unknown-fields"
_LIST_TYPE, _MAP_TYPE, _KEYS = "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-list-map-keys"
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


def has_unknown(value: Any, schema: Schema | None, embedded: bool = False) -> bool:
    """Return whether pruning by this schema would remove something."""
    if isinstance(value, dict):
        if schema is None:
            return bool(value)
        preserves = bool(schema.get(_PRESERVE))
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        embedded = embedded or bool(schema.get(_EMBEDDED))
        for key, item in value.items():
            if embedded and key in META_FIELDS:
                continue
            if key in properties:
                if has_unknown(item, properties[key]):
                    return True
            elif additional is not None:
                if has_unknown(item, additional if isinstance(additional, dict) else None):
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
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            if (embedded or schema.get(_EMBEDDED)) and key in ("apiVersion", "kind") and not isinstance(item, str):
                return invalid(f"{path}.{key}", item, "must be a string")
            if key in properties:
                inner.append((item, properties[key], f"{path}.{key}"))
            elif isinstance(additional, dict):
                inner.append((item, additional, f"{path}[{key}]"))
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
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            if key in properties:
                validate_embedded(item, properties[key], f"{path}.{key}", errs)
            elif isinstance(additional, dict):
                validate_embedded(item, additional, f"{path}[{key}]", errs)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            validate_embedded(item, schema.get("items"), f"{path}[{i}]", errs)


def validate_defaults(schema: Schema, path: str, errs: Errors) -> None:
    """Validate the defaults of a structural schema; other schemas have none."""
    _validate_default(schema, path, errs, inside_meta=False, root=True)


def _validate_default(schema: Schema, path: str, errs: Errors, inside_meta: bool, root: bool = False) -> None:
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
        _validate_default(schema["items"], f"{path}.items", errs, inside_meta)
    for key, item in (schema.get("properties") or {}).items():
        _validate_default(item, f"{path}.properties[{key}]", errs, inside_meta or (embedded and key in META_FIELDS))


def _validate_list_and_map_types(schema: Schema, path: str, errs: Errors) -> None:
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


_ROOT_FIELDS = (
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
)


@dataclass(frozen=True, slots=True)
class _Context:
    """The context of a schema: the properties that follow from its position."""

    root: bool = False
    no_defaults: str = ""
    """Reason why defaults are not allowed here; empty if they are."""
    inside_meta: bool = False
    rules: bool = True
    """Whether expressions are compiled: outside of conditions only."""
    uncorrelatable: str = ""
    """Outermost list or map whose old and new items cannot be correlated: inside it there is no `oldSelf`."""
    max_count: int | None = 1
    """Maximum number of such values in an object; None if it is unbounded."""


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """Facts about the stored definition, for ratcheting."""

    rules: frozenset[str] = frozenset()
    messages: frozenset[str] = frozenset()
    unchanged: bool = False
    """Whether the schema is unchanged: the cost of its rules is then not checked again."""


@dataclass(slots=True)
class _Rules:
    """The errors and the costs of the rules in a schema."""

    known: StoredFacts
    errs: Errors
    total: TotalCost


def validate_schema(
    schema: Schema, with_status: bool, path: str, errs: Errors, known: StoredFacts | None = None
) -> None:
    """Validate the whole schema of a version. `with_status` says that the version has a status subresource."""
    path = f"{path}.openAPIV3Schema"
    found: Errors = []
    if with_status:
        _validate_root_fields(schema, path, found)
    if schema.get("nullable"):
        found.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    not_structural = unsupported(schema)
    sound = not not_structural
    if sound:
        before = len(found)
        validate_structural(schema, path, found)
        if len(found) == before:
            validate_defaults(schema, path, found)
        sound = len(found) == before
    rules = _Rules(known or StoredFacts(), [], TotalCost())
    _validate(schema, path, _Context(root=True, rules=sound), found, rules)
    found += rules.errs
    if rules.total.total > SCHEMA_LIMIT:
        text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        found += [forbidden(at, text) for at in rules.total.most_expensive]
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        found.append(forbidden(path, cost_message(what, rules.total.total, SCHEMA_LIMIT)))
    if not found and not_structural:
        found.append(invalid(path, "", not_structural))
    errs.extend(found)


def _validate_root_fields(schema: Schema, path: str, errs: Errors) -> None:
    for name, go_name in SCHEMA_FIELDS.items():
        value = schema.get(name)
        if value is None or (value in (False, "", [], {}) and name not in ("default", "example")):
            continue
        if name == "type":
            if value != "object":
                text = (
                    'only "object" is allowed as the type at the root of the schema '
                    "if the status subresource is enabled"
                )
                errs.append(invalid(f"{path}.type", value, text))
                return
        elif go_name not in _ROOT_FIELDS:
            allowed = " ".join(_ROOT_FIELDS)
            text = f"only [{allowed}] fields are allowed at the root of the schema if the status subresource is enabled"
            errs.append(invalid(path, show_schema(schema), text))
            return


def _validate(schema: Schema, path: str, context: _Context, errs: Errors, rules: _Rules) -> None:
    before = len(errs)
    _validate_fields(schema, path, context, errs)
    additional, properties = schema.get("additionalProperties"), schema.get("properties") or {}
    factor = max_elements(schema)
    max_count = None if context.max_count is None or factor is None else times(context.max_count, factor)
    below = replace(context, root=False, max_count=max_count)
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errs.append(forbidden(f"{path}.uniqueItems", text))
    if additional is not None:
        if properties and additional is not True:
            text = "additionalProperties and properties are mutual exclusive"
            errs.append(forbidden(f"{path}.additionalProperties", text))
        if isinstance(additional, dict):
            why = context.no_defaults
            if context.inside_meta:
                why = "inside additionalProperties applying to object metadata"
            _validate(additional, f"{path}.additionalProperties", replace(below, no_defaults=why), errs, rules)
    for key, item in properties.items():
        inner = below
        if (context.root or schema.get(_EMBEDDED)) and key in META_FIELDS:
            inner = replace(inner, inside_meta=True)
            if context.root:
                inner = replace(inner, no_defaults=f"in top-level {key}")
        _validate(item, f"{path}.properties[{key}]", inner, errs, rules)
    condition = replace(below, rules=False)
    if schema.get("not") is not None:
        _validate(schema["not"], f"{path}.not", condition, errs, rules)
    for name in ("allOf", "oneOf", "anyOf"):
        for i, item in enumerate(schema.get(name) or ()):
            _validate(item, f"{path}.{name}[{i}]", condition, errs, rules)
    for key, item in (schema.get("definitions") or {}).items():
        _validate(item, f"{path}.definitions[{key}]", condition, errs, rules)
    items = schema.get("items")
    if schema.get("x-kubernetes-list-type") != "map":
        below = replace(below, uncorrelatable=context.uncorrelatable or path)
    if isinstance(items, dict):
        _validate(items, f"{path}.items", below, errs, rules)
    elif isinstance(items, list):
        for i, item in enumerate(items):
            _validate(item, f"{path}.items[{i}]", below, errs, rules)
    for key, item in (schema.get("dependencies") or {}).items():
        if isinstance(item, dict):
            _validate(item, f"{path}.dependencies[{key}]", condition, errs, rules)
    preserve = "x-kubernetes-preserve-unknown-fields"
    if schema.get(preserve) is False:
        errs.append(invalid(f"{path}.{preserve}", False, "must be true or undefined"))
    _validate_list_and_map_types(schema, path, errs)
    _validate_rules(schema, path, errs)
    if context.rules and len(errs) == before:
        _check_rules(schema, path, context, rules)


def _validate_fields(schema: Schema, path: str, context: _Context, errs: Errors) -> None:
    kind = schema.get("type", "")
    if kind and kind not in _TYPES:
        errs.append(not_supported(f"{path}.type", kind, _TYPES))
    if schema.get("default") is not None and context.no_defaults:
        errs.append(forbidden(f"{path}.default", f"must not be set {context.no_defaults}"))
    for name in ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"):
        if schema.get(name) not in (None, "", {}) or (name == "$ref" and schema.get(name) is not None):
            errs.append(forbidden(f"{path}.{name}", f"{name} is not supported"))
    if kind == "null":
        text = "type cannot be set to null, use nullable as an alternative"
        errs.append(forbidden(f"{path}.type", text))
    if isinstance(schema.get("items"), list):
        errs.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
    if context.inside_meta and schema.get(_EMBEDDED):
        errs.append(forbidden(f"{path}.{_EMBEDDED}", "must not be used inside of resource meta"))


def _has_line_breaks(text: str) -> bool:
    return "\n" in text or "\r" in text


def _validate_rules(schema: Schema, path: str, errs: Errors) -> None:
    for i, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        at = f"{path}.x-kubernetes-validations[{i}]"
        expression, message = rule.get("rule", ""), rule.get("message", "")
        message_expression, field_path = rule.get("messageExpression", ""), rule.get("fieldPath", "")
        if not expression.strip():
            errs.append(required(f"{at}.rule", "rule is not specified"))
        elif message and not message.strip():
            errs.append(invalid(f"{at}.message", message, "must be non-empty if specified"))
        elif _has_line_breaks(message.strip()):
            errs.append(invalid(f"{at}.message", message, "must not contain line breaks"))
        elif _has_line_breaks(expression.strip()) and not message.strip():
            errs.append(required(f"{at}.message", "message must be specified if rule contains line breaks"))
        if message_expression and not message_expression.strip():
            errs.append(required(f"{at}.messageExpression", "messageExpression must be non-empty if specified"))
        reason = rule.get("reason")
        if reason is not None and reason not in _REASONS:
            errs.append(not_supported(f"{at}.reason", reason, _REASONS))
        if field_path and not field_path.strip():
            errs.append(invalid(f"{at}.fieldPath", field_path, "must be non-empty if specified"))
        if _has_line_breaks(field_path):
            errs.append(invalid(f"{at}.fieldPath", field_path, "must not contain line breaks"))
        if field_path and not _is_declared(field_path, schema):
            errs.append(invalid(f"{at}.fieldPath", field_path, "must be a valid path"))


def _is_declared(path: str, schema: Schema) -> bool:
    if unsupported(schema):
        return True
    try:
        follow(path, schema)
    except PathError:
        return False
    return True


def _check_rules(schema: Schema, path: str, context: _Context, rules: _Rules) -> None:
    if not schema.get("x-kubernetes-validations"):
        return
    # Imported with the first rule, because the expression language is slow to import.
    from setpoint.kinds.apiextensions.rule_validation import compile_rules, self_type

    path = f"{path}.x-kubernetes-validations"
    declared = self_type(schema, context.root or bool(schema.get(_EMBEDDED)))
    if declared is None:
        why = "internal error: failed to construct type information for x-kubernetes-validations rules: "
        rules.errs.append(internal(path, f"{why}unable to convert structural schema to CEL declarations"))
        return
    known = rules.known
    compiled = compile_rules(schema, declared, known.rules.__contains__, known.messages.__contains__)
    # Each rule is freed after its check, because freeing all of them at once would hold the interpreter lock for long.
    compiled.reverse()
    for i in range(len(compiled)):
        _check_rule(compiled.pop(), f"{path}[{i}]", context, rules)


def _check_rule(compiled: CompiledRule, path: str, context: _Context, rules: _Rules) -> None:
    errs, rule = rules.errs, compiled.rule
    shown = internal_form(rule, RULE_FORM)
    cost = times(compiled.cost, compiled.max_values if context.max_count is None else context.max_count)
    if cost > RULE_LIMIT and not rules.known.unchanged:
        errs.append(forbidden(f"{path}.rule", cost_message("estimated rule cost", cost, RULE_LIMIT)))
    rules.total.add(f"{path}.rule", cost)
    if compiled.problem:
        errs.append(invalid(f"{path}.rule", shown, compiled.problem))
    if compiled.message_problem:
        errs.append(invalid(f"{path}.messageExpression", shown, compiled.message_problem))
    elif compiled.message is not None:
        cost = compiled.message_cost
        if cost > RULE_LIMIT and not rules.known.unchanged:
            text = cost_message("estimated messageExpression cost", cost, RULE_LIMIT)
            errs.append(forbidden(f"{path}.messageExpression", text))
        rules.total.add(f"{path}.messageExpression", cost)
    if compiled.uses_old_self:
        if context.uncorrelatable:
            text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {context.uncorrelatable}"
            errs.append(invalid(f"{path}.rule", rule.get("rule", ""), text))
    elif rule.get("optionalOldSelf") is not None:
        text = "may not be set if oldSelf is not used in rule"
        errs.append(invalid(f"{path}.optionalOldSelf", rule["optionalOldSelf"], text))
