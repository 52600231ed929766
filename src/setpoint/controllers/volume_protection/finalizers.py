"""Finalizers that protect an object while it is in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Obj = dict[str, Any]


def _has(obj: Mapping[str, Any], finalizer: str) -> bool:
    return finalizer in (obj["metadata"].get("finalizers") or ())


def may_lose(obj: Mapping[str, Any], finalizer: str) -> bool:
    """Return whether the object is being deleted and has the finalizer."""
    return "deletionTimestamp" in obj["metadata"] and _has(obj, finalizer)


def lacks(obj: Mapping[str, Any], finalizer: str) -> bool:
    """Return whether the object is not being deleted and lacks the finalizer."""
    return "deletionTimestamp" not in obj["metadata"] and not _has(obj, finalizer)


def with_finalizer(obj: Obj, finalizer: str) -> Obj:
    present = obj["metadata"].get("finalizers") or []
    return {**obj, "metadata": {**obj["metadata"], "finalizers": [*present, finalizer]}}


def without_finalizer(obj: Obj, finalizer: str) -> Obj:
    kept = [found for found in obj["metadata"].get("finalizers") or () if found != finalizer]
    return {**obj, "metadata": {**obj["metadata"], "finalizers": kept}}
