"""Workqueue keys: `namespace/name`, or the name alone for cluster-scoped objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.meta.objects import ObjView

if TYPE_CHECKING:
    from setpoint.kinds.typed.metadata import OwnerReference


def key_of(obj: ObjView) -> str:
    meta = obj["metadata"]
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])


def split_key(key: str) -> tuple[str, str]:
    """Return namespace (empty for cluster-scoped objects) and name."""
    namespace, _, name = key.rpartition("/")
    return namespace, name


def controller_of(obj: ObjView) -> OwnerReference | None:
    """Return the owner reference of the object's controller, or None for an orphan."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: OwnerReference = reference
            return found
    return None
