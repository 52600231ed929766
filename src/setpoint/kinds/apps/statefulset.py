"""StatefulSet: numbered Pods, each with its own name and volumes."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.apps.podtemplate import (
    usable_selector,
    validate_labels_match,
    validate_long_running,
    validate_selector,
)  # fmt: skip
from setpoint.kinds.apps.volume_claim_templates import (
    claim_warnings,
    default_claim_templates,
    shown_claim_templates,
    with_claims_as_volumes,
)  # fmt: skip
from setpoint.kinds.columns import AGE, NAME, container_images, container_names
from setpoint.kinds.core.podspec import (
    CREATE,
    PodOptions,
    default_pod_template,
    drop_disabled_template_fields,
    pod_template_options,
    pod_template_warnings,
    validate_pod_template,
)  # fmt: skip
from setpoint.kinds.core.podspec.annotations import validate_pod_annotations
from setpoint.kinds.core.podspec.claims import validate_claim_spec
from setpoint.kinds.numbers import (
    at_most_100_percent,
    int_or_percent,
    never_decremented,
    non_negative,
    non_negative_fields,
    number_of,
)  # fmt: skip
from setpoint.kinds.strategy import Column, Context, Obj, StatusStrategy, Strategy
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.names import dns1123_label
from setpoint.meta.objectmeta import IMMUTABLE, validate_annotations, validate_immutable, validate_labels

_STATUS_COUNTS = (
    "replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas", "observedGeneration",
    "collisionCount",
)  # fmt: skip
_RETENTION = ("Retain", "Delete")


class StatefulSetStrategy(Strategy):
    has_status = True
    has_generation = True

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return dns1123_label(name.rstrip("-") if prefix else name)

    def default(self, obj: Obj) -> None:
        spec = obj.setdefault("spec", {})
        if not spec.get("podManagementPolicy"):
            spec["podManagementPolicy"] = "OrderedReady"
        strategy = spec.setdefault("updateStrategy", {})
        if not strategy.get("type"):
            strategy["type"] = "RollingUpdate"
            if strategy.get("rollingUpdate") is None:
                strategy["rollingUpdate"] = {}
        rolling = strategy.get("rollingUpdate")
        if strategy["type"] == "RollingUpdate" and rolling is not None:
            if rolling.get("partition") is None:
                rolling["partition"] = 0
            if rolling.get("maxUnavailable") is None:
                rolling["maxUnavailable"] = 1
        retention = spec.get("persistentVolumeClaimRetentionPolicy")
        if retention is None:
            retention = spec["persistentVolumeClaimRetentionPolicy"] = {}
        for name in ("whenDeleted", "whenScaled"):
            if not retention.get(name):
                retention[name] = "Retain"
        if spec.get("replicas") is None:
            spec["replicas"] = 1
        if spec.get("revisionHistoryLimit") is None:
            spec["revisionHistoryLimit"] = 10
        default_pod_template(spec.setdefault("template", {}))
        default_claim_templates(spec.get("volumeClaimTemplates") or ())

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        self.reset_status(obj)
        drop_disabled_template_fields(obj["spec"]["template"])

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        drop_disabled_template_fields(obj["spec"]["template"], old["spec"].get("template"))

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_spec(obj["spec"], errs, CREATE)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        spec, before = obj["spec"], old["spec"]
        options = pod_template_options(before.get("template"))
        already: Errors = []
        _validate_spec(before, already, options, update=True)
        _validate_spec(spec, errs, options, update=True, skip_template=bool(already))
        validate_immutable(spec.get("selector"), before.get("selector"), "spec.selector", errs)
        claims = spec.get("volumeClaimTemplates") or []
        if claims != (before.get("volumeClaimTemplates") or []):
            errs.append(invalid("spec.volumeClaimTemplates", shown_claim_templates(claims), IMMUTABLE))
        for name in ("serviceName", "podManagementPolicy"):
            validate_immutable(spec.get(name, ""), before.get(name, ""), f"spec.{name}", errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        spec = obj["spec"]
        claims = claim_warnings(spec.get("volumeClaimTemplates") or (), "")
        return pod_template_warnings(spec["template"], "spec.template") + claims + _history_warning(spec)

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        spec, before = obj["spec"], old["spec"]
        warnings: list[str] = []
        if spec != before:
            warnings = pod_template_warnings(spec["template"], "spec.template", before.get("template"))
        return warnings + claim_warnings(spec.get("volumeClaimTemplates") or (), ".Spec") + _history_warning(spec)

    columns = (
        NAME,
        Column("Ready", lambda obj, now: _ready(obj), description="Ready Pods of the desired number."),
        AGE,
        Column("Containers", container_names, priority=1, description="Names of the containers in the template."),
        Column("Images", container_images, priority=1, description="Images of the containers in the template."),
    )


class StatefulSetStatusStrategy(StatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status = obj.get("status") or {}
        non_negative_fields(status, _STATUS_COUNTS, "status", errs)
        replicas = status.get("replicas", 0)
        for name in ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"):
            if status.get(name, 0) > replicas:
                errs.append(invalid(f"status.{name}", status.get(name, 0), "cannot be greater than status.replicas"))
        if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
            text = "cannot be greater than status.readyReplicas"
            errs.append(invalid("status.availableReplicas", status.get("availableReplicas", 0), text))
        never_decremented(status, old.get("status") or {}, "collisionCount", "status", errs)


def _ready(obj: Obj) -> str:
    return f"{(obj.get('status') or {}).get('readyReplicas', 0)}/{(obj.get('spec') or {}).get('replicas', 0)}"


def _history_warning(spec: dict[str, Any]) -> list[str]:
    if (spec.get("revisionHistoryLimit") or 0) >= 0:
        return []
    return ["spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"]


def _validate_spec(
    spec: dict[str, Any], errs: Errors, options: PodOptions, *, update: bool = False, skip_template: bool = False
) -> None:
    """Validate the spec. An update does not validate immutable fields again."""
    policy = spec.get("podManagementPolicy", "")
    if not policy:
        errs.append(required("spec.podManagementPolicy"))
    elif policy not in ("OrderedReady", "Parallel"):
        errs.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    _validate_strategy(spec.get("updateStrategy") or {}, errs)
    for name, value in _retention(spec):
        if value not in _RETENTION:
            errs.append(not_supported(f"spec.persistentVolumeClaimRetentionPolicy.{name}", value, _RETENTION))
    if not update:
        for i, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            validate_claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{i}].spec", errs)
    non_negative_fields(spec, ("replicas", "minReadySeconds"), "spec", errs)
    non_negative((spec.get("ordinals") or {}).get("start", 0), "spec.ordinals.start", errs)
    service = spec.get("serviceName", "")
    if service and not update:
        errs.extend(invalid("spec.serviceName", service, text) for text in dns1123_label(service))
    declared = spec.get("selector")
    validate_selector(declared, "spec.selector", errs, empty="empty selector is invalid for statefulset")
    selector = usable_selector(declared)
    template = spec.get("template") or {}
    if selector is None:
        errs.append(invalid("spec.selector", declared, ""))
    else:
        validate_labels_match(selector, template, "spec.template", errs)
        _validate_template(spec, template, errs, options, skip_template)
    validate_long_running(template, "spec.template", errs, kind="StatefulSet")


def _validate_template(
    spec: dict[str, Any], template: dict[str, Any], errs: Errors, options: PodOptions, skip: bool
) -> None:
    path = "spec.template"
    template = with_claims_as_volumes(template, spec.get("volumeClaimTemplates") or ())
    if not skip:
        validate_pod_template(template, path, errs, options=options)
        return
    # Of a template that was stored invalid, only the metadata is validated again.
    meta = template.get("metadata") or {}
    validate_labels(meta.get("labels"), f"{path}.labels", errs)
    annotations = meta.get("annotations")
    if annotations:
        validate_annotations(annotations, f"{path}.annotations", errs)
        validate_pod_annotations(
            annotations, template.get("spec") or {}, f"{path}.annotations", errs,
            allow_invalid_deletion_cost=options.allow_invalid_deletion_cost,
            allow_comparison=options.allow_toleration_comparison,
        )  # fmt: skip


def _retention(spec: dict[str, Any]) -> list[tuple[str, str]]:
    policy = spec.get("persistentVolumeClaimRetentionPolicy")
    return [] if policy is None else [(name, policy.get(name, "")) for name in ("whenDeleted", "whenScaled")]


def _validate_strategy(strategy: dict[str, Any], errs: Errors) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    path = "spec.updateStrategy"
    if not kind:
        errs.append(required(path))
    elif kind == "OnDelete":
        if rolling is not None:
            text = "only allowed for updateStrategy 'RollingUpdate'"
            errs.append(invalid(f"{path}.rollingUpdate", _shown_rolling(rolling), text))
    elif kind == "RollingUpdate":
        if rolling is not None:
            _validate_rolling(rolling, f"{path}.rollingUpdate", errs)
    else:
        shown = {"Type": kind, "RollingUpdate": _shown_rolling(rolling)}
        errs.append(invalid(path, shown, "must be 'RollingUpdate' or 'OnDelete'"))


def _shown_rolling(rolling: dict[str, Any] | None) -> dict[str, Any] | None:
    if rolling is None:
        return None
    return {"Partition": rolling.get("partition", 0), "MaxUnavailable": rolling.get("maxUnavailable")}


def _validate_rolling(rolling: dict[str, Any], path: str, errs: Errors) -> None:
    non_negative(rolling.get("partition", 0), f"{path}.partition", errs)
    unavailable = rolling.get("maxUnavailable")
    if unavailable is not None:
        int_or_percent(unavailable, f"{path}.maxUnavailable", errs)
        if number_of(unavailable) == 0:
            errs.append(invalid(f"{path}.maxUnavailable", unavailable, "cannot be 0"))
        at_most_100_percent(unavailable, f"{path}.maxUnavailable", errs)


STRATEGY = StatefulSetStrategy()
STRATEGY.subresources = {"status": StatefulSetStatusStrategy(STRATEGY)}
