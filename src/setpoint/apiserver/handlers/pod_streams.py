"""`/log`, `/exec`, `/attach` and `/portforward` of a Pod: checked here, carried out by its node."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from setpoint.apiserver.call import Call
from setpoint.apiserver.filters.authorize import AuthorizerChain, Decision, access_of
from setpoint.apiserver.handlers.connecting import admit_connection
from setpoint.apiserver.http.message import Answer, Peer, Request, Response, StreamResponse, UpgradeResponse
from setpoint.apiserver.log_socket import over_websocket
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.node_connection import NodeReply, NodeRoutes, NodeUnreachable
from setpoint.apiserver.options import integer
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.request import truthy
from setpoint.apiserver.watch_cache import Obj
from setpoint.meta.errors import ApiError, BadRequest, Forbidden, InternalError, Invalid, NotFound, PlainServerError
from setpoint.meta.field import Errors, forbidden, invalid
from setpoint.meta.times import TimeError, canonical_time
from setpoint.meta.websocket import is_websocket

_TEXT = [("Content-Type", "text/plain")]
_LONGEST_ERROR = 50_000
_UPGRADE_HEADERS = ("connection", "upgrade", "origin", "x-stream-protocol-version")


class PodStreams:
    def __init__(self, routes: NodeRoutes, reader: CacheReader, authorizer: AuthorizerChain) -> None:
        self._routes = routes
        self._reader = reader
        self._authorizer = authorizer

    async def log(self, call: Call, registry: Registry, form: Form) -> Answer:
        query = _log_query(call)
        pod = registry.get(call.target.namespace, call.target.name).obj
        container = _container(call, pod)
        if not (pod.get("spec") or {}).get("nodeName"):
            return Response(204, b"", [])  # nothing has run yet, so there is nothing to read
        path = _path("containerLogs", call, container)
        answer = await self._ask(pod, Request("GET", path, urlencode(query), {}, b"", Peer()))
        if isinstance(answer, UpgradeResponse):
            raise PlainServerError("the node switched to another protocol without being asked to")
        if not 200 <= answer.status <= 206:
            raise _refused_by_node(answer, "pods/log", call.target.name)
        if is_websocket(call.request.headers):
            return over_websocket(call.request.headers, answer)
        if isinstance(answer, StreamResponse):
            return StreamResponse(200, list(_TEXT), answer.run)
        return Response(200, answer.body, list(_TEXT))

    async def exec(self, call: Call, registry: Registry, form: Form) -> Answer:
        return await self._stream(call, registry, "exec")

    async def attach(self, call: Call, registry: Registry, form: Form) -> Answer:
        return await self._stream(call, registry, "attach")

    async def port_forward(self, call: Call, registry: Registry, form: Form) -> Answer:
        await self._may_create(call)
        await admit_connection(call, registry)
        pod = self._placed(call, registry)
        query = [("port", each) for each in call.query.get("ports", ())]
        return await self._upgraded(call, pod, _path("portForward", call), query)

    async def _may_create(self, call: Call) -> None:
        """A WebSocket begins with a GET. Who may only read must not get to run commands with one."""
        access = access_of(call)._replace(verb="create")
        decision, reason = await self._authorizer.decide(access)
        if decision is not Decision.ALLOW:
            raise Forbidden.of("", "pods", call.target.name, reason)

    async def _stream(self, call: Call, registry: Registry, what: str) -> Answer:
        await self._may_create(call)
        await admit_connection(call, registry)
        pod = registry.get(call.target.namespace, call.target.name).obj
        container = _container(call, pod)
        self._placed(call, registry)
        query = [
            (sent, "1")
            for name, sent in (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))
            if (truthy(call.option(name)) if name in call.query else name in ("stdout", "stderr"))
        ]
        if what == "exec":
            query += [("command", each) for each in call.query.get("command", ())]
        return await self._upgraded(call, pod, _path(what, call, container), query)

    def _placed(self, call: Call, registry: Registry) -> Obj:
        pod = registry.get(call.target.namespace, call.target.name).obj
        if not (pod.get("spec") or {}).get("nodeName"):
            raise BadRequest(f"pod {call.target.name} does not have a host assigned")
        return pod

    async def _upgraded(self, call: Call, pod: Obj, path: str, query: list[tuple[str, str]]) -> Answer:
        headers = {
            name: value
            for name, value in call.request.headers.items()
            if name in _UPGRADE_HEADERS or name.startswith("sec-websocket-")
        }
        if "upgrade" not in headers:
            raise BadRequest("Upgrade request required")
        repeated = {name: values for name, values in call.request.repeated.items() if name in headers}
        request = Request(call.request.method, path, urlencode(query), headers, b"", Peer(), repeated)
        try:
            answer = await self._ask(pod, request)
        except NodeUnreachable as error:
            raise PlainServerError(f"error dialing backend: {error.why}") from None
        if isinstance(answer, UpgradeResponse):
            return answer
        raise _refused_by_node(answer, f"pods/{call.target.subresource}", call.target.name)

    async def _ask(self, pod: Obj, request: Request) -> NodeReply:
        name = pod["spec"]["nodeName"]
        node = self._reader.get("", "nodes", "", name)
        if node is None:
            raise NotFound.of("", "nodes", name)
        return await self._routes.ask(node, request)


def _path(first: str, call: Call, *more: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in (first, call.target.namespace, call.target.name, *more))


def _refused_by_node(answer: Response | StreamResponse, resource: str, name: str) -> ApiError:
    """What a node says, in the words in which clients know it."""
    body = answer.body if isinstance(answer, Response) else b""
    text = (body if isinstance(body, bytes) else b"".join(body))[:_LONGEST_ERROR].decode("utf-8", "replace")
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


def _container(call: Call, pod: Obj) -> str:
    """The container that is meant; a Pod with several must be told which."""
    wanted = call.option("container")
    spec = pod.get("spec") or {}
    names = [c["name"] for c in spec.get("containers") or ()]
    inner = [c["name"] for c in spec.get("initContainers") or ()]
    ephemeral = [c["name"] for c in spec.get("ephemeralContainers") or ()]
    name = call.target.name
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


def _log_query(call: Call) -> list[tuple[str, str]]:
    """What the node is asked for. Raises Invalid."""
    errs: Errors = []
    number = {
        name: integer(call.option(name)) for name in ("tailLines", "limitBytes", "sinceSeconds") if name in call.query
    }
    since = call.option("sinceTime")
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
    if "stream" in call.query:
        errs.append(forbidden("stream", "may not be specified"))  # behind a gate that is closed by default
    if errs:
        raise Invalid.of("", "PodLogOptions", call.target.name, errs)
    query: list[tuple[str, str]] = [
        (name, "true")
        for name in ("follow", "previous", "timestamps")
        if name in call.query and truthy(call.option(name))
    ]
    query += [(name, str(value)) for name, value in number.items()]
    return [*query, ("sinceTime", since)] if since else query
