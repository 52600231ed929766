"""Matches ReplicaSets with Pod templates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Obj = dict[str, Any]

HASH_LABEL = "pod-template-hash"
_LONGEST_NAME = 253


def set_name(deployment: str, template_hash: str) -> str:
    return f"{deployment[: _LONGEST_NAME - 1 - len(template_hash)]}-{template_hash}"


def same_template(left: Obj, right: Obj) -> bool:
    return bool(_without_hash(left) == _without_hash(right))


def _without_hash(template: Obj) -> Obj:
    meta = dict(template.get("metadata") or {})
    labels = {key: value for key, value in (meta.pop("labels", None) or {}).items() if key != HASH_LABEL}
    return {**template, "metadata": {key: value for key, value in meta.items() if value}, "labels": labels}


def split(deployment: Obj, sets: Iterable[Obj]) -> tuple[Obj | None, list[Obj]]:
    """Return the ReplicaSet of the current template (the oldest if there are several) and all others, oldest first."""
    by_age = sorted(sets, key=lambda found: (found["metadata"].get("creationTimestamp", ""), found["metadata"]["name"]))
    template = deployment["spec"]["template"]
    new = next((found for found in by_age if same_template(found["spec"]["template"], template)), None)
    return new, [found for found in by_age if found is not new]
