"""Rules for `metadata`, the same for every kind; and for label selectors, conditions and immutable fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from setpoint.meta.caching import memoized
from setpoint.meta.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from setpoint.meta.goformat import quote
from setpoint.meta.names import _label_value, _qualified_name, dns1123_label, regex_error

IMMUTABLE = "field is immutable"
STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_ANNOTATIONS_LIMIT = 256 * 1024
_CONDITION_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"


def validate_labels(labels: Mapping[str, str] | None, path: str, errs: Errors) -> None:
    for key, value in (labels or {}).items():
        for text in _qualified_name(key):
            errs.append(invalid(path, key, text))
        for text in _label_value(value):
            errs.append(invalid(path, value, text))


def validate_label_name(name: str, path: str, errs: Errors) -> None:
    for text in _qualified_name(name):
        errs.append(invalid(path, name, text))


def validate_annotations(annotations: Mapping[str, str] | None, path: str, errs: Errors) -> None:
    if not annotations:
        return
    size = 0
    for key, value in annotations.items():
        size += len(key) + len(value)
        for text in _qualified_name(key.lower()):
            errs.append(invalid(path, key, text))
    # The number of characters is a lower bound of the bytes; encode only close to the limit.
    if (
        size * 4 > _ANNOTATIONS_LIMIT
        and sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > _ANNOTATIONS_LIMIT
    ):
        errs.append(too_long(path, _ANNOTATIONS_LIMIT))


def _validate_owner_references(references: Sequence[Mapping[str, Any]], path: str, errs: Errors) -> None:
    first = ""
    for i, ref in enumerate(references):
        api_version = ref.get("apiVersion", "")
        if not api_version:
            errs.append(required(f"{path}[{i}].apiVersion", "must not be empty"))
        elif api_version.count("/") > 1 or api_version.endswith("/"):
            errs.append(invalid(f"{path}[{i}].apiVersion", api_version, "must be <group>/<version> or <version>"))
        for name in ("kind", "name", "uid"):
            if not ref.get(name):
                errs.append(required(f"{path}[{i}].{name}", "must not be empty"))
        if api_version == "v1" and ref.get("kind") == "Event":
            errs.append(invalid(f"{path}[{i}]", dict(ref), "/v1, Kind=Event is disallowed from being an owner"))
        if ref.get("controller"):
            current = f"{ref.get('kind')}/{ref.get('name')}"
            if first:
                text = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {first} and {current}'
                )
                errs.append(invalid(path, list(references), text))
            else:
                first = current


def _validate_finalizers(finalizers: Sequence[str], path: str, errs: Errors) -> None:
    for finalizer in finalizers:
        for text in _qualified_name(finalizer):
            errs.append(invalid(path, finalizer, text))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        errs.append(invalid(path, list(finalizers), text))


def validate_qualified_finalizers(meta: Mapping[str, Any], path: str, errs: Errors) -> None:
    """Validate the additional rule of most kinds: only legacy finalizers may lack a domain."""
    for i, finalizer in enumerate(meta.get("finalizers", ())):
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            errs.append(invalid(f"{path}.finalizers[{i}]", finalizer, text))


def validate_field_manager(manager: str, path: str, errs: Errors) -> None:
    if len(manager.encode()) > 128:
        errs.append(too_long(path, 128))
    if manager.isprintable():
        return
    position = 0
    for char in manager:
        if not char.isprintable():
            errs.append(invalid(path, manager, f"invalid character U+{ord(char):04X} (at position {position})"))
        position += len(char.encode())


_OPERATIONS = frozenset({"Apply", "Update"})


@memoized(maxsize=1024)
def _is_field_manager(manager: str) -> bool:
    errs: Errors = []
    validate_field_manager(manager, "", errs)
    return not errs


def _validate_managed_fields(entries: Sequence[Mapping[str, Any]], path: str, errs: Errors) -> None:
    for i, entry in enumerate(entries):
        operation = entry.get("operation", "")
        if (
            operation in _OPERATIONS
            and entry.get("fieldsType", "") == "FieldsV1"
            and _is_field_manager(entry.get("manager", ""))
            and len(entry.get("subresource", "")) <= 256
        ):
            continue
        if not operation:
            errs.append(required(f"{path}[{i}].operation", "must not be empty"))
        elif operation not in ("Apply", "Update"):
            errs.append(not_supported(f"{path}[{i}].operation", operation, ("Apply", "Update")))
        fields_type = entry.get("fieldsType", "")
        if fields_type and fields_type != "FieldsV1":
            errs.append(invalid(f"{path}[{i}].fieldsType", fields_type, "must be `FieldsV1`"))
        validate_field_manager(entry.get("manager", ""), f"{path}[{i}].manager", errs)
        if len(entry.get("subresource", "")) > 256:
            errs.append(too_long(f"{path}[{i}].subresource", 256))


def validate_object_meta(
    meta: Mapping[str, Any],
    namespaced: bool,
    validate_name: Callable[[str, bool], list[str]],
    path: str,
    errs: Errors,
) -> None:
    """Validate a new object's metadata; its name has been generated already."""
    generate_name = meta.get("generateName", "")
    if generate_name:
        for text in validate_name(generate_name, True):
            errs.append(invalid(f"{path}.generateName", generate_name, text))
    name = meta.get("name", "")
    if not name:
        errs.append(required(f"{path}.name", "name or generateName is required"))
    else:
        for text in validate_name(name, False):
            errs.append(invalid(f"{path}.name", name, text))
    namespace = meta.get("namespace", "")
    if namespaced:
        if not namespace:
            errs.append(required(f"{path}.namespace", ""))
        else:
            for text in dns1123_label(namespace):
                errs.append(invalid(f"{path}.namespace", namespace, text))
    elif namespace:
        errs.append(forbidden(f"{path}.namespace", "not allowed on this type"))
    if meta.get("generation", 0) < 0:
        errs.append(invalid(f"{path}.generation", meta["generation"], "must be greater than or equal to 0"))
    _validate_common(meta, path, errs)
    if meta.get("finalizers"):
        _validate_finalizers(meta["finalizers"], f"{path}.finalizers", errs)


