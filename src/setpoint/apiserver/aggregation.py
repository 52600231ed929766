"""Aggregation: API groups that other servers serve, as APIServices declare.

A request for such a group passes this server's authentication and authorization first. It is then proxied with the
user's name in headers that only this server may set. The response is passed on unchanged, except that redirects are
refused. Discovery and OpenAPI documents of those servers are merged with this server's own.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote as percent

import orjson

from setpoint.apiserver.api_resources import ApiResources, CacheReader
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.discovery import AGGREGATED, RemoteVersion
from setpoint.apiserver.openapi.service import OpenApi
from setpoint.apiserver.remote_servers import (
    RemoteServer,
    RemoteServerError,
    RemoteServers,
    resolve_service,
)
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.watch_cache import Change, Watch
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.objects import Obj
from setpoint.wire.message import (
    Answer,
    EventWriter,
    HttpAnswer,
    ObjectRequest,
    ObjectResponse,
    Peer,
    Request,
    Response,
    StreamResponse,
    StreamWriter,
    accepts_events,
)

GroupVersion = tuple[str, str]
"""Group and version."""

_PLAIN = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]
_TIMEOUT = 60.0
_DROPPED_HEADERS = ("authorization", "host", "connection", "keep-alive", "content-length", "transfer-encoding")
_RESERVED_HEADERS = ("x-remote-", "impersonate-")
_REDIRECTED = "the backend attempted to redirect this request, which is not permitted\n"
GROUP, PLURAL = "apiregistration.k8s.io", "apiservices"
_SELF = UserInfo("system:kube-aggregator", groups=("system:masters",))
_JSON = "application/json"


def _server_of(reader: CacheReader, api_service: Obj) -> RemoteServer:
    """Return the server behind the Service of an APIService. Raises RemoteServerError."""
    spec = api_service["spec"]
    service = spec["service"]
    namespace, name, port = service.get("namespace", ""), service.get("name", ""), service.get("port", 443)
    at = resolve_service(reader, namespace, name, port)
    known_as = f"{name}.{namespace}.svc"
    authority = b64decode(spec.get("caBundle") or "")
    insecure = bool(spec.get("insecureSkipTLSVerify"))
    shown = f"{known_as}:{port}"
    return RemoteServer(
        at.host, at.port, known_as, authority, insecure, pod=at.pod, proxy_certificate=True, display_address=shown
    )


def is_available(api_service: Obj) -> bool:
    conditions = (api_service.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Available" and one.get("status") == "True" for one in conditions)


class Aggregation:
    """Proxies requests to the servers behind APIServices."""

    def __init__(self, servers: RemoteServers, reader: CacheReader) -> None:
        self._servers = servers
        self._reader = reader
        self.services: dict[GroupVersion, Obj] = {}
        """The APIServices with a Service, by group and version; maintained by RemoteDocuments."""

    async def proxy(self, ctx: RequestContext) -> Answer:
        api_service = self.services[(ctx.target.group, ctx.target.version)]
        return await self._forward(ctx, api_service)

    async def proxy_document(self, ctx: RequestContext, key: GroupVersion) -> Answer:
        return await self._forward(ctx, self.services[key])

    async def _forward(self, ctx: RequestContext, api_service: Obj) -> Answer:
        if not is_available(api_service):
            return _plain_error("service unavailable\n", 503)
        try:
            server = _server_of(self._reader, api_service)
            reply = await self._servers.forward(server, _proxied_request(ctx), _TIMEOUT)
        except RemoteServerError as problem:
            return _plain_error(f"error trying to reach service: {problem}\n", 503)
        if isinstance(reply, Response | StreamResponse) and 300 <= reply.status < 400 and reply.status != 304:
            return _plain_error(_REDIRECTED, 502)
        return await _for_in_process(ctx.request, reply) if isinstance(ctx.request, ObjectRequest) else reply

    async def document(self, api_service: Obj, path: str, accept: str, user: UserInfo) -> Response:
        """Fetch one of the server's documents. Raises RemoteServerError."""
        headers = {"accept": accept, "user-agent": "kube-aggregator"}
        request = Request(
            "GET", path, "", headers | _identity_headers(user)[0], b"", Peer(), _identity_headers(user)[1]
        )
        return await self._servers.call(_server_of(self._reader, api_service), request, 5.0)


