"""The facts for an answer: the history, the current objects, refused writes, watches and control loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import orjson

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain, Decision
from setpoint.apiserver.history.reader import HistoryReader, Version
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.watchers import Watchers
from setpoint.apiserver.why.pod_logs import read_ends
from setpoint.apiserver.worker import LARGE
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.cause import WriteCause
from setpoint.meta.errors import Expired
from setpoint.meta.objects import ObjView
from setpoint.meta.times import unix_milliseconds
from setpoint.view.loops import LOOPS_PATH
from setpoint.view.secrets import SECRETS, SecretMask
from setpoint.view.why.answer import ContainerLog
from setpoint.view.why.facts import (
    Hold,
    InformerState,
    LogBounds,
    LogEnd,
    LoopKey,
    ObjectVersion,
    Ref,
    Refusal,
    SchedulingAttempt,
    Watcher,
    Written,
)

_SLICE = 0.002
"""Seconds after which other work of the event loop gets its turn."""
_WATCHER_SECONDS = 600


class Loops(Protocol):
    """The control loops of this process."""

    def controllers(self) -> Collection[str]: ...

    def keys(self, ref: Ref, controller: str = "") -> Sequence[LoopKey]:
        """Return the states of an object's key in the controllers that reconcile its kind, or in one of them."""
        ...

    def informers(self, ref: Ref) -> Sequence[InformerState]: ...

    def hold(self, ref: Ref) -> Hold | None: ...

    @property
    def attempt(self) -> Callable[[str], SchedulingAttempt | None]:
        """Returns the last attempt to schedule the Pod with a key."""
        ...


@dataclass(slots=True)
class Sources:
    """The sources of the facts; the same for all questions."""

    api: ApiResources
    reader: HistoryReader
    authorizer: AuthorizerChain
    watchers: Watchers


