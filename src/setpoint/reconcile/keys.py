"""What goes through queues: `namespace/name`, or the name alone for objects that are in no namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def key_of(obj: Mapping[str, Any]) -> str:
    meta = obj["metadata"]
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])


def split_key(key: str) -> tuple[str, str]:
    """Namespace (empty: none) and name."""
    namespace, _, name = key.rpartition("/")
    return namespace, name


def controller_of(obj: Mapping[str, Any]) -> dict[str, Any] | None:
    """The one owner that manages the object; None for an orphan."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: dict[str, Any] = reference
            return found
    return None