def _identity_headers(user: UserInfo) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the headers that identify the user, and those of them that have several values."""
    headers = {"x-remote-user": user.name}
    repeated = {}
    if user.uid:
        headers["x-remote-uid"] = user.uid
    if user.groups:
        headers["x-remote-group"] = user.groups[0]
        repeated["x-remote-group"] = list(user.groups)
    for key, values in user.extra.items():
        name = f"x-remote-extra-{percent(key.lower(), safe='!#$&*+-.^_`|~')}"
        if values:
            headers[name] = values[0]
            repeated[name] = list(values)
    return headers, repeated


def _proxied_request(ctx: RequestContext) -> Request:
    """Return the request for the other server: without the user's credentials, with the user's name."""
    request = ctx.request
    headers = {
        name: value
        for name, value in request.headers.items()
        if name not in _DROPPED_HEADERS and not name.startswith(_RESERVED_HEADERS)
    }
    if isinstance(request, ObjectRequest) and request.body:
        headers.setdefault("content-type", "application/json")
    identity, repeated = _identity_headers(ctx.user)
    repeated |= {name: values for name, values in request.repeated.items() if name in headers}
    return Request(request.method, request.path, request.query, headers | identity, request.body, Peer(), repeated)


def _plain_error(text: str, code: int) -> Response:
    return Response(code, text.encode(), list(_PLAIN))


# -- in-process requests ----------------------------------------------------------------------------------------------


async def _for_in_process(request: Request, reply: HttpAnswer) -> Answer:
    """Convert the response for an in-process client, which expects an object or events."""
    if not isinstance(reply, StreamResponse):
        return reply
    if "watch=" in request.query and reply.status == 200:

        async def run(writer: StreamWriter) -> None:
            await reply.run(_EventDecoder(writer) if accepts_events(writer) else writer)

        return StreamResponse(reply.status, reply.headers, run)
    collected = _CollectingWriter()
    await reply.run(collected)
    try:
        value = orjson.loads(bytes(collected.data))
    except orjson.JSONDecodeError:
        return Response(reply.status, bytes(collected.data), reply.headers)
    if not isinstance(value, dict):
        return Response(reply.status, bytes(collected.data), reply.headers)
    return ObjectResponse(reply.status, value)


class _CollectingWriter:
    """A StreamWriter that collects everything."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data

    def write_chunks(self, chunks: bytes) -> None:
        raise AssertionError("remote servers send no encoded chunks")

    @property
    def buffered(self) -> int:
        return 0

    async def drained(self) -> None:
        return

    async def closed(self) -> None:
        await asyncio.Event().wait()


