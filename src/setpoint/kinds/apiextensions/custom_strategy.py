"""The Type and the Strategy of one version of a custom resource, built from the schema of its definition.

The rules of `compile_walk` apply to some places of a schema (unique list items and keys, embedded objects); they are
compiled to a walk that visits only what leads to those places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from setpoint.kinds.apiextensions import Schema
from setpoint.kinds.apiextensions.correlation import Correlated
from setpoint.kinds.apiextensions.printer_columns import is_missing, path_finder, printer_columns
from setpoint.kinds.apiextensions.rule_costs import has_rules
from setpoint.kinds.apiextensions.scale_rules import ScalePaths
from setpoint.kinds.apiextensions.schema_values import compile_schema, validate_value
from setpoint.kinds.strategy import Context, Strategy
from setpoint.kinds.tables import type_of
from setpoint.meta.field import Errors, duplicate, invalid, required
from setpoint.meta.goformat import plain, quote
from setpoint.meta.names import dns1035_label, path_segment, path_segment_prefix, qualified_name
from setpoint.meta.objectmeta import validate_object_meta
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.schema import Field, ListType, Presence, Shape, Type

if TYPE_CHECKING:
    from setpoint.kinds.apiextensions.rule_validation import RuleValidator


Rule = Callable[[Any, str, Errors], None]
"""Function that gets a value, its path, and the list to which it appends errors."""
RuleFor = Callable[[Schema], Rule | None]
"""Function that returns the rule for the values of a schema (not of its parts), or None."""
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_SCALARS = {"string": Shape.STRING, "boolean": Shape.BOOL, "integer": Shape.INT64, "number": Shape.FLOAT}
_LIST_TYPES = {"set": ListType.SET, "map": ListType.MAP}
_SORTED = orjson.OPT_SORT_KEYS
_STANDARD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})


def compile_walk(schema: Schema, rule_for: RuleFor) -> Rule | None:
    """Return a rule that visits all parts of a value, or None if no part has a rule."""
    own, items, additional = rule_for(schema), schema.get("items"), schema.get("additionalProperties")
    parts: dict[str, Rule] = {}
    for name, part in (schema.get("properties") or {}).items():
        if (walk := compile_walk(part, rule_for)) is not None:
            parts[name] = walk
    item = compile_walk(items, rule_for) if isinstance(items, Mapping) else None
    other = compile_walk(additional, rule_for) if isinstance(additional, Mapping) else None
    if own is None and not parts and item is None and other is None:
        return None
    known = frozenset(schema.get("properties") or ())

    def walk_value(value: Any, path: str, errs: Errors) -> None:
        if own is not None:
            own(value, path, errs)
        if value.__class__ is dict:
            for name, part in parts.items():
                if name in value:
                    part(value[name], f"{path}.{name}" if path else name, errs)
            if other is not None:
                for name, one in value.items():
                    if name not in known:
                        other(one, f"{path}[{name}]", errs)
        elif item is not None and value.__class__ is list:
            for i, one in enumerate(value):
                item(one, f"{path}[{i}]", errs)

    return walk_value


def list_rule(schema: Schema) -> Rule | None:
    list_type = schema.get("x-kubernetes-list-type")
    if list_type == "set":
        return _check_set
    if list_type != "map":
        return None
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())

    def check_keyed(value: Any, path: str, errs: Errors) -> None:
        if value.__class__ is not list:
            return
        for i, item in enumerate(value):
            if item is not None and item.__class__ is not dict:
                errs.append(invalid(f"{path}[{i}]", item, "must be an object for an array of list-type map"))
                return
        if len(value) > 1:
            found = [{key: item[key] for key in keys if key in item} if item else {} for item in value]
            errs.extend(duplicate(f"{path}[{i}]", found[i]) for i in _repeated(found))

    return check_keyed


def _check_set(value: Any, path: str, errs: Errors) -> None:
    if value.__class__ is list and len(value) > 1:
        errs.extend(duplicate(f"{path}[{i}]", value[i]) for i in _repeated(value))


def _repeated(values: Sequence[Any]) -> list[int]:
    """Return the index of the second occurrence of each repeated value."""
    times: dict[bytes, int] = {}
    found = []
    for i, value in enumerate(values):
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        times[text] = times.get(text, 0) + 1
        if times[text] == 2:
            found.append(i)
    return found


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
        # A name is not required.
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


def custom_type(schema: Schema | None, preserve: bool = False, defaults: bool = True) -> Type:
    """Return the Type of a whole object.

    `preserve` says that the definition preserves unknown fields everywhere. `defaults` says whether decoding applies
    defaults; it does not after a conversion, because the other version has its own."""
    if schema is None or preserve:
        # Nothing is pruned, and there are no defaults to apply.
        return Type(Shape.STRUCT, fields=_object_fields({}, defaults, root=True), preserve_unknown=True)
    return Type(
        Shape.STRUCT,
        fields=_object_fields(schema.get("properties") or {}, defaults, root=True),
        preserve_unknown=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
    )


def _field(name: str, schema: Schema, defaults: bool) -> Field:
    default = schema.get("default") if defaults else None
    return Field(name, _type(schema, defaults), Presence.KEEP, default=default)


def _object_fields(properties: Mapping[str, Schema], defaults: bool, root: bool = False) -> dict[str, Field]:
    """Return the fields including those of every object; a schema cannot redefine metadata, which the root always
    has."""
    fields = {name: Field(name, Type(Shape.STRING, go="string"), Presence.KEEP) for name in ("apiVersion", "kind")}
    fields["metadata"] = Field("metadata", type_of(_META), Presence.KEEP, default={} if root else None)
    return fields | {name: _field(name, part, defaults) for name, part in properties.items() if name not in fields}


def _type(schema: Schema, defaults: bool, preserve: bool = False) -> Type:
    """Return the Type of a schema. `preserve` says that an enclosing list preserves unknown fields of its items."""
    kind, nullable = schema.get("type", ""), bool(schema.get("nullable"))
    preserve = preserve or bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    properties, additional, items = schema.get("properties"), schema.get("additionalProperties"), schema.get("items")
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    default = schema.get("default") if defaults else None
    if schema.get("x-kubernetes-int-or-string"):
        return Type(Shape.INT_OR_STRING, nullable=nullable, default=default)
    if kind == "array" or (not kind and isinstance(items, Mapping)):
        return Type(
            Shape.LIST,
            item=_type(items, defaults, preserve) if isinstance(items, Mapping) else Type(Shape.ANY),
            list_type=_LIST_TYPES.get(schema.get("x-kubernetes-list-type", ""), ListType.ATOMIC),
            list_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
            nullable=nullable,
            default=default,
        )
    if schema.get("x-kubernetes-embedded-resource"):
        fields = _object_fields(properties or {}, defaults)
        return Type(
            Shape.STRUCT, fields=fields, atomic=atomic, preserve_unknown=preserve, nullable=nullable, default=default
        )
    if additional and not properties:
        item = _type(additional, defaults) if isinstance(additional, Mapping) else None
        return Type(Shape.MAP, item=item, atomic=atomic, nullable=nullable, default=default)
    if preserve and not properties:
        return Type(Shape.ANY, atomic=atomic, nullable=nullable, default=default)
    if kind == "object" or properties:
        return Type(
            Shape.STRUCT,
            fields={name: _field(name, part, defaults) for name, part in (properties or {}).items()},
            atomic=atomic,
            preserve_unknown=preserve or bool(additional),
            nullable=nullable,
            default=default,
        )
    return Type(_SCALARS.get(kind, Shape.ANY), nullable=nullable, default=default)


class CustomStrategy(Strategy):
    has_generation = True
    allow_unconditional_update = False
    qualified_finalizers = False

    def __init__(self, version: ObjView, api_version: str, kind: str, preserve: bool = False) -> None:
        """Compile one of `spec.versions`. `preserve` says that the definition preserves unknown fields everywhere."""
        self._schema: Schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        self._identity = {"apiVersion": api_version, "kind": kind}
        subresources = version.get("subresources") or {}
        self.has_status = subresources.get("status") is not None
        self.scale = ScalePaths.of(subresources)
        self.check = compile_schema(self._schema)
        # A schema that is not structural has no such rules.
        structural: Schema = {} if preserve else self._schema
        self._embedded = compile_walk(structural, embedded_rule)
        self._lists = compile_walk(structural, list_rule)
        self._rules: RuleValidator | None = None
        if has_rules(structural):
            # Imported with the first rule, because the expression language is slow to import.
            from setpoint.kinds.apiextensions.rule_validation import compile_validator

            self._rules = compile_validator(structural)
        self.subresources = {"status": CustomStatusStrategy(self)} if self.has_status else {}
        self.columns = printer_columns(version.get("additionalPrinterColumns") or ())
        self._selectable = _selectable(version.get("selectableFields") or ())
        if self._selectable:
            self.field_labels = self.field_labels | frozenset(self._selectable)

    def unsupported_field(self, label: str) -> str:
        return f"field label not supported: {label}"

    def whole(self, obj: Obj) -> Obj:
        """Return the object with kind and apiVersion, as the schema describes it."""
        return {**self._identity, **obj}

    # -- the life of an object ------------------------------------------------------------------------------------

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        if self.has_status:
            obj.pop("status", None)

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)

    def is_new_generation(self, obj: Obj, old: Obj) -> bool:
        apart = ("metadata", "status") if self.has_status else ("metadata",)
        new, before = _without(obj, apart), _without(old, apart)
        # In Python True equals 1.
        return new != before or orjson.dumps(new, option=_SORTED) != orjson.dumps(before, option=_SORTED)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        whole = self.whole(obj)
        validate_value(self.check, whole, "", errs)
        self._validate_replicas(obj, errs)
        if self._embedded is not None:
            self._embedded(whole, "", errs)
        if self._lists is not None:
            self._lists(whole, "", errs)
        if self._rules is not None:
            self._rules.validate(whole, None, self._schema, errs, ctx.warn)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        whole, before = self.whole(obj), self.whole(old)
        correlated = Correlated(whole, before, self._schema)
        validate_value(self.check, whole, "", errs, correlated)
        self._validate_replicas(obj, errs)
        if self._embedded is not None:
            self._embedded(whole, "", errs)
        self.validate_lists(whole, before, errs)
        if self._rules is not None:
            self._rules.validate(whole, before, self._schema, errs, ctx.warn)

    def validate_lists(self, whole: Obj, before: Obj, errs: Errors) -> None:
        """Validate sets and keyed lists; a list that had duplicates before may still have them."""
        if self._lists is None:
            return
        found: Errors = []
        self._lists(whole, "", found)
        if found:
            known: Errors = []
            self._lists(before, "", known)
            if not known:
                errs.extend(found)

    def _validate_replicas(self, obj: Obj, errs: Errors) -> None:
        if self.scale is not None:
            self.scale.validate_spec(obj, errs)
            self.scale.validate_status(obj, errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        finalizers = obj["metadata"].get("finalizers")
        return _finalizer_warnings(finalizers) if finalizers else []

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        finalizers = obj["metadata"].get("finalizers")
        if not finalizers:
            return []
        return _finalizer_warnings(set(finalizers) - set(old["metadata"].get("finalizers") or ()))

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        found = {}
        for name, find in self._selectable.items():
            value = find(obj)
            found[name] = (
                "" if value is None or is_missing(value) else value if isinstance(value, str) else plain(value)
            )
        return found

    # -- its status -------------------------------------------------------------------------------------------------

    def validate_status(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        whole, before = self.whole(obj), self.whole(old)
        correlated = Correlated(whole, before, self._schema)
        part = (self._schema.get("properties") or {}).get("status")
        if part is not None and "status" in obj:
            if self._status_check is None:
                self._status_check = compile_schema(part)
            validate_value(self._status_check, obj["status"], "status", errs, correlated.key("status"))
        if self.scale is not None:
            self.scale.validate_status(obj, errs)
        self.validate_lists(whole, before, errs)
        if self._rules is not None:
            self._rules.validate(whole, before, self._schema, errs, ctx.warn)

    _status_check: Any = None


class CustomStatusStrategy(Strategy):
    """The `/status` of a custom resource: everything else, including metadata, stays as stored."""

    qualified_finalizers = False
    allow_unconditional_update = False

    def __init__(self, main: CustomStrategy) -> None:
        self.main = main

    @property
    def resets(self) -> tuple[str, ...]:
        return ("metadata", "spec")

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        status = {"status": obj["status"]} if "status" in obj else {}
        meta = obj["metadata"]
        written = {name: meta[name] for name in ("managedFields", "resourceVersion") if name in meta}
        meta.clear()
        meta.update(_without(old["metadata"], ("managedFields", "resourceVersion")), **written)
        obj.clear()
        obj.update({"metadata": meta}, **_without(old, ("metadata", "status")), **status)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self.main.validate_status(obj, old, errs, ctx)

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        return []

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        return self.main.selectable_fields(obj)


def _without(obj: Obj, names: tuple[str, ...]) -> Obj:
    return {name: value for name, value in obj.items() if name not in names}


def _selectable(fields: Sequence[ObjView]) -> dict[str, Any]:
    paths = [field.get("jsonPath", "") for field in fields]
    return {path.removeprefix("."): path_finder(path)[0] for path in paths}


def _finalizer_warnings(finalizers: Any) -> list[str]:
    """Return warnings for finalizers that a built-in kind would reject."""
    found = []
    for name in sorted(set(finalizers)):
        at = f"metadata.finalizers: {quote(name)}: "
        found += [at + text for text in qualified_name(name)]
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            better = "a domain-qualified finalizer name"
            if "." in name:
                better += " including a path (/)"
            found.append(f"{at}prefer {better} to avoid accidental conflicts with other finalizer writers")
    return found
