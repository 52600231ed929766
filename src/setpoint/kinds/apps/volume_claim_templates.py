"""The claims that a StatefulSet makes for each of its Pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.kinds.core.podspec.defaults import default_persistent_volume_claim_spec
from setpoint.kinds.core.podspec.internal import internal
from setpoint.meta.quantity import is_integer

_STATUS_FIELDS = (
    "Phase", "AccessModes", "Capacity", "Conditions", "AllocatedResources", "AllocatedResourceStatuses",
    "CurrentVolumeAttributesClassName", "ModifyVolumeStatus", "HealthStatus",
)  # fmt: skip


def default_claim_templates(claims: Sequence[dict[str, Any]]) -> None:
    for claim in claims:
        claim["kind"], claim["apiVersion"] = "PersistentVolumeClaim", "v1"
        status = claim.setdefault("status", {})
        if not status.get("phase"):
            status["phase"] = "Pending"
        default_persistent_volume_claim_spec(claim.setdefault("spec", {}))


def with_claims_as_volumes(template: dict[str, Any], claims: Sequence[dict[str, Any]]) -> dict[str, Any]:
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


def claim_warnings(claims: Sequence[dict[str, Any]], suffix: str) -> list[str]:
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


def shown_claim_templates(claims: Sequence[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the templates as messages show them."""
    return [_shown(claim) for claim in claims] or None


def _shown(claim: dict[str, Any]) -> dict[str, Any]:
    status = claim.get("status") or {}
    return {
        **(claim.get("metadata") or {}),
        "Spec": internal("PersistentVolumeClaimSpec", claim.get("spec")),
        "Status": {
            name: status.get(name[0].lower() + name[1:]) or ("" if name == "Phase" else None) for name in _STATUS_FIELDS
        },
    }  # fmt: skip
