"""`/setpoint/v1/history`: the changes of one object, in pages.

Users see what they may read now (`get`), whatever they were allowed to read then."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.error_responses import METHOD_NOT_ALLOWED
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain, Decision, forbidden
from setpoint.apiserver.history.reader import HistoryReader, Version
from setpoint.apiserver.history.when import Moments
from setpoint.apiserver.negotiate import JSON
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.worker import LARGE
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import BadRequest, MethodNotAllowed, NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.times import unix_milliseconds
from setpoint.view.history import ObjectChange, change_of, known_version
from setpoint.view.secrets import SECRETS, SecretMask
from setpoint.wire.message import Answer, Response

HISTORY_PATH = "/setpoint/v1/history"
_DEFAULT_LIMIT, _MAX_LIMIT = 100, 500
_MAX_REVISION = 2**63 - 1


class HistoryEndpoints:
    def __init__(self, api: ApiResources, reader: HistoryReader, moments: Moments, authorizer: AuthorizerChain) -> None:
        self._api = api
        self._reader = reader
        self._moments = moments
        self._authorizer = authorizer

    # -- one object ---------------------------------------------------------------------------------------------------

    async def history(self, ctx: RequestContext) -> Answer:
        """Answer `?group&resource&namespace&name&before&limit`: the newest changes first.

        With `deleted=true` and without a name: the deleted objects of the resource."""
        check_method(ctx)
        group, plural, namespace, name = (ctx.option(each) for each in ("group", "resource", "namespace", "name"))
        deleted = ctx.option("deleted") == "true"
        if not plural or bool(name) == deleted:
            raise BadRequest("resource, and either name or deleted=true, must be given")
        if any("/" in each for each in (group, plural, namespace, name)):
            raise BadRequest("group, resource, namespace and name must not contain slashes")
        verb = "list" if deleted else "get"
        access = Access(ctx.user, verb, group, "", plural, namespace=namespace, name=name)
        decision, reason = await self._authorizer.decide(access)
        if decision is not Decision.ALLOW:
            raise forbidden(access, reason)
        limit = number_option(ctx, "limit", _DEFAULT_LIMIT, _MAX_LIMIT)
        before = number_option(ctx, "before", 0, _MAX_REVISION)
        if deleted:
            return _json({"deleted": await self._deleted(self._key(group, plural, namespace, ""), limit)})
        key = self._key(group, plural, namespace, name)
        versions = await self._reader.versions(key, before=before, limit=limit + 1)
        if not versions and not before:
            raise NotFound.of(group, plural, name)
        changes = await self._changes(versions, limit)
        more = len(versions) > limit
        oldest = await self._moments.at(self._reader.oldest)
        found = {
            "oldest": {"revision": oldest.revision, "at": unix_milliseconds(oldest.at) if oldest.at is not None else 0},
            "changes": [each.to_json() for each in changes],
            "next": changes[-1].revision if more else 0,
        }
        return _json(found)

    async def _deleted(self, prefix: str, limit: int) -> list[dict[str, Any]]:
        """Return the last deletions of objects under a prefix."""
        found = []
        for version in (await self._reader.deleted(prefix))[:limit]:
            *_, namespace, name = version.key.split("/", 3)
            place = {"namespace": namespace if version.key.count("/") == 3 else "", "name": name}
            cause = await self._reader.cause(version.revision)
            deleted = {**change_of(version.revision, None, None, cause).to_json(), **place}
            if (requested := await self._reader.deletion_request(version)) is not None:
                cause = await self._reader.cause(requested.revision)
                deleted["requested"] = change_of(requested.revision, None, None, cause).to_json()
            found.append(deleted)
        return found

    async def _changes(self, versions: list[Version], limit: int) -> list[ObjectChange]:
        """Return the changes that led to the versions, of which there is one more than asked for if there are more."""
        found: list[ObjectChange] = []
        decoded = [await self._decoded(version) for version in versions]
        if versions and versions[0].key.startswith(SECRETS):
            mask = SecretMask()
            decoded = [each and mask.masked(each) for each in decoded]
        for at, version in enumerate(versions[:limit]):
            is_last = at + 1 == len(versions)
            if is_last and version.revision != version.created and decoded[at] is not None:
                now = decoded[at]
                assert now is not None
                found.append(known_version(version.revision, now))
                continue
            before = decoded[at + 1] if not is_last else None
            cause = await self._reader.cause(version.revision) if version.revision >= self._reader.oldest else None
            found.append(change_of(version.revision, before, decoded[at], cause))
            await asyncio.sleep(0)
        return found

    async def _decoded(self, version: Version) -> Obj | None:
        if version.value is None:
            return None
        try:
            size = len(version.value)
            found: Obj = await self._api.worker.run(size, orjson.loads, version.value)
        except orjson.JSONDecodeError:  # encrypted, and the key is missing
            return {}
        if size < LARGE:
            await asyncio.sleep(0)
        return found

    def _key(self, group: str, plural: str, namespace: str, name: str) -> str:
        """Return the key of an object, whose kind may not be served any more; without a name, the prefix of all."""
        try:
            prefix = self._api.registry(group, plural).resource.storage_prefix
        except KeyError:
            prefix = f"{group or 'core'}/{plural}/"
        return f"{prefix}{namespace}/{name}" if namespace else prefix + name

    # -- rights -------------------------------------------------------------------------------------------------------

    async def visible_object(self, user: UserInfo, key: str) -> dict[str, str] | None:
        """Return the identity of the object of a key, or None if it is none or the user may not read it."""
        group, plural, *rest = key.split("/", 3)
        if not rest or (f"{group}/{plural}/" not in self._api.caches and "." not in group):
            return None  # data of the server itself
        group = "" if group == "core" else group
        namespace, name = rest if len(rest) == 2 else ("", rest[0])
        if not await self._authorizer.allows(Access(user, "get", group, "", plural, namespace=namespace, name=name)):
            return None
        return {"group": group, "resource": plural, "namespace": namespace, "name": name}


def check_method(ctx: RequestContext) -> None:
    """Raise MethodNotAllowed unless the request reads."""
    if ctx.request.method != "GET":
        raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})


def number_option(ctx: RequestContext, name: str, default: int, most: int) -> int:
    """Return a number of the query, at most `most`. Raises BadRequest if it is none."""
    text = ctx.option(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise BadRequest(f"{name} must be a number")
    return min(int(text), most) or default


def _json(found: dict[str, Any]) -> Response:
    return Response(200, orjson.dumps(found), [("Content-Type", JSON)])
