"""Predicates that select the changes that enqueue a reconcile, for `when` of controllers and watches.

    Controller(Teapot, brew, when=any_of(generation_changed, labels_changed))

All of them accept creations and deletions: they only filter updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Obj = dict[str, Any]
Predicate = Callable[[Obj | None, Obj | None], bool]
"""Called with (None, new) for a creation, (old, new) for an update and (old, None) for a deletion; returns whether to
enqueue a reconcile."""


def always(old: Obj | None, new: Obj | None) -> bool:
    return True


def generation_changed(old: Obj | None, new: Obj | None) -> bool:
    """Return whether the desired state changed or the object is being deleted; not its status, labels or annotations.

    Only for kinds with generations: custom kinds have them, a ConfigMap does not.
    """
    return _differ(old, new, "generation")


def labels_changed(old: Obj | None, new: Obj | None) -> bool:
    """Return whether a label was added, removed or changed."""
    return _differ(old, new, "labels")


def annotations_changed(old: Obj | None, new: Obj | None) -> bool:
    """Return whether an annotation was added, removed or changed."""
    return _differ(old, new, "annotations")


def resource_version_changed(old: Obj | None, new: Obj | None) -> bool:
    """Return whether anything changed at all."""
    return _differ(old, new, "resourceVersion")


def any_of(*predicates: Predicate) -> Predicate:
    """Return a predicate that is true if any of `predicates` is."""
    return lambda old, new: any(predicate(old, new) for predicate in predicates)


def all_of(*predicates: Predicate) -> Predicate:
    """Return a predicate that is true if all of `predicates` are."""
    return lambda old, new: all(predicate(old, new) for predicate in predicates)


def _differ(old: Obj | None, new: Obj | None, field: str) -> bool:
    if old is None or new is None:
        return True
    # Missing labels and an empty map of labels are equal.
    return (old["metadata"].get(field) or None) != (new["metadata"].get(field) or None)
