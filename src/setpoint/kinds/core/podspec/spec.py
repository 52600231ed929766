"""Validation of a pod spec, wherever it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.core.podspec.options import CREATE, PodOptions
from setpoint.meta.field import Errors, required


def validate_pod_spec(
    spec: Mapping[str, Any],
    path: str,
    errs: Errors,
    *,
    meta: Mapping[str, Any] | None = None,
    options: PodOptions = CREATE,
) -> None:
    """`meta` is the Pod's own metadata; None for templates, whose pods have no name yet."""
    if not spec.get("containers"):
        errs.append(required(f"{path}.containers", ""))
