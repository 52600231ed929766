"""Versions as Kubernetes ranks them: v2, v1, v1beta2, v1beta1, v1alpha1, then all others by name."""

from __future__ import annotations

import re
from typing import Any

from setpoint.meta.objects import ObjView

_VERSION = re.compile(r"v([0-9]{1,18})((alpha|beta)([0-9]{1,18}))?")
_STAGES = {None: 3, "beta": 2, "alpha": 1}


def version_rank(version: str) -> tuple[Any, ...]:
    """Return the sort key that puts the preferred version first."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (1, version)
    return (0, -_STAGES[found[3]], -int(found[1]), -int(found[4] or 0))


def deprecation_warning(spec: ObjView, version: str) -> str:
    """Return the deprecation warning of a version; empty if it is not deprecated."""
    given = next(one for one in spec["versions"] if one["name"] == version)
    if not given.get("deprecated"):
        return ""
    if given.get("deprecationWarning") is not None:
        return str(given["deprecationWarning"])
    group, kind = spec["group"], spec["names"]["kind"]
    better = [one["name"] for one in spec["versions"] if one.get("served") and not one.get("deprecated")]
    better = sorted((name for name in better if version_rank(name) < version_rank(version)), key=version_rank)
    text = f"{group}/{version} {kind} is deprecated"
    return f"{text}; use {group}/{better[0]} {kind}" if better else text
