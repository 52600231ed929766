"""The writes to an in-memory store: a digest of all of them, and the latest with their authors."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextvars import ContextVar
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from setpoint.apiserver.filters.authenticate import InProcessAuthenticator
from setpoint.meta.clock import Clock
from setpoint.store.interface import Event
from setpoint.store.memory import MemoryStore
from setpoint.wire.message import Answer, Handler, Request

if TYPE_CHECKING:
    from hashlib import _Hash as Digest


_MAX_WRITES = 4096
_MAX_SIZE = 16 << 20
"""Bytes of the objects of the latest writes."""
_NODES = "core/nodes/"
_HEARTBEATS = ("coordination.k8s.io/leases/", "core/events/")
_SERVICE_ACCOUNT_PREFIX, _CONTROLLER_PREFIX, _NODE_PREFIX = (
    "system:serviceaccount:",
    "system:serviceaccount:kube-system:",
    "system:node:",
)

_current_request: ContextVar[Request | None] = ContextVar("current_request", default=None)
"""The request other than GET that the current task handles; None if there is none."""


class LoggedWrite(NamedTuple):
    """The change of one object."""

    at: float
    """The time of the write on the monotonic clock, in seconds."""
    writer: str
    """The usual name of the writer: a controller, an operator, a kubelet, a user."""
    key: str
    """The storage key of the object."""
    before: bytes | None
    """The stored object before the write; None if it was created."""
    now: bytes | None
    """The stored object after the write; None if it was deleted."""


class WriteLog:
    """Records the writes to a memory store. The store notifies watchers in the task that writes, so the request of that
    task identifies the writer."""

    def __init__(self, store: MemoryStore, clock: Clock, past: Digest | None = None) -> None:
        """`past` is the digest of earlier writes, if the store is a copy."""
        self._clock = clock
        self._digest = sha256() if past is None else past.copy()
        self._authenticator = InProcessAuthenticator()
        self.change_count = 0
        """The number of writes so far, except heartbeats and Events."""
        self.writes: deque[LoggedWrite] = deque()
        """The latest of these writes."""
        self._size = 0
        """Bytes of the objects in `writes`."""
        store.watch("", store.revision, self._record)

    def recording(self, handle: Handler) -> Handler:
        """Return a handler that makes the request known to the writes in it."""

        async def recorded(request: Request) -> Answer:
            if request.method == "GET":
                return await handle(request)
            before = _current_request.set(request)
            try:
                return await handle(request)
            finally:
                _current_request.reset(before)

        return recorded

    def _record(self, events: Sequence[Event], revision: int) -> None:
        at, writer = self._clock.monotonic(), None
        for event in events:
            key, now, before = event.key, event.now, event.before
            value = b"" if now is None else now.value
            self._digest.update(b"%d %s %d\n%s" % (event.revision, key.encode(), len(value), value))
            if key.startswith(_HEARTBEATS):
                continue
            if writer is None:
                writer = self._writer()
            if key.startswith(_NODES) and writer.startswith("kubelet"):
                continue
            self.change_count += 1
            self._keep(
                LoggedWrite(at, writer, key, None if before is None else before.value, None if now is None else value)
            )

    def _keep(self, write: LoggedWrite) -> None:
        self.writes.append(write)
        self._size += _size(write)
        while len(self.writes) > _MAX_WRITES or self._size > _MAX_SIZE:
            self._size -= _size(self.writes.popleft())

    def _writer(self) -> str:
        request = _current_request.get()
        if request is None:
            return "kube-apiserver"
        user = self._authenticator.authenticate(request)
        name = request.headers.get("impersonate-user") or (user.name if user is not None else "unknown")
        if name.startswith(_CONTROLLER_PREFIX):
            return name[len(_CONTROLLER_PREFIX) :]
        if name.startswith(_SERVICE_ACCOUNT_PREFIX):
            return "service account " + name[len(_SERVICE_ACCOUNT_PREFIX) :].replace(":", "/")
        if name.startswith(_NODE_PREFIX):
            return "kubelet of " + name[len(_NODE_PREFIX) :]
        agent = request.headers.get("user-agent", "").partition("/")[0]
        if name.startswith("system:"):
            return agent or name
        # The user agent names an operator under test, which writes with the rights of its author.
        return name if agent in ("", "setpoint") else agent

    def digest(self) -> Digest:
        """Return the digest of all revisions so far: equal runs have equal digests."""
        return self._digest.copy()


def _size(write: LoggedWrite) -> int:
    return len(write.before or b"") + len(write.now or b"")
