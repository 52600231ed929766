"""The differences between the objects of two moments: which were created, changed and deleted, and what in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from setpoint.meta.objects import Obj, ObjView
from setpoint.view.changes import changes, path_text, summary

SIGNS: Final = {"+": "created", "~": "changed", "-": "deleted"}
_IGNORED_METADATA: Final = ("managedFields", "resourceVersion", "generation")

ObjectName = tuple[str, str]
"""Namespace, empty for objects of the cluster, and name."""


class Difference(NamedTuple):
    sign: str
    """`+`, `~` or `-`: created, changed, deleted."""
    namespace: str
    name: str
    before: Obj | None
    now: Obj | None


def compared(obj: ObjView | None, *, status: bool = False) -> Obj | None:
    """Return an object without what is not compared: what the server maintains, and the status unless asked for."""
    if obj is None:
        return None
    meta = {name: value for name, value in obj["metadata"].items() if name not in _IGNORED_METADATA}
    found: dict[str, Any] = {name: value for name, value in obj.items() if status or name != "status"}
    return {**found, "metadata": meta}


def differences(
    before: Mapping[ObjectName, ObjView], now: Mapping[ObjectName, ObjView], *, status: bool = False
) -> list[Difference]:
    """Return the differences between the objects of one resource at two moments, by namespace and name."""
    found = []
    for key in sorted({*before, *now}):
        old, new = (compared(each.get(key), status=status) for each in (before, now))
        if old != new:
            sign = "+" if old is None else "-" if new is None else "~"
            found.append(Difference(sign, *key, old, new))
    return found


def difference_text(found: Difference, *, hide_values: bool) -> str:
    """Return what has changed in an object on one line; empty if it was created or deleted.

    `hide_values` names the fields only, as for Secrets."""
    if found.before is None or found.now is None:
        return ""
    changed = changes(found.before, found.now)
    if hide_values:
        return ", ".join(path_text(each.path) for each in changed)
    return summary(changed)
