"""Whether a change is worth a look: for `when` of controllers and of what they watch.

    Controller(Teapot, brew, when=any_of(generation_changed, labels_changed))

All of them let through what appears and what goes: they only tell changes apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Obj = dict[str, Any]
Predicate = Callable[[Obj | None, Obj | None], bool]
"""(None, new): appeared; (old, new): changed; (old, None): gone. Whether that is worth a look."""


def always(old: Obj | None, new: Obj | None) -> bool:
    return True


def generation_changed(old: Obj | None, new: Obj | None) -> bool:
    """What is asked for changed, or the object is to go; not its status, labels or annotations. Only for kinds that
    count generations: custom ones do, a ConfigMap does not."""
    return _differ(old, new, "generation")


def labels_changed(old: Obj | None, new: Obj | None) -> bool:
    """Some label is new, gone or another."""
    return _differ(old, new, "labels")


def annotations_changed(old: Obj | None, new: Obj | None) -> bool:
    """Some annotation is new, gone or another."""
    return _differ(old, new, "annotations")


def resource_version_changed(old: Obj | None, new: Obj | None) -> bool:
    """Anything changed at all."""
    return _differ(old, new, "resourceVersion")


def any_of(*predicates: Predicate) -> Predicate:
    """One of them says yes."""
    return lambda old, new: any(predicate(old, new) for predicate in predicates)


def all_of(*predicates: Predicate) -> Predicate:
    """None of them says no."""
    return lambda old, new: all(predicate(old, new) for predicate in predicates)


def _differ(old: Obj | None, new: Obj | None, field: str) -> bool:
    if old is None or new is None:
        return True
    # No labels, and an empty map of them, are the same.
    return (old["metadata"].get(field) or None) != (new["metadata"].get(field) or None)