class _EventDecoder:
    """A StreamWriter that converts the lines of a watch to events."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._buffer = b""

    def write(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            if line.strip():
                event = orjson.loads(line)
                self._writer.event(event["type"], event["object"], len(line))

    def write_chunks(self, chunks: bytes) -> None:
        raise AssertionError("remote servers send no encoded chunks")

    @property
    def buffered(self) -> int:
        return self._writer.buffered

    async def drained(self) -> None:
        await self._writer.drained()

    async def closed(self) -> None:
        await self._writer.closed()


class RemoteDocuments:
    """Tracks the APIServices, and fetches discovery and schemas of a server each time that it is found available."""

    def __init__(
        self,
        api: ApiResources,
        aggregation: Aggregation,
        openapi: OpenApi,
        publish: Callable[[ApiResources], Awaitable[None]] | None = None,
    ) -> None:
        """`publish` publishes how other servers verify requests of this one; it is called before the first probe."""
        self._publish = publish
        self._api = api
        self._aggregation = aggregation
        self._openapi = openapi
        self._resources: dict[GroupVersion, list[Obj]] = {}

    def start(self) -> None:
        """Start to track the APIServices; called when the server starts."""
        cache = self._api.registry(GROUP, PLURAL).cache

        def deliver(kind: str, entry: Entry, change: Change) -> None:
            self._update(entry.obj, gone=kind == "DELETED")

        cache.add(Watch.everything(deliver))
        for entry in cache.scan():
            self._update(entry.obj, gone=False)

    def _update(self, obj: Obj, gone: bool) -> None:
        spec, services = obj["spec"], self._aggregation.services
        key = spec.get("group", ""), spec.get("version", "")
        if gone or spec.get("service") is None:
            if services.pop(key, None) is None:
                return
            self._resources.pop(key, None)
            self._openapi.remove_remote(*key)
        else:
            services[key] = obj
        self._publish_discovery()

    def _publish_discovery(self) -> None:
        self._api.announce_remote(
            RemoteVersion(
                *key,
                obj["spec"]["groupPriorityMinimum"],
                obj["spec"]["versionPriority"],
                self._resources.get(key, []),
                is_available(obj),
            )
            for key, obj in self._aggregation.services.items()
            if key in self._resources or is_available(obj)
        )

    async def probe(self, api_service: Obj, service: Obj) -> str:
        """Return "" if the server is available, otherwise what is wrong. Its discovery and schemas are updated on the
        way."""
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
        except RemoteServerError as problem:
            return f'failing or missing response from {where}{path}: Get "{where}{path}": {problem}'
        if not 200 <= response.status < 300:
            return f"failing or missing response from {where}{path}: bad status from {where}{path}: {response.status}"
        resources = await self._resources_of(api_service, key, _parsed(response.body))
        if resources != self._resources.get(key):
            self._resources[key] = resources
            self._publish_discovery()
        await self._fetch_schemas(api_service, key)
        return ""

    async def _resources_of(self, api_service: Obj, key: GroupVersion, legacy: Obj) -> list[Obj]:
        try:
            response = await self._aggregation.document(api_service, "/apis", f"{AGGREGATED},{_JSON}", _SELF)
            document = _parsed(response.body)
        except RemoteServerError:
            document = {}
        if document.get("kind") == "APIGroupDiscoveryList":
            for group in document.get("items") or ():
                for version in group.get("versions") or ():
                    if ((group.get("metadata") or {}).get("name"), version.get("version")) == key:
                        found: list[Obj] = version.get("resources") or []
                        return found
        return _from_legacy(legacy, key)

    async def _fetch_schemas(self, api_service: Obj, key: GroupVersion) -> None:
        path = f"apis/{key[0]}/{key[1]}"
        try:
            openapi_v3 = await self._aggregation.document(api_service, f"/openapi/v3/{path}", _JSON, _SELF)
            openapi_v2 = await self._aggregation.document(api_service, "/openapi/v2", _JSON, _SELF)
        except RemoteServerError:
            return
        self._openapi.add_remote(
            *key,
            _parsed(openapi_v3.body) if openapi_v3.status == 200 else {},
            _parsed(openapi_v2.body) if openapi_v2.status == 200 else {},
        )


class ApiServiceHooks(Hooks):
    """Starts to track the APIServices when the server starts."""

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


def _from_legacy(document: Obj, key: GroupVersion) -> list[Obj]:
    """Convert an APIResourceList to the form of aggregated discovery."""
    found: dict[str, Obj] = {}
    parts = []
    for row in document.get("resources") or ():
        name, slash, part = str(row.get("name", "")).partition("/")
        kind = {
            "group": row.get("group") or key[0],
            "version": row.get("version") or key[1],
            "kind": row.get("kind", ""),
        }
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
