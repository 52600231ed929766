"""StorageClass: the parameters with which volumes of a class are provisioned."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec.warnings import DEPRECATED_NODE_LABELS
from setpoint.kinds.shared_names import validate_parameters, validate_provisioner
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, duplicate, invalid, not_supported, required
from setpoint.meta.objectmeta import IMMUTABLE, validate_label_name
from setpoint.meta.objects import Obj

DEFAULT_ANNOTATIONS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_FIXED = ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode")


class StorageClassStrategy(Strategy):
    returns_deleted = True

    def default(self, obj: Obj) -> None:
        if obj.get("reclaimPolicy") is None:
            obj["reclaimPolicy"] = "Delete"
        if obj.get("volumeBindingMode") is None:
            obj["volumeBindingMode"] = "Immediate"

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate(obj, errs)
        if not obj.get("provisioner"):
            errs.append(required("provisioner"))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        _validate(obj, errs)
        # Upstream declares these rules at the type: it reports them last, in the type's order, without the value.
        if not obj.get("provisioner"):
            errs.append(required("provisioner"))
        changed = [name for name in _FIXED if (obj.get(name) or None) != (old.get(name) or None)]
        errs.extend(invalid(name, None, IMMUTABLE) for name in changed)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        return [
            f"allowedTopologies[{i}].matchLabelExpressions[{j}].key: {text}"
            for i, term in enumerate(obj.get("allowedTopologies", ()))
            for j, expression in enumerate(term.get("matchLabelExpressions", ()))
            if (text := DEPRECATED_NODE_LABELS.get(expression.get("key", "")))
        ]

    columns = (
        NAME,
        Column("Provisioner", lambda obj, now: obj.get("provisioner", ""), description="Who makes the volumes."),
        Column(
            "ReclaimPolicy",
            lambda obj, now: obj.get("reclaimPolicy", "Delete"),
            description="What becomes of a volume that is released.",
        ),
        Column(
            "VolumeBindingMode",
            lambda obj, now: obj.get("volumeBindingMode", "Immediate"),
            description="When volumes are made and bound.",
        ),
        Column(
            "AllowVolumeExpansion",
            lambda obj, now: obj.get("allowVolumeExpansion", False),
            description="Whether volumes may grow.",
        ),
        AGE,
    )

    def columns_of(self, objs: Sequence[Obj]) -> Sequence[Column]:
        """Return the columns of a list, in which the default class is marked: of several defaults, the newest."""
        effective = default_class(objs)
        if effective is None:
            return self.columns
        name = effective["metadata"].get("name")

        def shown(obj: Obj, now: datetime) -> str:
            text: str = NAME.cell(obj, now)
            return f"{text} (default)" if text == name else text

        return (Column("Name", shown, format=NAME.format, description=NAME.description), *self.columns[1:])


def is_default(obj: Obj) -> bool:
    annotations = obj["metadata"].get("annotations") or {}
    return any(annotations.get(name) == "true" for name in DEFAULT_ANNOTATIONS)


def default_class(objs: Sequence[Obj]) -> Obj | None:
    """Return the newest class that is marked as the default; of equally new ones the first by name."""
    best: Obj | None = None
    for obj in filter(is_default, objs):
        if best is None:
            best = obj
            continue
        created, newest = obj["metadata"].get("creationTimestamp", ""), best["metadata"].get("creationTimestamp", "")
        if created > newest or (created == newest and obj["metadata"]["name"] < best["metadata"]["name"]):
            best = obj
    return best


def _validate(obj: Obj, errs: Errors) -> None:
    validate_provisioner(obj.get("provisioner", ""), "provisioner", errs)
    validate_parameters(obj.get("parameters"), "parameters", errs, needed=False)
    policy, mode = obj.get("reclaimPolicy"), obj.get("volumeBindingMode")
    if policy and policy not in ("Delete", "Retain"):
        errs.append(not_supported("reclaimPolicy", policy, ("Delete", "Retain")))
    if mode is None:
        errs.append(required("volumeBindingMode"))
    elif mode not in ("Immediate", "WaitForFirstConsumer"):
        errs.append(not_supported("volumeBindingMode", mode, ("Immediate", "WaitForFirstConsumer")))
    _validate_topologies(obj.get("allowedTopologies", []), errs)


def _validate_topologies(terms: list[Obj], errs: Errors) -> None:
    # Upstream compares with as many empty slots as there are terms, so a term without expressions repeats them all.
    seen: list[dict[str, set[str]] | None] = [None] * len(terms)
    for i, term in enumerate(terms):
        path = f"allowedTopologies[{i}].matchLabelExpressions"
        keys: dict[str, set[str]] = {}
        for j, expression in enumerate(term.get("matchLabelExpressions", ())):
            at = f"{path}[{j}]"
            key, values = expression.get("key", ""), expression.get("values") or []
            if not values:
                errs.append(required(f"{at}.values"))
            found: set[str] = set()
            for k, value in enumerate(values):
                if value in found:
                    errs.append(duplicate(f"{at}.values[{k}]", value))
                found.add(value)
            validate_label_name(key, f"{at}.key", errs)
            if key in keys:
                errs.append(duplicate(f"{at}.key", key))
            keys[key] = found
        errs.extend(duplicate(path, "") for other in seen if (other or {}) == keys)
        seen.append(keys)


STRATEGY = StorageClassStrategy()
