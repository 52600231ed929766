"""The declaration of a controller for one kind, and the predicates that select the changes that enqueue a reconcile.

    Controller(Teapot, brew, when=any_of(generation_changed, labels_changed))

All predicates accept creations and deletions: they only filter updates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from setpoint.meta.objects import Obj
from setpoint.reconcile import Result
from setpoint.reconcile.workqueue import INITIAL_BACKOFF, MAX_BACKOFF
from setpoint.sdk.context import Context
from setpoint.sdk.kind import Kind, Object, Spec, Status

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


Reconcile = Callable[[Context[Any, Any], Object[Any, Any]], Awaitable[Result | None]]


@dataclass(frozen=True)
class Watch:
    """Another kind whose changes trigger reconciles: `keys(obj)` returns the keys to enqueue, as `namespace/name`."""

    kind: Kind[Any, Any]
    keys: Callable[[Obj], Sequence[str]]
    when: Predicate = always


@dataclass(frozen=True)
class Refers:
    """Another kind that the controller's objects refer to: a change enqueues all objects that refer to the changed one.

    `names(obj)` returns the referenced objects, as `name` in the same namespace, or as `namespace/name`:

    Refers(Secret, lambda teapot: [teapot.spec.secret])
    """

    kind: Kind[Any, Any]
    names: Callable[[Object[Any, Any]], Sequence[str]]
    when: Predicate = always


@dataclass(frozen=True)
class Controller(Generic[Spec, Status]):
    """A description of what to reconcile and how. This is a value: `Operator` creates the running loop."""

    kind: Kind[Spec, Status]
    reconcile: Callable[[Context[Spec, Status], Object[Spec, Status]], Awaitable[Result | None]]
    """Moves the observed state towards the desired state. Level-based: it acts on the current state, not on events. An
    exception requeues the key with exponential backoff; the result is ignored."""
    owns: tuple[Kind[Any, Any], ...] = ()
    """Kinds of the children: a change of a child enqueues its owner."""
    watches: tuple[Watch | Refers, ...] = ()
    when: Predicate = always
    """Selects the changes of the objects that enqueue a reconcile; see `setpoint.sdk.controller`."""
    finalizer: str = ""
    """The finalizer that is added to every object before its first reconcile, so that it exists until `finalize` is
    done; empty means none."""
    finalize: Callable[[Context[Spec, Status], Object[Spec, Status]], Awaitable[Result | None]] | None = None
    """Cleans up external resources before an object is deleted. A Result means that the cleanup is not finished."""
    workers: int = 4
    """The maximum number of concurrent reconciles."""
    namespace: str = ""
    """The namespace to watch; empty means the operator's namespace option, or all namespaces."""
    selector: str = ""
    """A label selector for the objects to reconcile, such as `app=tea,tier!=test`; empty selects all."""
    resync: float = 0.0
    """Seconds after which every object is reconciled again even without a change, plus up to a tenth of jitter: for
    state outside the cluster. 0 disables it."""
    timeout: float = 0.0
    """Seconds after which a reconcile fails; 0 means no limit."""
    retry: tuple[float, float] = (INITIAL_BACKOFF, MAX_BACKOFF)
    """The first and the longest delay in seconds before a failed reconcile is retried; the delay doubles each time."""
    name: str = ""
    """The name in logs, events and metrics, and the field manager; by default `teapot-operator` for Teapots."""

    def __post_init__(self) -> None:
        if bool(self.finalizer) != bool(self.finalize):
            raise ValueError("a finalizer, and what is done to finalize: one without the other makes no sense")
        if not self.name:
            object.__setattr__(self, "name", f"{self.kind.kind.lower()}-operator")
