"""Conditions of a terminating namespace."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from setpoint.controllers.namespace.content import Remainder
from setpoint.meta.times import format_time

Obj = dict[str, Any]

_WELL = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
"""The conditions in the order of the status, with reason and message for the healthy case."""


def conditions_of(current: Iterable[Obj], found: Remainder, now: datetime) -> list[Obj]:
    """Return `current` updated with what was found; other conditions stay. Equal to `current` if nothing changed."""
    bad = _bad(found)
    conditions = [dict(one) for one in current]
    for kind, well in _WELL.items():
        status, (reason, message) = ("True", bad[kind]) if kind in bad else ("False", well)
        one = next((old for old in conditions if old["type"] == kind), None)
        if one is None:
            one = {"type": kind}
            conditions.append(one)
        if one.get("status") != status:
            one["lastTransitionTime"] = format_time(now)
        one.update(status=status, reason=reason, message=message)
    return conditions


def _bad(found: Remainder) -> dict[str, tuple[str, str]]:
    bad: dict[str, tuple[str, str]] = {}
    if found.undiscovered:
        bad["NamespaceDeletionDiscoveryFailure"] = ("DiscoveryFailed", found.undiscovered)
    if found.failures:
        message = f"Failed to delete all resource types, {len(found.failures)} remaining: "
        message += ", ".join(sorted(found.failures))
        bad["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", message)
    if found.only_pods:
        # While Pods terminate, upstream does not report the remaining content.
        return bad
    if found.counts:
        each = sorted(f"{one.plural}.{one.group} has {count} resource instances" for one, count in found.counts.items())
        message = f"Some resources are remaining: {', '.join(each)}"
        bad["NamespaceContentRemaining"] = ("SomeResourcesRemain", message)
    if found.finalizers:
        each = sorted(f"{name} in {count} resource instances" for name, count in found.finalizers.items())
        message = f"Some content in the namespace has finalizers remaining: {', '.join(each)}"
        bad["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
    return bad
