"""The Strategy of one version of a custom resource: like that of a built-in kind, but built from a schema.

Everything is compiled once, when the version starts to be served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from setpoint.kinds.apiextensions.correlation import Correlated
from setpoint.kinds.apiextensions.embedded_rules import embedded_rule
from setpoint.kinds.apiextensions.list_values import list_rule
from setpoint.kinds.apiextensions.printer_columns import is_missing, path_finder, printer_columns
from setpoint.kinds.apiextensions.rule_costs import has_rules
from setpoint.kinds.apiextensions.scale_rules import ScalePaths
from setpoint.kinds.apiextensions.schema_values import compile_schema, validate_value
from setpoint.kinds.apiextensions.value_walk import compile_walk
from setpoint.kinds.strategy import Context, Obj, Strategy
from setpoint.meta.field import Errors
from setpoint.meta.goformat import plain, quote
from setpoint.meta.names import qualified_name

if TYPE_CHECKING:
    from setpoint.kinds.apiextensions.rule_validation import RuleValidator

Schema = Mapping[str, Any]
_SORTED = orjson.OPT_SORT_KEYS
_STANDARD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})


class CustomStrategy(Strategy):
    has_generation = True
    allow_unconditional_update = False
    qualified_finalizers = False

    def __init__(self, version: Mapping[str, Any], api_version: str, kind: str, preserve: bool = False) -> None:
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
            # Loaded with the first rule: the expression language takes its time.
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


def _selectable(fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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
