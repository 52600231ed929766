"""The declaration of a controller for one kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from setpoint.reconcile import Result
from setpoint.reconcile.rate_limiting import FIRST_RETRY, LONGEST_RETRY
from setpoint.sdk.context import Context
from setpoint.sdk.kind import Kind, Object, Spec, Status
from setpoint.sdk.predicates import Predicate, always

Obj = dict[str, Any]
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
    """What to reconcile and how. This is a value: `Operator` creates the running loop."""

    kind: Kind[Spec, Status]
    reconcile: Callable[[Context[Spec, Status], Object[Spec, Status]], Awaitable[Result | None]]
    """Moves the observed state towards the desired state. Level-based: it acts on the current state, not on events. An
    exception requeues the key with exponential backoff; the result is ignored."""
    owns: tuple[Kind[Any, Any], ...] = ()
    """Kinds of the children: a change of a child enqueues its owner."""
    watches: tuple[Watch | Refers, ...] = ()
    when: Predicate = always
    """Selects the changes of the objects that enqueue a reconcile; see `setpoint.sdk.predicates`."""
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
    retry: tuple[float, float] = (FIRST_RETRY, LONGEST_RETRY)
    """The first and the longest delay in seconds before a failed reconcile is retried; the delay doubles each time."""
    name: str = ""
    """The name in logs, events and metrics, and the field manager; by default `teapot-operator` for Teapots."""

    def __post_init__(self) -> None:
        if bool(self.finalizer) != bool(self.finalize):
            raise ValueError("a finalizer, and what is done to finalize: one without the other makes no sense")
        if not self.name:
            object.__setattr__(self, "name", f"{self.kind.kind.lower()}-operator")
