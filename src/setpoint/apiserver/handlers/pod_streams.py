"""`/log`, `/exec`, `/attach` and `/portforward` of a Pod: validated here and passed to its node.

Logs are also sent as WebSocket messages, because browsers can read no other stream.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from setpoint.apiserver.api_resources import CacheReader
from setpoint.apiserver.filters.authorize import AuthorizerChain, Decision, access_of
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.node_connection import NodeRoutes, NodeUnreachable
from setpoint.apiserver.options import integer
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.request_context import RequestContext, truthy
from setpoint.apiserver.write_path import WritePath
from setpoint.meta.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    InternalError,
    Invalid,
    NotFound,
    PlainServerError,
)
from setpoint.meta.field import Errors, forbidden, invalid
from setpoint.meta.objects import Obj
from setpoint.meta.times import TimeError, canonical_time
from setpoint.tasks import child_tasks
from setpoint.wire.encoding import decode_chunks
from setpoint.wire.message import (
    Answer,
    HttpAnswer,
    Peer,
    RawConnection,
    Request,
    Response,
    StreamResponse,
    UpgradeResponse,
)
from setpoint.wire.websocket import HandshakeError, WebSocket, accept_handshake, is_websocket

_BASE64 = "base64.binary.k8s.io"
_PROTOCOLS = ("", "binary.k8s.io", _BASE64)
_FLAGS = ("stdin", "stdout", "stderr", "tty")
_TEXT = [("Content-Type", "text/plain")]
_MAX_ERROR_LENGTH = 50_000
_UPGRADE_HEADERS = ("connection", "upgrade", "origin", "x-stream-protocol-version")


def _over_websocket(headers: Mapping[str, str], answer: Response | StreamResponse) -> UpgradeResponse:
    """Return an answer that sends the body of `answer` in messages, after an empty one. What the client sends is
    ignored."""
    try:
        protocol, accepted = accept_handshake(headers, _PROTOCOLS)
    except HandshakeError as error:
        raise ApiError(error.text, code=error.status) from None

    async def run(connection: RawConnection) -> None:
        socket = WebSocket(connection)
        writer = _MessageWriter(socket, text=protocol == _BASE64)
        socket.send(b"", text=protocol == _BASE64)
        async with child_tasks(_until_closed(connection), _send(answer, writer)) as tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        socket.close()

    return UpgradeResponse(accepted, run)


async def _until_closed(connection: RawConnection) -> None:
    while await connection.read():
        pass


async def _send(answer: Response | StreamResponse, writer: _MessageWriter) -> None:
    if isinstance(answer, StreamResponse):
        await answer.run(writer)
    else:
        for piece in (answer.body,) if isinstance(answer.body, bytes) else answer.body:
            writer.write(piece)


class _MessageWriter:
    """A StreamWriter that sends each piece as one message."""

    def __init__(self, socket: WebSocket, *, text: bool) -> None:
        self._socket = socket
        self._text = text
        self.buffered = 0

    def write(self, data: bytes) -> None:
        if data:
            self._socket.send(b64encode(data) if self._text else data, text=self._text)

    def write_chunks(self, chunks: bytes) -> None:
        self.write(decode_chunks(chunks))

    async def drained(self) -> None:
        await self._socket.drained()

    async def closed(self) -> None:
        await asyncio.Event().wait()  # `_over_websocket` cancels the writer at the end of the connection


async def admit_connection(ctx: RequestContext, registry: Registry) -> None:
    """Call admission for a connection. Raises BadRequest and the errors of admission."""
    if "dryRun" in ctx.query:
        raise BadRequest("dryRun is not supported")
    await WritePath(ctx, registry).admit("CONNECT", options_of(ctx), ctx.target.name, ctx.target.subresource)


def options_of(ctx: RequestContext) -> dict[str, Any]:
    """Return the options as an object of their kind, such as PodExecOptions, without empty fields."""
    name, query = ctx.target.subresource, ctx.query
    if name == "proxy":
        path = ctx.target.rest
        if path and not path.startswith("/"):
            path = f"/{path}"
        if ctx.request.path.endswith("/") and not path.endswith("/"):
            path += "/"
        return {"path": path} if path else {}
    if name == "portforward":
        ports = [int(port) for port in query.get("ports", ()) if port.isdecimal() and len(port) < 6]
        return {"ports": ports} if ports else {}
    options: dict[str, Any] = {flag: True for flag in _FLAGS if flag in query and truthy(ctx.option(flag))}
    if ctx.option("container"):
        options["container"] = ctx.option("container")
    if name == "exec" and query.get("command"):
        options["command"] = list(query["command"])
    return options


class PodStreams:
    def __init__(self, routes: NodeRoutes, reader: CacheReader, authorizer: AuthorizerChain) -> None:
        self._routes = routes
        self._reader = reader
        self._authorizer = authorizer

    async def log(self, ctx: RequestContext, registry: Registry, form: Form) -> Answer:
        query = _log_query(ctx)
        pod = registry.get(ctx.target.namespace, ctx.target.name).obj
        container = _container(ctx, pod)
        if not (pod.get("spec") or {}).get("nodeName"):
            return Response(204, b"", [])  # nothing has run yet, so there is nothing to read
        path = _path("containerLogs", ctx, container)
        answer = await self._ask(pod, Request("GET", path, urlencode(query), {}, b"", Peer()))
        if isinstance(answer, UpgradeResponse):
            raise PlainServerError("the node switched to another protocol without being asked to")
        if not 200 <= answer.status <= 206:
            raise _refused_by_node(answer, "pods/log", ctx.target.name)
        if is_websocket(ctx.request.headers):
            return _over_websocket(ctx.request.headers, answer)
        if isinstance(answer, StreamResponse):
            return StreamResponse(200, list(_TEXT), answer.run)
        return Response(200, answer.body, list(_TEXT))

    async def exec(self, ctx: RequestContext, registry: Registry, form: Form) -> Answer:
        return await self._stream(ctx, registry, "exec")

    async def attach(self, ctx: RequestContext, registry: Registry, form: Form) -> Answer:
        return await self._stream(ctx, registry, "attach")

    async def port_forward(self, ctx: RequestContext, registry: Registry, form: Form) -> Answer:
        await self._may_create(ctx)
        await admit_connection(ctx, registry)
        pod = self._placed(ctx, registry)
        query = [("port", each) for each in ctx.query.get("ports", ())]
        return await self._upgraded(ctx, pod, _path("portForward", ctx), query)

    async def _may_create(self, ctx: RequestContext) -> None:
        """Require the right to create: a WebSocket starts with a GET, which must not let readers run commands."""
        access = access_of(ctx)._replace(verb="create")
        decision, reason = await self._authorizer.decide(access)
        if decision is not Decision.ALLOW:
            raise Forbidden.of("", "pods", ctx.target.name, reason)

    async def _stream(self, ctx: RequestContext, registry: Registry, what: str) -> Answer:
        await self._may_create(ctx)
        await admit_connection(ctx, registry)
        pod = registry.get(ctx.target.namespace, ctx.target.name).obj
        container = _container(ctx, pod)
        self._placed(ctx, registry)
        query = [
            (sent, "1")
            for name, sent in (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))
            if (truthy(ctx.option(name)) if name in ctx.query else name in ("stdout", "stderr"))
        ]
        if what == "exec":
            query += [("command", each) for each in ctx.query.get("command", ())]
        return await self._upgraded(ctx, pod, _path(what, ctx, container), query)

    def _placed(self, ctx: RequestContext, registry: Registry) -> Obj:
        pod = registry.get(ctx.target.namespace, ctx.target.name).obj
        if not (pod.get("spec") or {}).get("nodeName"):
            raise BadRequest(f"pod {ctx.target.name} does not have a host assigned")
        return pod

    async def _upgraded(self, ctx: RequestContext, pod: Obj, path: str, query: list[tuple[str, str]]) -> Answer:
        headers = {
            name: value
            for name, value in ctx.request.headers.items()
            if name in _UPGRADE_HEADERS or name.startswith("sec-websocket-")
        }
        if "upgrade" not in headers:
            raise BadRequest("Upgrade request required")
        repeated = {name: values for name, values in ctx.request.repeated.items() if name in headers}
        request = Request(ctx.request.method, path, urlencode(query), headers, b"", Peer(), repeated)
        try:
            answer = await self._ask(pod, request)
        except NodeUnreachable as error:
            raise PlainServerError(f"error dialing backend: {error.why}") from None
        if isinstance(answer, UpgradeResponse):
            return answer
        raise _refused_by_node(answer, f"pods/{ctx.target.subresource}", ctx.target.name)

    async def _ask(self, pod: Obj, request: Request) -> HttpAnswer:
        name = pod["spec"]["nodeName"]
        node = self._reader.get("", "nodes", "", name)
        if node is None:
            raise NotFound.of("", "nodes", name)
        return await self._routes.request_node(node, request)


def _path(first: str, ctx: RequestContext, *more: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in (first, ctx.target.namespace, ctx.target.name, *more))


def _refused_by_node(answer: Response | StreamResponse, resource: str, name: str) -> ApiError:
    """Return the error response of a node in upstream's words."""
    body = answer.body if isinstance(answer, Response) else b""
    text = (body if isinstance(body, bytes) else b"".join(body))[:_MAX_ERROR_LENGTH].decode("utf-8", "replace")
    if answer.status == 500:
        return InternalError.of(text)
    if answer.status == 400:
        return BadRequest(text)
    message = f"the server responded with the status code {answer.status} but did not return more information"
    reason = ""
    if answer.status == 404:
        message, reason = "the server could not find the requested resource", "NotFound"
    elif 300 <= answer.status < 400:
        return PlainServerError("redirects forbidden")
    elif answer.status == 422:
        message, reason = "the server rejected our request due to an error in our request", "Invalid"
    elif answer.status == 503:
        message, reason = "the server is currently unable to handle the request", "ServiceUnavailable"
    elif answer.status == 403:
        message, reason = text, "Forbidden"
    return ApiError(
        f"{message} ( {resource} {name})",
        code=answer.status,
        reason=reason,
        details={"name": name, "kind": resource},
    )


