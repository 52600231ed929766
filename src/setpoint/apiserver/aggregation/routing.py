"""Which group versions others answer, and how a request gets to them."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import Any
from urllib.parse import quote as percent

import orjson

from setpoint.apiserver.call import Call
from setpoint.apiserver.far_server import FarReply, FarServer, FarServerProblem, FarServers, resolve_service
from setpoint.apiserver.http.message import (
    Answer,
    EventWriter,
    ObjectRequest,
    ObjectResponse,
    Peer,
    Request,
    Response,
    StreamResponse,
    StreamWriter,
    takes_events,
)
from setpoint.apiserver.reader import CacheReader
from setpoint.kinds.strategy import UserInfo

Obj = dict[str, Any]
Key = tuple[str, str]
"""Group and version."""

_PLAIN = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]
_TIMEOUT = 60.0
_NOT_PASSED_ON = ("authorization", "host", "connection", "keep-alive", "content-length", "transfer-encoding")
_OURS_TO_SAY = ("x-remote-", "impersonate-")
_REDIRECTED = "the backend attempted to redirect this request, which is not permitted\n"


def server_of(reader: CacheReader, api_service: Obj) -> FarServer:
    """Raises FarServerProblem."""
    spec = api_service["spec"]
    service = spec["service"]
    namespace, name, port = service.get("namespace", ""), service.get("name", ""), service.get("port", 443)
    at = resolve_service(reader, namespace, name, port)
    known_as = f"{name}.{namespace}.svc"
    authority = b64decode(spec.get("caBundle") or "")
    insecure = bool(spec.get("insecureSkipTLSVerify"))
    shown = f"{known_as}:{port}"
    return FarServer(at.host, at.port, known_as, authority, insecure, pod=at.pod, as_proxy=True, shown=shown)


def is_available(api_service: Obj) -> bool:
    conditions = (api_service.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Available" and one.get("status") == "True" for one in conditions)


class Aggregation:
    """`services` are the APIServices with a Service behind them; whoever follows those objects keeps it."""

    def __init__(self, servers: FarServers, reader: CacheReader) -> None:
        self._servers = servers
        self._reader = reader
        self.services: dict[Key, Obj] = {}

    async def proxy(self, call: Call) -> Answer:
        api_service = self.services[(call.target.group, call.target.version)]
        return await self._ask(call, api_service)

    async def proxy_document(self, call: Call, key: Key) -> Answer:
        return await self._ask(call, self.services[key])

    async def _ask(self, call: Call, api_service: Obj) -> Answer:
        if not is_available(api_service):
            return _refused("service unavailable\n", 503)
        try:
            server = server_of(self._reader, api_service)
            reply = await self._servers.ask(server, handed_on(call), _TIMEOUT)
        except FarServerProblem as problem:
            return _refused(f"error trying to reach service: {problem}\n", 503)
        if isinstance(reply, Response | StreamResponse) and 300 <= reply.status < 400 and reply.status != 304:
            return _refused(_REDIRECTED, 502)
        return await _for_object(call.request, reply) if isinstance(call.request, ObjectRequest) else reply

    async def document(self, api_service: Obj, path: str, accept: str, user: UserInfo) -> Response:
        """One of its documents, whole. Raises FarServerProblem."""
        headers = {"accept": accept, "user-agent": "kube-aggregator"}
        request = Request("GET", path, "", headers | identity(user)[0], b"", Peer(), identity(user)[1])
        return await self._servers.post(server_of(self._reader, api_service), request, 5.0)


def identity(user: UserInfo) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The headers that say who it is, and those of them that come several times."""
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


def handed_on(call: Call) -> Request:
    """The request as the other server gets it: without the user's credentials, with the user's name."""
    request = call.request
    kept = {
        name: value
        for name, value in request.headers.items()
        if name not in _NOT_PASSED_ON and not name.startswith(_OURS_TO_SAY)
    }
    if isinstance(request, ObjectRequest) and request.body:
        kept.setdefault("content-type", "application/json")
    said, repeated = identity(call.user)
    repeated |= {name: values for name, values in request.repeated.items() if name in kept}
    return Request(request.method, request.path, request.query, kept | said, request.body, Peer(), repeated)


def _refused(text: str, code: int) -> Response:
    return Response(code, text.encode(), list(_PLAIN))


# -- for those within the process -------------------------------------------------------------------------------------


async def _for_object(request: Request, reply: FarReply) -> Answer:
    """Those who gave an object get one, or events."""
    if not isinstance(reply, StreamResponse):
        return reply
    if "watch=" in request.query and reply.status == 200:

        async def run(writer: StreamWriter) -> None:
            await reply.run(_Events(writer) if takes_events(writer) else writer)

        return StreamResponse(reply.status, reply.headers, run)
    collected = _Collected()
    await reply.run(collected)
    try:
        value = orjson.loads(bytes(collected.data))
    except orjson.JSONDecodeError:
        return Response(reply.status, bytes(collected.data), reply.headers)
    if not isinstance(value, dict):
        return Response(reply.status, bytes(collected.data), reply.headers)
    return ObjectResponse(reply.status, value)


class _Collected:
    """A StreamWriter that keeps everything."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data

    def write_frames(self, frames: bytes) -> None:
        raise AssertionError("frames are for wires")

    @property
    def buffered(self) -> int:
        return 0

    async def drained(self) -> None:
        return

    async def closed(self) -> None:
        await asyncio.Event().wait()


class _Events:
    """A StreamWriter that makes events of the lines of a watch."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._rest = b""

    def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                event = orjson.loads(line)
                self._writer.event(event["type"], event["object"], len(line))

    def write_frames(self, frames: bytes) -> None:
        raise AssertionError("frames are for wires")

    @property
    def buffered(self) -> int:
        return self._writer.buffered

    async def drained(self) -> None:
        await self._writer.drained()

    async def closed(self) -> None:
        await self._writer.closed()