def validate_object_meta_update(
    meta: Mapping[str, Any], old: Mapping[str, Any], path: str, errs: Errors, *, is_valid: bool = False
) -> None:
    """Validate the metadata of an update: immutable fields, and the rules that must still hold. `is_valid`:
    `validate_object_meta` has found that they do."""
    if old.get("deletionTimestamp"):
        extra = sorted(set(meta.get("finalizers", ())) - set(old.get("finalizers", ())))
        if extra:
            shown = "[]string{" + ", ".join(quote(name) for name in extra) + "}"
            text = f"no new finalizers can be added if the object is being deleted, found new finalizers {shown}"
            errs.append(forbidden(f"{path}.finalizers", text))
    if not meta.get("resourceVersion"):
        errs.append(invalid(f"{path}.resourceVersion", "", "must be specified for an update"))
    generation = meta.get("generation", 0)
    if generation < 0:
        errs.append(invalid(f"{path}.generation", generation, "must be greater than or equal to 0"))
    if generation < old.get("generation", 0):
        errs.append(invalid(f"{path}.generation", generation, "must not be decremented"))
    for name in ("name", "namespace", "uid"):
        if meta.get(name, "") != old.get(name, ""):
            errs.append(invalid(f"{path}.{name}", meta.get(name, ""), IMMUTABLE))
    for name in ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if meta.get(name) != old.get(name):
            errs.append(invalid(f"{path}.{name}", meta.get(name), IMMUTABLE))
    if not is_valid:
        _validate_common(meta, path, errs)


def _validate_common(meta: Mapping[str, Any], path: str, errs: Errors) -> None:
    if meta.get("labels"):
        validate_labels(meta["labels"], f"{path}.labels", errs)
    if meta.get("annotations"):
        validate_annotations(meta["annotations"], f"{path}.annotations", errs)
    references = meta.get("ownerReferences")
    if references:
        _validate_owner_references(references, f"{path}.ownerReferences", errs)
    managed = meta.get("managedFields")
    if managed:
        _validate_managed_fields(managed, f"{path}.managedFields", errs)


def validate_immutable(new: Any, old: Any, path: str, errs: Errors) -> None:
    if new != old:
        errs.append(invalid(path, new, IMMUTABLE))


def validate_label_selector(
    selector: Mapping[str, Any] | None, path: str, errs: Errors, *, allow_invalid_values: bool = False
) -> None:
    """Validate a LabelSelector inside an object (`matchLabels`, `matchExpressions`)."""
    if not selector:
        return
    validate_labels(selector.get("matchLabels"), f"{path}.matchLabels", errs)
    for i, expression in enumerate(selector.get("matchExpressions", ())):
        at = f"{path}.matchExpressions[{i}]"
        operator, values = expression.get("operator", ""), expression.get("values", ())
        if operator in ("In", "NotIn"):
            if not values:
                errs.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errs.append(forbidden(f"{at}.values", text))
        else:
            errs.append(invalid(f"{at}.operator", operator, "not a valid selector operator"))
        validate_label_name(expression.get("key", ""), f"{at}.key", errs)
        if not allow_invalid_values:
            for j, value in enumerate(values):
                for text in _label_value(value):
                    errs.append(invalid(f"{at}.values[{j}]", value, text))


def validate_conditions(conditions: Sequence[Mapping[str, Any]], path: str, errs: Errors) -> None:
    """Validate metav1.Condition lists of the newer kinds."""
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        at = f"{path}[{i}]"
        kind = condition.get("type", "")
        if kind in seen:
            errs.append(duplicate(at, kind))
        seen.add(kind)
        if not kind:
            errs.append(required(f"{at}.type", "is required"))
        else:
            validate_label_name(kind, f"{at}.type", errs)
        status = condition.get("status", "")
        if not status:
            errs.append(required(f"{at}.status", ""))
        elif status not in ("True", "False", "Unknown"):
            errs.append(not_supported(f"{at}.status", status, ("False", "True", "Unknown")))
        if condition.get("observedGeneration", 0) < 0:
            errs.append(
                invalid(
                    f"{at}.observedGeneration", condition["observedGeneration"], "must be greater than or equal to zero"
                )
            )
        if not condition.get("lastTransitionTime"):
            errs.append(required(f"{at}.lastTransitionTime", ""))
        reason = condition.get("reason", "")
        if not reason:
            errs.append(required(f"{at}.reason", ""))
        else:
            if not re.fullmatch(_CONDITION_REASON, reason[:2048]):
                text = (
                    "a condition reason must start with alphabetic character, optionally followed by a string of "
                    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'"
                )
                examples = ("my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB")
                errs.append(invalid(f"{at}.reason", reason, regex_error(text, _CONDITION_REASON, *examples)))
            if len(reason.encode()) > 1024:
                errs.append(too_long(f"{at}.reason", 1024))
        if len(condition.get("message", "").encode()) > 32 * 1024:
            errs.append(too_long(f"{at}.message", 32 * 1024))
