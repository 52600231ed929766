"""What is written in a cluster in memory: a digest of all of it, and who wrote what lately."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextvars import ContextVar
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from setpoint.apiserver.filters.in_process import InProcessAuthenticator
from setpoint.apiserver.http.message import Answer, Handler, Request
from setpoint.meta.clock import Clock
from setpoint.store.interface import Event
from setpoint.store.memory import MemoryStore

if TYPE_CHECKING:
    from hashlib import _Hash as Digest

_KEPT = 4096
_NODES = "core/nodes/"
_HEARTBEATS = ("coordination.k8s.io/leases/", "core/events/")
_ACCOUNTS, _CONTROLLERS, _NODE = "system:serviceaccount:", "system:serviceaccount:kube-system:", "system:node:"

_asking: ContextVar[Request | None] = ContextVar("asking", default=None)
"""What the current task answers, if it is anything that may change something."""


class Written(NamedTuple):
    """One object's change."""

    at: float
    """On the monotonic clock."""
    who: str
    """As people call it: a controller, an operator, a kubelet, a user."""
    key: str
    before: bytes | None
    """The object as it was stored; None: it was not there."""
    now: bytes | None


class Journal:
    """A memory store tells of a write in the very task that writes. So it is enough to know what that task is doing."""

    def __init__(self, store: MemoryStore, clock: Clock, past: Digest | None = None) -> None:
        """`past` is of what the store has seen before."""
        self._clock = clock
        self._digest = sha256() if past is None else past.copy()
        self._authenticator = InProcessAuthenticator()
        self.news = 0
        """How much was written that is no heartbeat and no event."""
        self.written: deque[Written] = deque(maxlen=_KEPT)
        """That, lately."""
        store.watch("", store.revision, self._see)

    def listening(self, handle: Handler) -> Handler:
        """Requests that come this way are known by who makes them."""

        async def heard(request: Request) -> Answer:
            if request.method == "GET":
                return await handle(request)
            before = _asking.set(request)
            try:
                return await handle(request)
            finally:
                _asking.reset(before)

        return heard

    def _see(self, events: Sequence[Event], revision: int) -> None:
        at, who = self._clock.monotonic(), None
        for event in events:
            key, now, before = event.key, event.now, event.before
            value = b"" if now is None else now.value
            self._digest.update(b"%d %s %d\n%s" % (event.revision, key.encode(), len(value), value))
            if key.startswith(_HEARTBEATS):
                continue
            if who is None:
                who = self._who()
            if key.startswith(_NODES) and who.startswith("kubelet"):
                continue
            self.news += 1
            self.written.append(
                Written(at, who, key, None if before is None else before.value, None if now is None else value)
            )

    def _who(self) -> str:
        request = _asking.get()
        if request is None:
            return "kube-apiserver"
        user = self._authenticator.authenticate(request)
        name = request.headers.get("impersonate-user") or (user.name if user is not None else "somebody")
        if name.startswith(_CONTROLLERS):
            return name[len(_CONTROLLERS) :]
        if name.startswith(_ACCOUNTS):
            return "service account " + name[len(_ACCOUNTS) :].replace(":", "/")
        if name.startswith(_NODE):
            return "kubelet of " + name[len(_NODE) :]
        agent = request.headers.get("user-agent", "").partition("/")[0]
        if name.startswith("system:"):
            return agent or name
        # Whoever names itself is meant by that name: an operator in a test writes with its author's rights.
        return name if agent in ("", "setpoint") else agent

    def digest(self) -> Digest:
        """Of every revision so far: two runs that did the same have the same."""
        return self._digest.copy()
