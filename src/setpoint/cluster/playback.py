"""Plays a recording: a read-only API server on which every recorded change happens again, at its revision.

Controllers under development see the recorded stream of events, at any speed. Nothing reacts to it here: the changes of
the recorded loops are in the recording.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.filters.authenticate import AuthenticatorChain
from setpoint.apiserver.health import BOOTSTRAPPED
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.rendering import respond_status
from setpoint.cluster.apiserver import serving_tls
from setpoint.cluster.authentication import ClientTrust
from setpoint.cluster.cluster_copy import ClusterCopy
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.kubeconfigs import write_kubeconfigs
from setpoint.cluster.private_files import ensure_private_directory
from setpoint.cluster.snapshot_file import StoredChange
from setpoint.cluster.wiring import build_server
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import MethodNotAllowed
from setpoint.store.history import History
from setpoint.store.interface import Event, KeyValue
from setpoint.store.memory import MemoryStore
from setpoint.system import RandomIds
from setpoint.wire.message import Answer, Handler, Request
from setpoint.wire.server import Server

_REVIEWS = ("/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/")
_MAX_PAUSE = 3600.0


class PlaybackStore(MemoryStore):
    """A store whose revisions are those of a recording."""

    def play(self, change: StoredChange) -> None:
        """Let a recorded change happen."""
        history, events = self._history, []
        for key, value in change.writes:
            before = history.state.get(key)
            if value is None and before is None:
                continue
            created = before.create_revision if before is not None else change.revision
            now = None if value is None else KeyValue(key, value, created, change.revision)
            events.append(Event(change.revision, key, now, before))
        if events and change.revision > history.revision:
            history.apply(events, orjson.dumps(change.cause) if change.cause else b"")
            self._subscriptions.publish(events, history.revision)
            if self._waiters:
                self._wake_waiters()


@dataclass(slots=True)
class Playback:
    """A server that plays a recording."""

    store: PlaybackStore
    url: str
    kubeconfig: Path


@asynccontextmanager
async def playback(
    copy: ClusterCopy, directory: Path, port: int, clock: Clock, ids: Ids | None = None
) -> AsyncIterator[Playback]:
    """Serve the beginning of a recording on the loopback interface; `PlaybackStore.play` continues it. Raises
    ConfigError, OSError."""
    ids = ids or RandomIds()
    store = PlaybackStore(History(copy.objects.values(), copy.revision))
    config = ApiServerConfig(directory, port=port, store="memory", authorization_mode=["RBAC"])
    ensure_private_directory(directory)
    context, files = serving_tls(config, clock)
    trust = ClientTrust(config, files.ca, context, clock)
    resources = ApiResources(store, clock, ids)
    api = build_server(resources, config, AuthenticatorChain(trust.authenticators, False), certificates=files)
    handle = _read_only(api.handle)
    server = Server(handle, clock=clock, slicer=resources.slicer, ssl=context, on_error=api.unexpected)
    host, bound = await server.start("127.0.0.1", port)
    try:
        await api.start(f"{host}:{bound}")
        resources.post_start.finish(*BOOTSTRAPPED)
        url = f"https://{host}:{bound}"
        kubeconfig = write_kubeconfigs(directory, "recording", url, files, clock, "")
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(api.parts.definitions.run())
            try:
                yield Playback(store, url, kubeconfig)
            finally:
                serving.cancel()
    finally:
        await server.stop(1.0)
        await api.stop()
        await store.close()


def _read_only(handle: Handler) -> Handler:
    async def answer(request: Request) -> Answer:
        if request.method not in ("GET", "HEAD") and not request.path.startswith(_REVIEWS):
            return respond_status(Form(), MethodNotAllowed("a recording cannot be changed", details={}))
        return await handle(request)

    return answer


async def play(
    changes: Iterable[StoredChange],
    start: int,
    clock: Clock,
    show: Callable[[StoredChange], None],
    *,
    speed: float = 1.0,
    until: int = 0,
) -> int:
    """Call `show` for each change at its moment, `speed` times as fast, and return how many there were. `start` is the
    beginning of the recording in milliseconds since the epoch. Changes after the revision `until` are left out."""
    began, count = clock.monotonic(), 0
    for change in changes:
        if until and change.revision > until:
            break
        due = began + max(change.at - start, 0) / 1000 / speed
        await clock.sleep(min(max(due - clock.monotonic(), 0.0), _MAX_PAUSE))
        show(change)
        count += 1
    return count
