"""StatefulSet: numbered Pods, each with its own name and volumes."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.kinds.apps.workload import (
    CONTAINERS,
    IMAGES,
    READY,
    WorkloadStatusStrategy,
    WorkloadStrategy,
    usable_selector,
    validate_labels_match,
    validate_long_running,
    validate_selector,
)
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec import (
    PodOptions,
    default_pod_template,
    pod_template_options,
    validate_pod_template,
)
from setpoint.kinds.core.podspec.claims import validate_claim_spec
from setpoint.kinds.core.podspec.defaults import default_persistent_volume_claim_spec
from setpoint.kinds.core.podspec.spec import validate_pod_template_metadata
from setpoint.kinds.internal_form import internal
from setpoint.kinds.numbers import (
    at_most_100_percent,
    int_or_percent,
    non_negative,
    non_negative_fields,
    number_of,
)
from setpoint.kinds.strategy import Context
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.names import dns1123_label
from setpoint.meta.objectmeta import IMMUTABLE, validate_immutable
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import is_integer

_STATUS_FIELDS = (
    "Phase",
    "AccessModes",
    "Capacity",
    "Conditions",
    "AllocatedResources",
    "AllocatedResourceStatuses",
    "CurrentVolumeAttributesClassName",
    "ModifyVolumeStatus",
    "HealthStatus",
)


def _default_claim_templates(claims: Sequence[Obj]) -> None:
    for claim in claims:
        claim["kind"], claim["apiVersion"] = "PersistentVolumeClaim", "v1"
        status = claim.setdefault("status", {})
        if not status.get("phase"):
            status["phase"] = "Pending"
        default_persistent_volume_claim_spec(claim.setdefault("spec", {}))


def _with_claims_as_volumes(template: Obj, claims: Sequence[Obj]) -> Obj:
    """Return the template as its Pods will have it: claims take the place of volumes of their name; hostname and
    subdomain are the controller's to fill."""
    spec = template.get("spec") or {}
    if not claims and not spec.get("hostname") and not spec.get("subdomain"):
        return template
    spec = {name: value for name, value in spec.items() if name not in ("hostname", "subdomain")}
    if claims:
        names = [(claim.get("metadata") or {}).get("name", "") for claim in claims]
        volumes = {name: {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names}
        others = [volume for volume in spec.get("volumes") or () if volume.get("name") not in volumes]
        spec["volumes"] = [*volumes.values(), *others]
    return {**template, "spec": spec}


def _claim_warnings(claims: Sequence[Obj], suffix: str) -> list[str]:
    warnings = []
    for i, claim in enumerate(claims):
        resources = (claim.get("spec") or {}).get("resources") or {}
        path = f"spec.volumeClaimTemplates[{i}]{suffix}.resources"
        for kind in ("requests", "limits"):
            size = (resources.get(kind) or {}).get("storage")
            if size is not None and not is_integer(size):
                text = f'fractional byte value "{size}" is invalid, must be an integer'
                warnings.append(f"{path}.{kind}[storage]: {text}")
    return warnings


def _shown_claim_templates(claims: Sequence[Obj]) -> list[Obj] | None:
    """Return the templates as messages show them."""
    return [_shown(claim) for claim in claims] or None


def _shown(claim: Obj) -> Obj:
    status = claim.get("status") or {}
    return {
        **(claim.get("metadata") or {}),
        "Spec": internal("PersistentVolumeClaimSpec", claim.get("spec")),
        "Status": {
            name: status.get(name[0].lower() + name[1:]) or ("" if name == "Phase" else None) for name in _STATUS_FIELDS
        },
    }


_RETENTION = ("Retain", "Delete")


class StatefulSetStrategy(WorkloadStrategy):
    warns_about_name = False

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
        _default_claim_templates(spec.get("volumeClaimTemplates") or ())

    def validate_spec(self, obj: Obj, errs: Errors, options: PodOptions) -> None:
        _validate_spec(obj["spec"], errs, options)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        spec, before = obj["spec"], old["spec"]
        options = pod_template_options(before.get("template"))
        already: Errors = []
        _validate_spec(before, already, options, update=True)
        _validate_spec(spec, errs, options, update=True, skip_template=bool(already))
        validate_immutable(spec.get("selector"), before.get("selector"), "spec.selector", errs)
        claims = spec.get("volumeClaimTemplates") or []
        if claims != (before.get("volumeClaimTemplates") or []):
            errs.append(invalid("spec.volumeClaimTemplates", _shown_claim_templates(claims), IMMUTABLE))
        for name in ("serviceName", "podManagementPolicy"):
            validate_immutable(spec.get(name, ""), before.get(name, ""), f"spec.{name}", errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        spec = obj["spec"]
        claims = _claim_warnings(spec.get("volumeClaimTemplates") or (), "")
        return super().warnings_on_create(obj, ctx) + claims + _history_warning(spec)

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        spec = obj["spec"]
        claims = _claim_warnings(spec.get("volumeClaimTemplates") or (), ".Spec")
        return super().warnings_on_update(obj, old, ctx) + claims + _history_warning(spec)

    columns = (
        NAME,
        READY,
        AGE,
        CONTAINERS,
        IMAGES,
    )


class StatefulSetStatusStrategy(WorkloadStatusStrategy):
    counts = (
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    )
    counts_of_replicas = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    ready_path = "status.readyReplicas"


def _history_warning(spec: Obj) -> list[str]:
    if (spec.get("revisionHistoryLimit") or 0) >= 0:
        return []
    return ["spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"]


def _validate_spec(
    spec: Obj, errs: Errors, options: PodOptions, *, update: bool = False, skip_template: bool = False
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
        validate_labels_match(selector, template, errs)
        _validate_template(spec, template, errs, options, skip_template)
    validate_long_running(template, errs, kind="StatefulSet")


def _validate_template(spec: ObjView, template: Obj, errs: Errors, options: PodOptions, skip: bool) -> None:
    template = _with_claims_as_volumes(template, spec.get("volumeClaimTemplates") or ())
    if skip:
        # Of a template that was stored invalid, only the metadata is validated again.
        validate_pod_template_metadata(template, "spec.template", errs, options=options)
    else:
        validate_pod_template(template, "spec.template", errs, options=options)


def _retention(spec: Obj) -> list[tuple[str, str]]:
    policy = spec.get("persistentVolumeClaimRetentionPolicy")
    return [] if policy is None else [(name, policy.get(name, "")) for name in ("whenDeleted", "whenScaled")]


def _validate_strategy(strategy: Obj, errs: Errors) -> None:
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


def _shown_rolling(rolling: Obj | None) -> Obj | None:
    if rolling is None:
        return None
    return {"Partition": rolling.get("partition", 0), "MaxUnavailable": rolling.get("maxUnavailable")}


def _validate_rolling(rolling: Obj, path: str, errs: Errors) -> None:
    non_negative(rolling.get("partition", 0), f"{path}.partition", errs)
    unavailable = rolling.get("maxUnavailable")
    if unavailable is not None:
        int_or_percent(unavailable, f"{path}.maxUnavailable", errs)
        if number_of(unavailable) == 0:
            errs.append(invalid(f"{path}.maxUnavailable", unavailable, "cannot be 0"))
        at_most_100_percent(unavailable, f"{path}.maxUnavailable", errs)


STRATEGY = StatefulSetStrategy()
STRATEGY.subresources = {"status": StatefulSetStatusStrategy(STRATEGY)}
