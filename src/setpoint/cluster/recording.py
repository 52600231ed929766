"""Records what happens in any Kubernetes cluster: a copy of it, and then every change that its watches report.

A recording of inputs holds only the writes that no loop of the cluster made: those of users and foreign clients. Each
is kept as a request that repeats it. That needs a server that records causes (`meta/cause.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from setpoint.client import Client, Unreachable
from setpoint.cluster.cluster_copy import ClusterCopy, chosen_resources, stored_bytes, stored_key
from setpoint.cluster.snapshot_file import LEFT_OUT, Input, SnapshotWriter, StoredChange
from setpoint.cluster.virtual.conditions import owner_of
from setpoint.kinds.catalog import Resource
from setpoint.meta.cause import Claim, WriteCause, encode
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Expired, Forbidden, MethodNotAllowed, NotFound
from setpoint.meta.objects import Obj

_CAUSES = "/setpoint/v1/causes"
_MAX_CAUSES = 200
REORDER_SECONDS = 2.0
"""How long a change is held back, so that those of other watches with an earlier revision can come before it."""
_RETRY_SECONDS = 1.0
_IGNORED = ("coordination.k8s.io/leases/", "core/events/")
_SECRETS = "core/secrets/"
_FOLLOWING = "networking.k8s.io/ipaddresses/"
"""The prefix of objects that the server writes together with a Service."""
_SERVER_FIELDS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")
_PROPAGATION = {"foregroundDeletion": "Foreground", "orphan": "Orphan"}


class RecordingFailed(Exception):
    """The cluster cannot be recorded, or not any longer; the message says why."""


class _Seen(NamedTuple):
    at: float
    """When it was seen, on the monotonic clock."""
    key: str
    value: bytes | None


class Recorder:
    """Writes the changes after a copy to a file."""

    def __init__(
        self, client: Client, clock: Clock, copy: ClusterCopy, writer: SnapshotWriter, *, inputs: bool = False
    ) -> None:
        self._client = client
        self._clock = clock
        self._writer = writer
        self._inputs = inputs
        self._with_secrets = copy.secrets != LEFT_OUT
        self._start = str(copy.revision)
        self._current = {key: item.value for key, item in copy.objects.items()}
        self._pending: dict[int, list[_Seen]] = {}
        """The changes that are not written yet, by revision."""
        self._written = copy.revision
        self._knows_causes = True
        self.changes = 0
        """The number of changes that were written."""
        self.late = 0
        """The number of changes that came too late to be written in order."""

    async def run(self, stop: asyncio.Event) -> None:
        """Record until `stop` is set. Raises RecordingFailed."""
        resources = chosen_resources(await self._client.discovery.resources())
        try:
            async with asyncio.TaskGroup() as tasks:
                watches = [tasks.create_task(self._follow(each)) for each in resources if self._is_recorded(each)]
                while not stop.is_set():
                    await self._clock.sleep(REORDER_SECONDS / 4)
                    await self._write(self._clock.monotonic() - REORDER_SECONDS)
                for task in watches:
                    task.cancel()
        except* RecordingFailed as failed:
            raise failed.exceptions[0] from None
        await self._write(float("inf"))
        if self._inputs:
            for key in sorted(self._current):
                self._writer.final(key, self._current[key])

    async def run_until_current(self) -> None:
        """Record the changes from the copy until now. Raises RecordingFailed."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            recording = tasks.create_task(self.run(stop))
            # All watches have replayed what was before when nothing more has come for a while.
            seen = -1
            while not recording.done() and (self.changes != seen or self._pending):
                seen = self.changes
                await self._clock.sleep(REORDER_SECONDS)
            stop.set()

    def _is_recorded(self, resource: Resource) -> bool:
        prefix = resource.storage_prefix
        return "watch" in resource.verbs and prefix not in _IGNORED and (prefix != _SECRETS or self._with_secrets)

    async def _follow(self, resource: Resource) -> None:
        version = self._start
        while True:
            try:
                async with self._client.watch(resource, resource_version=version) as watch:
                    async for kind, obj in watch:
                        version = watch.resource_version
                        if kind != "BOOKMARK":
                            self._saw(resource, kind, obj)
            except Expired:
                raise RecordingFailed(f"the history of {resource} is no longer complete") from None
            except (Forbidden, NotFound, MethodNotAllowed):
                return
            except (ApiError, Unreachable):
                pass
            await self._clock.sleep(_RETRY_SECONDS)

    def _saw(self, resource: Resource, kind: str, obj: Obj) -> None:
        value = None if kind == "DELETED" else stored_bytes(resource, obj)
        revision = int(obj["metadata"]["resourceVersion"])
        if revision <= self._written:
            self.late += 1
            return
        seen = _Seen(self._clock.monotonic(), stored_key(resource, obj), value)
        self._pending.setdefault(revision, []).append(seen)

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _write(self, until: float) -> None:
        """Write the changes that were seen until a time, in the order of their revisions."""
        due = []
        for revision in sorted(self._pending):
            if any(each.at > until for each in self._pending[revision]):
                break
            due.append(revision)
        for start in range(0, len(due), _MAX_CAUSES):
            batch = due[start : start + _MAX_CAUSES]
            causes = await self._causes(batch)
            for revision in batch:
                self._write_one(revision, causes.get(revision))

    def _write_one(self, revision: int, cause: WriteCause | None) -> None:
        writes = self._pending.pop(revision)
        self._written = revision
        before = {each.key: self._current.get(each.key) for each in writes}
        for each in writes:
            if each.value is None:
                self._current.pop(each.key, None)
            else:
                self._current[each.key] = each.value
        at = cause.at if cause is not None else 0
        if not at:
            ago = self._clock.monotonic() - min(each.at for each in writes)
            at = int((self._clock.now().timestamp() - ago) * 1000)
        known: list[Any] = orjson.loads(encode(cause)) if cause is not None else []
        if not self._inputs:
            found = tuple((each.key, each.value) for each in writes)
            self._writer.change(StoredChange(revision, at, known, found))
            self.changes += 1
            return
        if cause is None or is_component(cause.user):
            return
        inputs = [input_of(each.key, before[each.key], each.value) for each in writes]
        if requests := tuple(each for each in inputs if each is not None):
            self._writer.change(StoredChange(revision, at, known, (), requests))
            self.changes += 1

    async def _causes(self, revisions: Sequence[int]) -> dict[int, WriteCause]:
        if not revisions or not self._knows_causes:
            return {}
        query = "revisions=" + ",".join(map(str, revisions))
        try:
            found = (await self._client.sender.json("GET", _CAUSES, query))["causes"]
        except (NotFound, Forbidden):
            self._knows_causes = False
            return {}
        except (ApiError, Unreachable):
            return {}
        return {each["revision"]: _cause(each) for each in found}


