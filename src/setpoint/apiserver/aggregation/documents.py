"""What aggregated servers say of themselves: whether they are there, their resources, their schemas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from setpoint.apiserver.aggregation.routing import Aggregation, Key, is_available
from setpoint.apiserver.discovery import AGGREGATED, RemoteVersion
from setpoint.apiserver.far_server import FarServerProblem
from setpoint.apiserver.openapi.service import OpenApi
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Change, Entry, Watch
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.selectors import EVERYTHING

Obj = dict[str, Any]
GROUP, PLURAL = "apiregistration.k8s.io", "apiservices"
_SELF = UserInfo("system:kube-aggregator", groups=("system:masters",))
_JSON = "application/json"


class RemoteDocuments:
    """Follows the APIServices; fetches what a server shows each time that it was found to be there."""

    def __init__(
        self, api: ApiServer, aggregation: Aggregation, openapi: OpenApi,
        publish: Callable[[ApiServer], Awaitable[None]] | None = None,
    ) -> None:  # fmt: skip
        """`publish` makes known how other servers are to know us; it is called before the first is looked for."""
        self._publish = publish
        self._api = api
        self._aggregation = aggregation
        self._openapi = openapi
        self._resources: dict[Key, list[Obj]] = {}

    def start(self) -> None:
        """The server has begun, or is about to."""
        cache = self._api.registry(GROUP, PLURAL).cache

        def deliver(kind: str, entry: Entry, change: Change) -> None:
            self._note(entry.obj, gone=kind == "DELETED")

        cache.add(
            Watch(namespace="", name="", labels=EVERYTHING, fields=EVERYTHING, fields_of=lambda _: {}, deliver=deliver)
        )
        for entry in cache.scan():
            self._note(entry.obj, gone=False)

    def _note(self, obj: Obj, gone: bool) -> None:
        spec, services = obj["spec"], self._aggregation.services
        key = spec.get("group", ""), spec.get("version", "")
        if gone or spec.get("service") is None:
            if services.pop(key, None) is None:
                return
            self._resources.pop(key, None)
            self._openapi.remove_remote(*key)
        else:
            services[key] = obj
        self._announce()

    def _announce(self) -> None:
        self._api.remote_versions = [
            RemoteVersion(
                *key, obj["spec"]["groupPriorityMinimum"], obj["spec"]["versionPriority"],
                self._resources.get(key, []), is_available(obj),
            )
            for key, obj in self._aggregation.services.items()
            if key in self._resources or is_available(obj)
        ]  # fmt: skip
        self._api.announce()

    async def probe(self, api_service: Obj, service: Obj) -> str:
        """Empty text: it is there; else what is wrong. What it shows is taken over on the way."""
        if self._publish is not None:
            publish, self._publish = self._publish, None
            await publish(self._api)
        spec = api_service["spec"]
        key = spec.get("group", ""), spec.get("version", "")
        path = f"/apis/{key[0]}/{key[1]}"
        where = (
            f"https://{spec['service']['name']}.{spec['service']['namespace']}.svc:{spec['service'].get('port', 443)}"
        )
        try:
            response = await self._aggregation.document(api_service, path, _JSON, _SELF)
        except FarServerProblem as problem:
            return f'failing or missing response from {where}{path}: Get "{where}{path}": {problem}'
        if not 200 <= response.status < 300:
            return f"failing or missing response from {where}{path}: bad status from {where}{path}: {response.status}"
        resources = await self._resources_of(api_service, key, _parsed(response.body))
        if resources != self._resources.get(key):
            self._resources[key] = resources
            self._announce()
        await self._take_schemas(api_service, key)
        return ""

    async def _resources_of(self, api_service: Obj, key: Key, legacy: Obj) -> list[Obj]:
        try:
            response = await self._aggregation.document(api_service, "/apis", f"{AGGREGATED},{_JSON}", _SELF)
            document = _parsed(response.body)
        except FarServerProblem:
            document = {}
        if document.get("kind") == "APIGroupDiscoveryList":
            for group in document.get("items") or ():
                for version in group.get("versions") or ():
                    if ((group.get("metadata") or {}).get("name"), version.get("version")) == key:
                        found: list[Obj] = version.get("resources") or []
                        return found
        return _from_legacy(legacy, key)

    async def _take_schemas(self, api_service: Obj, key: Key) -> None:
        path = f"apis/{key[0]}/{key[1]}"
        try:
            three = await self._aggregation.document(api_service, f"/openapi/v3/{path}", _JSON, _SELF)
            two = await self._aggregation.document(api_service, "/openapi/v2", _JSON, _SELF)
        except FarServerProblem:
            return
        self._openapi.add_remote(
            *key,
            _parsed(three.body) if three.status == 200 else {},
            _parsed(two.body) if two.status == 200 else {},
        )


class ApiServiceHooks(Hooks):
    """Begins to follow the APIServices when the server begins."""

    def __init__(self, documents: RemoteDocuments) -> None:
        self._documents = documents

    async def start(self) -> None:
        self._documents.start()


def _parsed(body: Any) -> Obj:
    try:
        value = orjson.loads(body if isinstance(body, bytes) else b"".join(body))
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _from_legacy(document: Obj, key: Key) -> list[Obj]:
    """An APIResourceList as aggregated discovery has it."""
    found: dict[str, Obj] = {}
    parts = []
    for row in document.get("resources") or ():
        name, slash, part = str(row.get("name", "")).partition("/")
        kind = {
            "group": row.get("group") or key[0], "version": row.get("version") or key[1], "kind": row.get("kind", ""),
        }  # fmt: skip
        if slash:
            parts.append((name, {"subresource": part, "responseKind": kind, "verbs": row.get("verbs") or []}))
            continue
        found[name] = {
            "resource": name,
            "responseKind": kind,
            "scope": "Namespaced" if row.get("namespaced") else "Cluster",
            "singularResource": row.get("singularName", ""),
            "verbs": row.get("verbs") or [],
            **{field: row[field] for field in ("shortNames", "categories") if row.get(field)},
        }
    for name, row in parts:
        if name in found:
            found[name].setdefault("subresources", []).append(row)
    return [found[name] for name in sorted(found)]
