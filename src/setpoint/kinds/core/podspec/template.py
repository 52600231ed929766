"""Pod templates: the pod inside every workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.core.podspec.annotations import validate_pod_annotations, validate_profiles_match
from setpoint.kinds.core.podspec.options import CREATE, PodOptions
from setpoint.kinds.core.podspec.spec import validate_pod_spec
from setpoint.meta.field import Errors, forbidden
from setpoint.meta.objectmeta import validate_annotations, validate_labels


def validate_pod_template(
    template: Mapping[str, Any], path: str, errs: Errors, *, options: PodOptions = CREATE
) -> None:
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    # Upstream leaves `metadata` out of these two paths.
    validate_labels(meta.get("labels"), f"{path}.labels", errs)
    annotations = meta.get("annotations")
    if annotations:
        validate_annotations(annotations, f"{path}.annotations", errs)
        validate_pod_annotations(
            annotations,
            spec,
            f"{path}.annotations",
            errs,
            allow_invalid_deletion_cost=options.allow_invalid_deletion_cost,
            allow_comparison=options.allow_toleration_comparison,
        )
    validate_pod_spec(spec, f"{path}.spec", errs, options=options)
    if annotations:
        validate_profiles_match(annotations, spec, f"{path}.spec", errs)
    if spec.get("ephemeralContainers"):
        errs.append(forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"))