class ServerFacts:
    """The facts for one question of one user."""

    def __init__(self, sources: Sources, user: UserInfo, asked: RequestContext | None = None) -> None:
        """`asked` is the request with whose rights logs are read; without it, none are."""
        self._asked = asked
        self._api = sources.api
        self._sources = sources
        self._reader = sources.reader
        self._user = user
        self._clock = sources.api.clock
        self.now = unix_milliseconds(self._clock.now())
        self._refs: dict[str, Ref] = {}
        self._readable: dict[str, bool] = {}
        self._decoded: dict[tuple[str, int], ObjView] = {}
        self._writes: dict[int, Written | None] = {}
        self._mask = SecretMask()
        """Values of Secrets, each with a number of its own."""
        self._slice_began = self._clock.monotonic()

    @property
    def oldest(self) -> int:
        return self._reader.oldest

    @property
    def newest(self) -> int:
        return self._reader.newest

    async def _pause(self) -> None:
        """Let other work of the event loop run if this has used its slice."""
        if self._clock.monotonic() - self._slice_began > _SLICE:
            await asyncio.sleep(0)
            self._slice_began = self._clock.monotonic()

    # -- identity and rights -------------------------------------------------------------------------------------------

    def ref(self, key: str) -> Ref:
        if key not in self._refs:
            group, plural, *rest = key.split("/", 3)
            group = "" if group == "core" else group
            namespace, name = rest if len(rest) == 2 else ("", rest[0] if rest else "")
            try:
                kind = self._api.registry(group, plural).resource.kind
            except KeyError:
                kind = plural  # a custom kind that is no longer served
            self._refs[key] = Ref(group, plural, kind, namespace, name)
        return self._refs[key]

    async def may_read(self, key: str) -> bool:
        if key not in self._readable:
            ref = self.ref(key)
            self._readable[key] = await self._may("get", ref.group, ref.plural, ref.namespace, ref.name)
        return self._readable[key]

    async def _may(self, verb: str, group: str, plural: str, namespace: str, name: str = "") -> bool:
        try:
            version = self._api.registry(group, plural).resource.version
        except KeyError:
            version = ""
        return await self._is_allowed(Access(self._user, verb, group, version, plural, namespace=namespace, name=name))

    async def _is_allowed(self, access: Access) -> bool:
        ruling = self._sources.authorizer.authorize(access)
        decision, _ = ruling if isinstance(ruling, tuple) else await ruling
        return decision is Decision.ALLOW

    async def may_read_loops(self) -> bool:
        return await self._is_allowed(Access(self._user, "get", path=LOOPS_PATH))

    # -- history -------------------------------------------------------------------------------------------------------

    async def write(self, revision: int) -> Written | None:
        if revision not in self._writes:
            await self._pause()
            try:
                found = await self._reader.writes(revision - 1, 1)
            except Expired:
                found = []
            known = bool(found) and found[0].revision == revision
            self._writes[revision] = Written(*found[0]) if known else None
        return self._writes[revision]

    async def versions(self, key: str, before: int, limit: int) -> list[ObjectVersion]:
        await self._pause()
        found = await self._reader.versions(key, before=before, limit=limit)
        return [ObjectVersion(each.revision, each.created, await self._decode(each)) for each in found]

    async def at(self, key: str, revision: int) -> ObjView | None:
        await self._pause()
        found = await self._reader.versions(key, before=revision + 1, limit=1)
        return await self._decode(found[0]) if found else None

    async def _decode(self, version: Version) -> ObjView | None:
        if version.value is None:
            return None
        which = (version.key, version.revision)
        if which not in self._decoded:
            value = version.value
            try:
                if len(value) < LARGE:
                    self._decoded[which] = orjson.loads(value)
                else:
                    self._decoded[which] = await self._api.worker.run(len(value), orjson.loads, value)
            except orjson.JSONDecodeError:  # encrypted, and the key is missing
                self._decoded[which] = {"metadata": {}}
            if version.key.startswith(SECRETS):
                self._decoded[which] = self._mask.masked(self._decoded[which])
            await self._pause()
        return self._decoded[which]

    async def recent(self, before: int, since: int, limit: int) -> list[Written]:
        await self._pause()
        try:
            found = await self._reader.writes(max(self.oldest - 1, before - limit - 1), limit)
        except Expired:
            return []
        known = [each for each in found if each.revision < before and each.cause is not None and each.cause.at >= since]
        return [Written(*each) for each in reversed(known)]

    def watched(self, cause: WriteCause) -> Collection[str]:
        user = cause.user.partition("<")[0]
        return self._sources.watchers.of_client(user, cause.agent, cause.at)

    # -- the present ---------------------------------------------------------------------------------------------------

    async def get(self, group: str, plural: str, namespace: str, name: str) -> ObjView | None:
        cache = self._api.caches.get(f"{group or 'core'}/{plural}/")
        if cache is None or not await self._may("get", group, plural, namespace, name):
            return None
        entry = cache.get(f"{cache.prefix}{namespace}/{name}" if namespace else cache.prefix + name)
        return entry.obj if entry is not None else None

    async def list(self, group: str, plural: str, namespace: str = "", owner: str = "") -> Sequence[ObjView]:
        cache = self._api.caches.get(f"{group or 'core'}/{plural}/")
        if cache is None or not await self._may("list", group, plural, namespace):
            return ()
        found = []
        mark = owner.encode()
        for place, entry in enumerate(tuple(cache.scan(namespace))):
            # An object that does not contain the uid need not be decoded.
            if not owner or (mark in entry.value and _is_controlled(entry.obj, owner)):
                found.append(entry.obj)
            if not place % 16:
                await self._pause()
        return found

    def refusals(self, ref: Ref) -> Sequence[Refusal]:
        refused = self._api.refusals
        resource = f"{ref.plural}.{ref.group}" if ref.group else ref.plural
        return refused.of(resource, ref.namespace, ref.name) if refused is not None else ()

    def controllers(self) -> Collection[str] | None:
        loops = self._api.loops
        return loops.controllers() if loops is not None else None

    def loops(self, ref: Ref, controller: str = "") -> Sequence[LoopKey]:
        loops = self._api.loops
        return loops.keys(ref, controller) if loops is not None else ()

    def informers(self, ref: Ref) -> Sequence[InformerState]:
        loops = self._api.loops
        return loops.informers(ref) if loops is not None else ()

    def hold(self, ref: Ref) -> Hold | None:
        loops = self._api.loops
        return loops.hold(ref) if loops is not None else None

    def attempt(self, ref: Ref) -> SchedulingAttempt | None:
        loops = self._api.loops
        return loops.attempt(ref.path) if loops is not None and ref.kind == "Pod" else None

    async def logs(self, logs: Sequence[ContainerLog], bounds: LogBounds) -> Sequence[bytes | LogEnd]:
        serve = self._api.serve_further
        if serve is None or self._asked is None:
            return [LogEnd.UNKNOWN] * len(logs)
        return await read_ends(partial(serve, self._asked), self._clock, self._asked.request, logs, bounds)

    def other_servers(self) -> int | None:
        if not self._api.store.shared:
            return 0
        return self._api.other_servers() if self._api.other_servers is not None else None

    def watchers(self, ref: Ref) -> Sequence[Watcher]:
        prefix = f"{ref.group or 'core'}/{ref.plural}/"
        found = self._sources.watchers.of_resource(prefix, self.now - 1000 * _WATCHER_SECONDS)
        return [Watcher(each.user, each.agent, ended) for each, ended in found]


def _is_controlled(obj: ObjView, uid: str) -> bool:
    references = obj["metadata"].get("ownerReferences") or ()
    return any(each.get("uid") == uid and each.get("controller") for each in references)
