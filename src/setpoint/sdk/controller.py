"""What an operator does about one kind: declared as a value."""

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
    """Another kind whose changes concern objects of the controller's: `keys(obj)` says which, as `namespace/name`."""

    kind: Kind[Any, Any]
    keys: Callable[[Obj], Sequence[str]]
    when: Predicate = always


@dataclass(frozen=True)
class Refers:
    """Another kind that objects of the controller's refer to: `names(obj)` says to which, as `name` where they are in
    the same namespace, or as `namespace/name`. A change of one is a reason to look at all that refer to it:

    Refers(Secret, lambda teapot: [teapot.spec.secret])
    """

    kind: Kind[Any, Any]
    names: Callable[[Object[Any, Any]], Sequence[str]]
    when: Predicate = always


@dataclass(frozen=True)
class Controller(Generic[Spec, Status]):
    """What is reconciled, and with what. A value: `Operator` makes a loop of it."""

    kind: Kind[Spec, Status]
    reconcile: Callable[[Context[Spec, Status], Object[Spec, Status]], Awaitable[Result | None]]
    """Brings the world closer to what the object asks for. Level-based: it looks at what is, not at what happened.
    Whatever it raises means: try again later."""
    owns: tuple[Kind[Any, Any], ...] = ()
    """Kinds of its children: a change of a child is a reason to look at its owner."""
    watches: tuple[Watch | Refers, ...] = ()
    when: Predicate = always
    """Which changes of the objects themselves are worth a look; see `setpoint.sdk.predicates`."""
    finalizer: str = ""
    """Put on every object before its first reconcile, so that it stays until `finalize` is done."""
    finalize: Callable[[Context[Spec, Status], Object[Spec, Status]], Awaitable[Result | None]] | None = None
    """What has to happen outside before an object may go. A Result means: not yet."""
    workers: int = 4
    """So many objects at once."""
    namespace: str = ""
    """Only there; empty: everywhere, or where the operator is told to work."""
    selector: str = ""
    """Only objects with such labels: `app=tea,tier!=test`."""
    resync: float = 0.0
    """Look at every object again after so many seconds at most, and up to a tenth more so that not all come at once,
    even if nothing seems to have changed: for what lies outside of the cluster. 0: never."""
    timeout: float = 0.0
    """A reconcile that takes longer has failed. 0: it may take its time."""
    retry: tuple[float, float] = (FIRST_RETRY, LONGEST_RETRY)
    """Seconds until one that failed is tried again, doubling from the first to the second."""
    name: str = ""
    """In logs, events and metrics, and as the owner of fields; by default `teapot-operator` for Teapots."""

    def __post_init__(self) -> None:
        if bool(self.finalizer) != bool(self.finalize):
            raise ValueError("a finalizer, and what is done to finalize: one without the other makes no sense")
        if not self.name:
            object.__setattr__(self, "name", f"{self.kind.kind.lower()}-operator")
