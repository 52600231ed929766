"""`POST /setpoint/v1/undo`: a plan that undoes a write, or restores objects as they were (`view/undo.py`).

    {"revision": 103018, "force": false, "replace": false, "cascade": "Background"}
    {"at": "-5m", "objects": [{"group": "apps", "resource": "deployments", "namespace": "default", "name": "web"}]}
    {"at": "-5m", "namespace": "shop", "selector": "app=web", "prune": true}
    {"at": "-5m", "all": true}

The request changes nothing: the client sends the requests of the plan under its own rights. A plan contains only what
its user may read now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from setpoint.apiserver.api_resources import ApiResources, CacheReader
from setpoint.apiserver.bodies import json_object
from setpoint.apiserver.error_responses import METHOD_NOT_ALLOWED
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain, Decision, forbidden
from setpoint.apiserver.history.reader import HistoryReader, Version
from setpoint.apiserver.history.when import Moments
from setpoint.apiserver.negotiate import JSON
from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.cause import WriteCause
from setpoint.meta.errors import BadRequest, Expired, MethodNotAllowed, NotFound
from setpoint.meta.objects import ObjView
from setpoint.meta.selectors import SelectorError, parse_labels
from setpoint.meta.times import unix_milliseconds
from setpoint.view.history import cause_to_json, change_of
from setpoint.view.made_anew import Taken
from setpoint.view.undo import Planner
from setpoint.view.undo_plan import ObjectRef, Options, Plan
from setpoint.wire.message import Answer, Response

UNDO_PATH = "/setpoint/v1/undo"
_MAX_NAMED = 1_000
"""Number of objects that a request can name."""
_MAX_CHANGED = 20_000
"""Number of objects of one plan."""
_MAX_VERSIONS = 200
"""Number of versions that are read to find the last one before an object was deleted."""
_SLICE = 50
"""Number of objects after which other work of the event loop gets its turn."""
_STEP_SIZE = 1_000
"""Estimated number of bytes of a step."""
_CASCADES = ("Background", "Foreground", "Orphan")
_FIELDS: dict[str, type] = {
    "revision": int,
    "at": str,
    "objects": list,
    "namespace": str,
    "selector": str,
    "all": bool,
    "force": bool,
    "replace": bool,
    "prune": bool,
    "cascade": str,
}
_DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")


class _Present:
    """The present state, for plans."""

    def __init__(self, api: ApiResources) -> None:
        self._api = api
        self._reader = CacheReader(api)
        self._taken: Taken | None = None
        self._kinds = {
            (each.resource.group, each.resource.kind): each.resource.plural for each in api.registries.values()
        }

    def find(self, api_version: str, kind: str, namespace: str, name: str) -> ObjView | None:
        group = api_version.rpartition("/")[0]
        plural = self._kinds.get((group, kind))
        if plural is None:
            return None
        if not self._api.registry(group, plural).resource.namespaced:
            namespace = ""
        return self._reader.get(group, plural, namespace, name)

    def taken(self) -> Taken:
        if self._taken is None:
            self._taken = Taken.by(self._reader.list("", "services"))
        return self._taken


class UndoEndpoint:
    def __init__(self, api: ApiResources, reader: HistoryReader, moments: Moments, authorizer: AuthorizerChain) -> None:
        self._api = api
        self._reader = reader
        self._moments = moments
        self._authorizer = authorizer

    async def answer(self, ctx: RequestContext) -> Answer:
        if ctx.request.method != "POST":
            raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})
        body = _body(ctx)
        cascade = body.get("cascade") or "Background"
        if cascade not in _CASCADES:
            raise BadRequest(f"cascade must be one of {', '.join(_CASCADES)}")
        options = Options(
            bool(body.get("force")), bool(body.get("replace")), bool(body.get("prune")), cascade=str(cascade)
        )
        planning = _Planning(self._api, self._reader, self._authorizer, ctx.user, options)
        found: dict[str, Any]
        if "revision" in body:
            if "at" in body:
                raise BadRequest("give either revision or at")
            revision = body["revision"]
            cause = await planning.undo(revision)
            found = {"revision": revision, "reason": f"undo of {revision}"}
            if cause is not None:
                found["cause"] = cause_to_json(cause)
            if planning.requested is not None:
                found["requested"] = cause_to_json(planning.requested)
            found["changes"] = planning.changed
        elif "at" in body:
            moment = await self._moments.find(body["at"], ctx.now)
            await planning.restore(moment.revision, body)
            found = {
                "revision": moment.revision,
                "at": unix_milliseconds(moment.at) if moment.at is not None else 0,
                "reason": f"restore to {moment.revision}",
                "unchanged": planning.unchanged,
            }
        else:
            raise BadRequest("give the revision to undo, or the moment to restore with at")
        plan = await planning.plan()
        size = _STEP_SIZE * len(plan.steps)
        data = await self._api.worker.run(size, lambda: orjson.dumps({**found, **plan.to_json()}))
        return Response(200, data, [("Content-Type", JSON)])


class _Planning:
    """The making of one plan for one user."""

    def __init__(
        self,
        api: ApiResources,
        reader: HistoryReader,
        authorizer: AuthorizerChain,
        user: UserInfo,
        options: Options,
    ) -> None:
        self._api = api
        self._reader = reader
        self._authorizer = authorizer
        self._user = user
        self._planner = Planner(_Present(api), options)
        self._known: set[str] = set()
        """Keys that are part of the plan."""
        self._owners: set[str] = set()
        """The uids that the created objects of the plan had."""
        self._listed: tuple[int, list[Version]] = (0, [])
        self._hidden = 0
        """Number of objects that the user may not read."""
        self._past_kinds: dict[tuple[str, str], tuple[str, str]] = {}
        """Version and kind of custom resources that may not be served any more, by group and resource."""
        self.changed: list[dict[str, str]] = []
        """The changes of the write, in words."""
        self.requested: WriteCause | None = None
        """The cause of the request for the deletion that the write completes; None if there is none."""
        self.unchanged = 0
        """Number of objects that are as they were."""

    async def plan(self) -> Plan:
        if self._hidden:
            what = "one object" if self._hidden == 1 else f"{self._hidden} objects"
            self._planner.note(what, "you may not read them" if self._hidden > 1 else "you may not read it")
        for place, _ in enumerate(self._planner.planning()):
            if not place % _SLICE:
                await asyncio.sleep(0)
        return self._planner.result

    # -- undo ----------------------------------------------------------------------------------------------------------

    async def undo(self, revision: int) -> WriteCause | None:
        """Plan the inverse of a write, and return its cause."""
        if revision < 1:
            raise BadRequest("a revision is a number from 1 on")
        if revision > self._reader.newest:
            raise BadRequest(f"revision {revision} has not happened; the newest is {self._reader.newest}")
        writes = await self._reader.writes(revision - 1, 1)
        keys = [each for each in writes[0].keys if self._is_object(each)] if writes else []
        if not writes or writes[0].revision != revision or not keys:
            raise NotFound(f"revision {revision} has changed no object")
        for key in keys:
            await self._undo_one(key, revision)
        if self._hidden == len(keys):
            ref = self._ref(keys[0], None)
            access = self._access(ref)
            raise forbidden(access, (await self._authorizer.decide(access))[1])
        return writes[0].cause

    async def _undo_one(self, key: str, revision: int) -> None:
        if not await self._may_read(key):
            return
        versions = await self._reader.versions(key, before=revision + 1, limit=2)
        if not versions or versions[0].revision != revision:
            raise Expired(f"revision {revision} is no longer in the history; the oldest is {self._reader.oldest}")
        is_created = versions[0].created == revision
        if len(versions) < 2 and not is_created:
            raise Expired(f"what was before revision {revision} is not known; the oldest is {self._reader.oldest}")
        after = _decoded(versions[0])
        before = _decoded(versions[1]) if not is_created else None
        ref = self._ref(key, after or before)
        self._known.add(key)
        self.changed.append({"object": ref.shown, "text": _what(ref, revision, before, after)})
        if after is _UNREADABLE or before is _UNREADABLE:
            self._planner.unreadable(ref)
            return
        now = await self._now(key)
        if before is None:
            assert after is not None
            self._planner.delete(ref, after, now)
        elif after is None or (_is_deleted(after) and not _is_deleted(before)):
            request = await self._reader.deletion_request(versions[0]) if after is None else None
            if request is not None and request.revision >= self._reader.oldest:
                self.requested = await self._reader.cause(request.revision)
            obj, at = await self._before_deletion(key, revision, before)
            try:
                await self._create(key, obj, now, at)
                await self._create_owned(at)
            except Expired as error:
                self._planner.warn(f"what belonged to {ref.shown} is not known: {error.message}")
        else:
            self._planner.update(ref, before, after, now)

    async def _before_deletion(self, key: str, revision: int, before: ObjView) -> tuple[ObjView, int]:
        """Return an object before its deletion was requested, and the last revision before that request."""
        if not _is_deleted(before):
            return before, revision - 1
        begin = revision
        for version in await self._reader.versions(key, before=revision, limit=_MAX_VERSIONS):
            found = _decoded(version)
            if found is None:
                break
            if not _is_deleted(found):
                return found, begin - 1
            begin = version.revision
        return before, revision - 1

    async def _create(self, key: str, obj: ObjView, now: ObjView | None, at: int) -> None:
        """Plan that a deleted object is created anew, and what went with it: the content of a namespace or the objects
        of a custom kind."""
        ref = self._ref(key, obj)
        self._planner.create(ref, obj, now)
        if now is not None:
            return
        self._owners.add(str(obj["metadata"].get("uid") or "-"))
        if (ref.group, ref.plural) == ("", "namespaces"):
            await self._create_all(at, lambda each: each.count("/") == 3 and each.split("/")[2] == ref.name)
        if (ref.group, ref.plural) == _DEFINITIONS:
            self._learn_kind(obj)
            prefix = f"{obj['spec']['group']}/{obj['spec']['names']['plural']}/"
            await self._create_all(at, lambda each: each.startswith(prefix))

    async def _create_all(self, at: int, is_chosen: Callable[[str], bool]) -> None:
        """Plan the creation of the objects of a revision whose keys are chosen."""
        for place, version in enumerate(await self._state(at)):
            if not place % _SLICE:
                await asyncio.sleep(0)
            if version.key not in self._known and is_chosen(version.key) and self._is_object(version.key):
                await self._create_one(version, _decoded(version), await self._now(version.key))

    async def _create_owned(self, at: int) -> None:
        """Plan the creation of deleted objects that are owned by objects of the plan."""
        candidates: list[tuple[Version, ObjView]] = []
        for place, version in enumerate(await self._state(at) if self._owners else ()):
            if not place % _SLICE:
                await asyncio.sleep(0)
            if version.value is None or _OWNERS not in version.value or version.key in self._known:
                continue
            obj = _decoded(version)
            if obj is not None and self._is_object(version.key):
                candidates.append((version, obj))
        before = -1
        while before != len(self._known):  # what they own, too
            before = len(self._known)
            for version, obj in candidates:
                if version.key not in self._known and not self._owners.isdisjoint(_owner_uids(obj)):
                    now = await self._now(version.key)
                    self._note_known(version.key)
                    if now is None:
                        await self._create_one(version, obj, now)

    async def _create_one(self, version: Version, obj: ObjView | None, now: ObjView | None) -> None:
        if obj is None or not await self._may_read(version.key):
            return
        self._note_known(version.key)
        ref = self._ref(version.key, obj)
        if obj is _UNREADABLE:
            self._planner.unreadable(ref)
        elif _is_deleted(obj):
            self._planner.note(ref.shown, "it was being deleted then")
        else:
            self._owners.add(str(obj["metadata"].get("uid") or "-"))
            self._planner.create(ref, obj, now)

    async def _state(self, at: int) -> list[Version]:
        """Return all objects of a revision; those of the last one asked for are kept."""
        if self._listed[0] != at:
            self._listed = (at, await self._reader.list_at("", at))
        return self._listed[1]

    # -- restore -------------------------------------------------------------------------------------------------------

    async def restore(self, revision: int, body: dict[str, Any]) -> None:
        """Plan that the chosen objects are as they were."""
        if objects := body.get("objects"):
            for key in _keys(objects, self._key):
                await self._restore_named(key, revision)
            await self._create_owned(revision)
            return
        namespace, everything = body.get("namespace") or "", bool(body.get("all"))
        if bool(namespace) == everything:
            raise BadRequest("name objects, a namespace, or set all")
        try:
            matches = parse_labels(body["selector"]).matches if body.get("selector") else None
        except SelectorError as error:
            raise BadRequest(f"the selector is not valid: {error}") from None
        own = f"core/namespaces/{namespace}"

        def is_chosen(key: str) -> bool:
            if everything:
                return self._is_object(key)
            return key == own or (key.count("/") == 3 and key.split("/")[2] == namespace and self._is_object(key))

        then: dict[str, Version] = {}
        now: dict[str, Version] = {}
        for found, at in ((then, revision), (now, self._reader.newest)):
            async for page in self._reader.pages_at("", at):
                found.update((each.key, each) for each in page if is_chosen(each.key))
        for key in (each for each in then if each.startswith("/".join(_DEFINITIONS))):
            if (definition := _decoded(then[key])) not in (None, _UNREADABLE):
                assert definition is not None
                self._learn_kind(definition)
        for place, key in enumerate({**then, **now}):
            if not place % _SLICE:
                await asyncio.sleep(0)
            if key in then and key in now and then[key].value == now[key].value:
                self.unchanged += 1
                continue
            old, new = (_decoded(each[key]) if key in each else None for each in (then, now))
            if matches is not None and not any(
                matches((each.get("metadata") or {}).get("labels") or {}) for each in (old, new) if each is not None
            ):
                continue
            if await self._may_read(key):
                self._restore_one(key, old, new)

    async def _restore_named(self, key: str, revision: int) -> None:
        ref = self._ref(key, None)
        access = self._access(ref)
        decision, reason = await self._authorizer.decide(access)
        if decision is not Decision.ALLOW:
            raise forbidden(access, reason)
        version, now = await self._reader.at(key, revision), await self._now(key)
        then = _decoded(version) if version is not None else None
        if then is None and now is None:
            error = NotFound.of(ref.group, ref.plural, ref.name)
            raise NotFound(f"{error.message}, neither now nor at revision {revision}", details=error.details)
        if then is not None and then is not _UNREADABLE and now is None:
            self._note_known(key)
            await self._create(key, then, now, revision)
        elif key not in self._known:
            self._restore_one(key, then, now)

    def _restore_one(self, key: str, then: ObjView | None, now: ObjView | None) -> None:
        self._note_known(key)
        ref = self._ref(key, then or now)
        if then is _UNREADABLE:
            self._planner.unreadable(ref)
        elif then is None:
            if now is not None:
                self._planner.prune(ref, now)
        elif _is_deleted(then):
            self._planner.note(ref.shown, "it was being deleted then")
        elif now is None or _is_deleted(now):
            self._planner.create(ref, then, now)
        elif not self._planner.restore(ref, then, now):
            self.unchanged += 1

    # -- keys ----------------------------------------------------------------------------------------------------------

    def _note_known(self, key: str) -> None:
        self._known.add(key)
        if len(self._known) > _MAX_CHANGED:
            raise BadRequest(f"more than {_MAX_CHANGED} objects are concerned: choose fewer")

    async def _may_read(self, key: str) -> bool:
        allowed = await self._authorizer.allows(self._access(self._ref(key, None)))
        self._hidden += not allowed
        return allowed

    def _access(self, ref: ObjectRef) -> Access:
        return Access(self._user, "get", ref.group, ref.version, ref.plural, "", ref.namespace, ref.name)

    async def _now(self, key: str) -> ObjView | None:
        version = await self._reader.at(key, self._reader.newest)
        found = _decoded(version) if version is not None else None
        return {"metadata": {}} if found is _UNREADABLE else found

    def _is_object(self, key: str) -> bool:
        """Return whether a key is that of an object, not data of the server itself."""
        group, plural, *rest = key.split("/", 3)
        return bool(rest) and (f"{group}/{plural}/" in self._api.caches or "." in group)

    def _key(self, group: str, plural: str, namespace: str, name: str) -> str:
        try:
            prefix = self._api.registry(group, plural).resource.storage_prefix
        except KeyError:
            prefix = f"{group or 'core'}/{plural}/"
        return f"{prefix}{namespace}/{name}" if namespace else prefix + name

    def _learn_kind(self, definition: ObjView) -> None:
        """Note the kind and stored version of custom objects, whose kind may not be served."""
        spec = definition["spec"]
        stored = next((each["name"] for each in spec["versions"] if each.get("storage")), "v1")
        self._past_kinds[(spec["group"], spec["names"]["plural"])] = (stored, spec["names"]["kind"])

    def _ref(self, key: str, obj: ObjView | None) -> ObjectRef:
        group, plural, *rest = key.split("/", 3)
        group = "" if group == "core" else group
        namespace, name = rest if len(rest) == 2 else ("", rest[0])
        try:
            resource = self._api.registry(group, plural).resource
            version, kind = resource.storage[1], resource.kind
        except KeyError:
            version, kind = self._past_kinds.get((group, plural), ("v1", plural))
        if obj is not None and obj.get("apiVersion"):
            version = str(obj["apiVersion"]).rpartition("/")[2]
            kind = str(obj.get("kind") or kind)
        return ObjectRef(group, version, plural, kind, namespace, name)


_UNREADABLE: dict[str, Any] = {"metadata": {"name": ""}}
"""Stands for an object that cannot be decrypted."""


def _decoded(version: Version) -> ObjView | None:
    if version.value is None:
        return None
    try:
        found: ObjView = orjson.loads(version.value)
    except orjson.JSONDecodeError:
        return _UNREADABLE
    return found


def _is_deleted(obj: ObjView) -> bool:
    return bool((obj.get("metadata") or {}).get("deletionTimestamp"))


_OWNERS = b'"ownerReferences"'


def _owner_uids(obj: ObjView) -> list[str]:
    return [str(each.get("uid")) for each in (obj.get("metadata") or {}).get("ownerReferences") or ()]


def _what(ref: ObjectRef, revision: int, before: ObjView | None, after: ObjView | None) -> str:
    """Return what a write has changed, in words."""
    if before is not None and after is not None and _is_deleted(after) and not _is_deleted(before):
        return "deletion requested"
    if ref.is_secret and before is not None and after is not None:
        return "changed"
    return change_of(revision, before, after, None).text


def _keys(objects: list[Any], key: Callable[[str, str, str, str], str]) -> Iterator[str]:
    if len(objects) > _MAX_NAMED:
        raise BadRequest(f"at most {_MAX_NAMED} objects can be named")
    for each in objects:
        if not isinstance(each, dict):
            raise BadRequest("objects must be a list of objects with group, resource, namespace and name")
        named = [each.get(name) or "" for name in ("group", "resource", "namespace", "name")]
        if not all(isinstance(one, str) and "/" not in one for one in named) or not named[1] or not named[3]:
            raise BadRequest("objects must have a resource and a name, and contain no slashes")
        yield key(*named)


def _body(ctx: RequestContext) -> dict[str, Any]:
    body = json_object(ctx)
    for name, value in body.items():
        wanted = _FIELDS.get(name)
        if wanted is None:
            raise BadRequest(f"unknown field {name[:64]!r}")
        if type(value) is not wanted:
            raise BadRequest(f"{name} must be of type {wanted.__name__}")
    return body
