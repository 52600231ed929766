"""The facts from which an answer is made, as Protocols that the API server implements."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from setpoint.meta.cause import WriteCause
from setpoint.meta.objects import ObjView
from setpoint.view.why.answer import ContainerLog


class Ref(NamedTuple):
    """The identity of an object."""

    group: str
    plural: str
    kind: str
    namespace: str
    """Empty for cluster-scoped objects."""
    name: str

    @property
    def text(self) -> str:
        """The short form: `deployment/web`."""
        return f"{self.kind.lower()}/{self.name}"

    @property
    def path(self) -> str:
        """The form in which controllers name it: `default/web`."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Written(NamedTuple):
    """One committed write."""

    revision: int
    cause: WriteCause | None
    """The recorded cause; None if nothing was recorded."""
    keys: Sequence[str]


class ObjectVersion(NamedTuple):
    """An object as one write left it."""

    revision: int
    created: int
    """The revision of the object's creation."""
    obj: ObjView | None
    """The object; None if it was deleted at this revision."""


class History(Protocol):
    """The recorded writes, as far as they are retained."""

    @property
    def now(self) -> int:
        """The present, in milliseconds since the epoch."""
        ...

    @property
    def oldest(self) -> int:
        """The oldest revision whose state can be read."""
        ...

    @property
    def newest(self) -> int: ...

    def ref(self, key: str) -> Ref: ...

    async def may_read(self, key: str) -> bool:
        """Return whether the asker may get the object."""
        ...

    async def write(self, revision: int) -> Written | None:
        """Return the write with this revision; None if there is none, or it is no longer retained."""
        ...

    async def versions(self, key: str, before: int, limit: int) -> list[ObjectVersion]:
        """Return versions of an object with revisions less than `before` (0 means all), newest first; at most
        `limit`."""
        ...

    async def at(self, key: str, revision: int) -> ObjView | None:
        """Return the object as of a revision; None if it did not exist, or this is not known."""
        ...

    async def recent(self, before: int, since: int, limit: int) -> list[Written]:
        """Return the writes with revisions less than `before` and times of at least `since` (milliseconds), newest
        first; at most the newest `limit`."""
        ...

    def watched(self, cause: WriteCause) -> Collection[str]:
        """Return the prefixes of the keys (`apps/deployments/`) that the author of a write watched at the time."""
        ...


class Refusal(NamedTuple):
    """A write that the server refused."""

    at: int
    """Milliseconds since the epoch."""
    user: str
    agent: str
    verb: str
    resource: str
    """`pods` or `deployments.apps`."""
    namespace: str
    name: str
    key: str
    """The key of the reconcile that attempted it; empty if the client names none."""
    status: int
    reason: str
    message: str


class LoopKey(NamedTuple):
    """The state of one key in one controller."""

    controller: str
    position: int
    """The place in the queue, from 1; 0 if it is not queued."""
    working: bool
    """Whether it is reconciled right now."""
    due: int
    """When it is retried or due, in milliseconds since the epoch; 0 if it is not scheduled."""
    failures: int
    error: str
    """The error of its last reconcile; empty if that succeeded or none is known."""
    last_run: int
    """When its last reconcile ended, in milliseconds since the epoch; 0 if none is known."""
    since: int = 0
    """Since when it is queued or reconciled, in milliseconds since the epoch; 0 if it is neither, or not known."""
    others: Sequence[str] = ()
    """Some other keys that are reconciled right now."""
    failing_since: int = 0
    """When the first of its latest failures happened, in milliseconds since the epoch; 0 if the last reconcile did not
    fail, or this is not known."""


class Hold(NamedTuple):
    """A control loop that a user has paused or slowed down."""

    loop: str
    mode: str
    """`paused` or `slow`."""
    by: str
    """The user; empty if not known."""
    until: int
    """When the loop runs again by itself, in milliseconds since the epoch; 0 if not known."""


class InformerState(NamedTuple):
    """The progress of an informer of a component, which receives the objects of a resource."""

    component: str
    """`kube-controller-manager`."""
    resource: str
    """`pods` or `deployments.apps`."""
    selective: bool
    """Whether it receives only objects of a namespace, or those that match a selector."""
    synced: bool
    """Whether it has received all objects that existed at its start. Before, the component's loops do not run."""
    revision: int
    """The revision up to which it has received all changes; 0 if it has received none."""
    error: str
    """Why the last list or watch has failed; empty if one is open."""
    since: int
    """When the first of these failures happened, in milliseconds since the epoch; 0 if there is none."""
    retry: int
    """When it tries again, in milliseconds since the epoch; 0 if it is trying."""


class SchedulingAttempt(NamedTuple):
    """The last attempt to schedule a Pod that waits for a node."""

    attempts: int
    """The number of attempts so far."""
    at: int
    """The time of the last one, in milliseconds since the epoch."""
    message: str
    """The message of the condition PodScheduled."""
    verdicts: Sequence[tuple[str, str]]
    """Some nodes, and why the Pod does not fit there in the present state by the scheduler's plugins; empty if it
    fits."""


class LogBounds(NamedTuple):
    """How much of a log is read, and for how long."""

    lines: int
    size: int
    """Bytes."""
    seconds: float


class LogEnd(Enum):
    """Why the end of a log is not known."""

    FORBIDDEN = "forbidden"
    """The asker may not read it."""
    LATE = "late"
    """The node has not sent it in time."""
    UNKNOWN = "unknown"
    """The node cannot be reached, or does not have it."""


class Watcher(NamedTuple):
    """A client that watches a resource, or has done so lately."""

    user: str
    agent: str
    ended: int
    """When its last watch ended, in milliseconds since the epoch; 0 if one is open."""


class Facts(History, Protocol):
    """The present state besides the history. What the asker may not read is absent."""

    async def get(self, group: str, plural: str, namespace: str, name: str) -> ObjView | None: ...

    async def list(self, group: str, plural: str, namespace: str = "", owner: str = "") -> Sequence[ObjView]:
        """Return the objects of a resource; with `owner`, only those that the object with this uid controls."""
        ...

    def refusals(self, ref: Ref) -> Sequence[Refusal]:
        """Return the recent refused writes of an object, and those of the reconciles of its key, newest first."""
        ...

    def controllers(self) -> Collection[str] | None:
        """Return the names of the controllers that run in this process; None if they run elsewhere."""
        ...

    async def may_read_loops(self) -> bool:
        """Return whether the asker may read the errors of all control loops, which may name any object."""
        ...

    def loops(self, ref: Ref, controller: str = "") -> Sequence[LoopKey]:
        """Return the states of the object's key in the controllers of its kind that run in this process, or in the
        controller of this name."""
        ...

    def informers(self, ref: Ref) -> Sequence[InformerState]:
        """Return the informers of the component that reconciles the object, if it runs in this process."""
        ...

    def hold(self, ref: Ref) -> Hold | None:
        """Return the hold on the loop that reconciles the object; None if it runs, or runs elsewhere."""
        ...

    def attempt(self, ref: Ref) -> SchedulingAttempt | None:
        """Return the last attempt of the scheduler for a Pod; None if it does not wait, or this is not known here."""
        ...

    async def logs(self, logs: Sequence[ContainerLog], bounds: LogBounds) -> Sequence[bytes | LogEnd]:
        """Return the end of each log, at most as much as the bounds allow, or why it is not known."""
        ...

    def other_servers(self) -> int | None:
        """Return the number of other API servers of the cluster that run now; None if it is not known."""
        ...

    def watchers(self, ref: Ref) -> Sequence[Watcher]:
        """Return the clients of this API server that watch the object's resource now, or did within the last ten
        minutes."""
        ...