def _cause(shown: dict[str, Any]) -> WriteCause:
    """Return a cause without the address of the client, because recordings are given to other people."""
    names = {name: shown[name] for name in Claim._fields if name in shown}
    if "triggers" in names:
        names["triggers"] = tuple(names["triggers"])
    return WriteCause(shown.get("at", 0), shown["verb"], shown["user"], shown["agent"], Claim(**names))


async def check_causes(client: Client) -> None:
    """Raise RecordingFailed if a server does not say who made a write."""
    try:
        await client.sender.json("GET", _CAUSES, "revisions=1")
    except (NotFound, Forbidden):
        raise RecordingFailed(
            "this server does not say who made a write, so inputs cannot be told apart; record without --inputs"
        ) from None


def is_component(user: str) -> bool:
    """Return whether a user is a part of the cluster itself, whose writes follow from others."""
    if user.startswith("system:serviceaccount:"):
        return user.startswith("system:serviceaccount:kube-system:")
    return user.startswith("system:") and user not in ("system:admin", "system:anonymous")


# -- inputs -----------------------------------------------------------------------------------------------------------


def input_of(key: str, before: bytes | None, now: bytes | None) -> Input | None:
    """Return the request that repeats a write; None for a write of which nothing remains to be repeated."""
    found = None if key.startswith(_FOLLOWING) else _request_of(key, before, now)
    if found is None or found.do == "create":
        return found
    return found._replace(owner=owner_of(orjson.loads(before or now or b"{}")))


def _request_of(key: str, before: bytes | None, now: bytes | None) -> Input | None:
    if now is None:
        meta = orjson.loads(before or b"{}").get("metadata") or {}
        if meta.get("deletionTimestamp") and meta.get("finalizers"):
            return Input("patch", key, {"metadata": {"finalizers": None}})
        return Input("delete", key, {"gracePeriodSeconds": 0})
    new: Obj = orjson.loads(now)
    if before is None:
        return Input("create", key, _cleaned(new))
    old: Obj = orjson.loads(before)
    if new["metadata"].get("deletionTimestamp") and not old["metadata"].get("deletionTimestamp"):
        options: Obj = {}
        if "deletionGracePeriodSeconds" in new["metadata"]:
            options["gracePeriodSeconds"] = new["metadata"]["deletionGracePeriodSeconds"]
        for finalizer in new["metadata"].get("finalizers") or ():
            if finalizer in _PROPAGATION and finalizer not in (old["metadata"].get("finalizers") or ()):
                options["propagationPolicy"] = _PROPAGATION[finalizer]
        return Input("delete", key, options)
    node = (new.get("spec") or {}).get("nodeName")
    if key.startswith("core/pods/") and node and not (old.get("spec") or {}).get("nodeName"):
        return Input("bind", key, {"node": node})
    patch = merge_patch(_cleaned(old), _cleaned(new))
    if patch:
        return Input("patch", key, patch)
    status = merge_patch(old.get("status") or {}, new.get("status") or {})
    return Input("status", key, {"status": status}) if status else None


def _cleaned(obj: Obj) -> Obj:
    """Return an object without what the server sets."""
    hidden = (*_SERVER_FIELDS, *_DELETION)
    meta = {name: value for name, value in obj["metadata"].items() if name not in hidden}
    rest = {name: value for name, value in obj.items() if name not in ("metadata", "status")}
    return {"metadata": meta, **rest}


def merge_patch(old: Any, new: Any) -> Any:
    """Return the JSON merge patch (RFC 7386) that makes `new` of `old`; an empty map if they are equal."""
    patch: dict[str, Any] = {}
    for name in {**old, **new}:
        if name not in new:
            patch[name] = None
        elif name not in old:
            patch[name] = new[name]
        elif old[name] != new[name]:
            inner = isinstance(old[name], dict) and isinstance(new[name], dict)
            patch[name] = merge_patch(old[name], new[name]) if inner else new[name]
    return patch
