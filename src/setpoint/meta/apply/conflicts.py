"""Errors that stop an apply."""

from __future__ import annotations

from setpoint.meta.apply.field_set import FieldSet, contains, path_text, paths
from setpoint.meta.apply.managers import ManagerId
from setpoint.meta.errors import Conflict, PlainServerError


class TypeMismatch(PlainServerError):
    """The configuration does not fit the type of its kind: 500 without a reason, as the reference answers."""


class Conflicts(Exception):
    """Fields that other managers own and that the configuration sets to other values."""

    def __init__(self, by_manager: dict[ManagerId, FieldSet]) -> None:
        super().__init__("conflicts")
        self.found = [(who, path) for who in sorted(by_manager, key=ManagerId.json) for path in paths(by_manager[who])]

    def beyond(self, allowed: FieldSet) -> list[tuple[ManagerId, tuple[str, ...]]]:
        return [(who, path) for who, path in self.found if not contains(allowed, path)]


def conflict_error(found: list[tuple[ManagerId, tuple[str, ...]]]) -> Conflict:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {who.shown()}",
            "field": path_text(path),
        }
        for who, path in found
    ]
    if len(found) == 1:
        who, path = found[0]
        return Conflict.apply(causes, f"Apply failed with 1 conflict: conflict with {who.shown()}: {path_text(path)}")
    lines: list[str] = []
    last: ManagerId | None = None
    for who, path in found:
        if who != last:
            lines.append(f"conflicts with {who.shown()}:")
            last = who
        lines.append(f"- {path_text(path)}")
    return Conflict.apply(causes, f"Apply failed with {len(found)} conflicts: " + "\n".join(lines))