def _container(ctx: RequestContext, pod: Obj) -> str:
    """Return the name of the container; the client must choose one of several. Raises BadRequest."""
    wanted = ctx.option("container")
    spec = pod.get("spec") or {}
    names = [c["name"] for c in spec.get("containers") or ()]
    inner = [c["name"] for c in spec.get("initContainers") or ()]
    ephemeral = [c["name"] for c in spec.get("ephemeralContainers") or ()]
    name = ctx.target.name
    if wanted:
        if wanted not in (*names, *inner, *ephemeral):
            raise BadRequest(f"container {wanted} is not valid for pod {name}")
        return wanted
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if default in names:
        return str(default)
    if len(names) == 1:
        return str(names[0])
    if not names:
        raise BadRequest(f"a container name must be specified for pod {name}")
    text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
    if inner:
        text += f" or one of the init containers: [{' '.join(inner)}]"
    raise BadRequest(text)


def _log_query(ctx: RequestContext) -> list[tuple[str, str]]:
    """Return the query for the node. Raises Invalid."""
    errs: Errors = []
    number = {
        name: integer(ctx.option(name)) for name in ("tailLines", "limitBytes", "sinceSeconds") if name in ctx.query
    }
    since = ctx.option("sinceTime")
    if since:
        try:
            since = canonical_time(since) or ""
        except TimeError as error:
            raise BadRequest(str(error)) from None
    if number.get("tailLines", 0) < 0:
        errs.append(invalid("tailLines", number["tailLines"], "must be greater than or equal to 0"))
    if number.get("limitBytes", 1) < 1:
        errs.append(invalid("limitBytes", number["limitBytes"], "must be greater than 0"))
    if "sinceSeconds" in number and since:
        errs.append(forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif number.get("sinceSeconds", 1) < 1:
        errs.append(invalid("sinceSeconds", number["sinceSeconds"], "must be greater than 0"))
    if "stream" in ctx.query:
        errs.append(forbidden("stream", "may not be specified"))  # behind a gate that is closed by default
    if errs:
        raise Invalid.of("", "PodLogOptions", ctx.target.name, errs)
    query: list[tuple[str, str]] = [
        (name, "true")
        for name in ("follow", "previous", "timestamps")
        if name in ctx.query and truthy(ctx.option(name))
    ]
    query += [(name, str(value)) for name, value in number.items()]
    return [*query, ("sinceTime", since)] if since else query
