"""`/proxy` of nodes, Pods and Services: passes requests on, without the credentials of the client.

Links in responses to the root of the proxied server are rewritten, so that they lead through the proxy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from urllib.parse import quote, urlsplit, urlunsplit

from setpoint.apiserver.api_resources import CacheReader
from setpoint.apiserver.handlers.pod_streams import admit_connection
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.node_connection import NodeRoutes, NodeUnreachable, kubelet_port
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.request_context import RequestContext
from setpoint.meta.errors import BadRequest, NotFound, ServiceUnavailable
from setpoint.meta.objects import Obj
from setpoint.wire.message import (
    Answer,
    HttpAnswer,
    Peer,
    Request,
    Response,
    StreamResponse,
    StreamWriter,
    UpgradeResponse,
)

_LINKS: dict[str, frozenset[str]] = {
    "a": frozenset(("href",)),
    "applet": frozenset(("codebase",)),
    "area": frozenset(("href",)),
    "audio": frozenset(("src",)),
    "base": frozenset(("href",)),
    "blockquote": frozenset(("cite",)),
    "body": frozenset(("background",)),
    "button": frozenset(("formaction",)),
    "command": frozenset(("icon",)),
    "del": frozenset(("cite",)),
    "embed": frozenset(("src",)),
    "form": frozenset(("action",)),
    "frame": frozenset(("longdesc", "src")),
    "head": frozenset(("profile",)),
    "html": frozenset(("manifest",)),
    "iframe": frozenset(("longdesc", "src")),
    "img": frozenset(("longdesc", "src", "usemap")),
    "input": frozenset(("src", "usemap", "formaction")),
    "ins": frozenset(("cite",)),
    "link": frozenset(("href",)),
    "object": frozenset(("classid", "codebase", "data", "usemap")),
    "q": frozenset(("cite",)),
    "script": frozenset(("src",)),
    "source": frozenset(("src",)),
    "video": frozenset(("poster", "src")),
}
"""Attributes that contain URLs, by tag."""
# The page is not trusted: possessive quantifiers avoid backtracking.
_VALUE = r"(?:\"[^\"]*+\"|'[^']*+'|[^\s\"'<>]++)"
_TAG = re.compile(rf"<([a-zA-Z][a-zA-Z0-9]*+)((?:\s++[^\s=<>/]++(?:\s*+=\s*+{_VALUE})?)*)(\s*+/?)>")
_ATTRIBUTE = re.compile(rf"(?<![^\s=<>/])([^\s=<>/]++)(\s*+=\s*+)({_VALUE})")


def rewrite_link(link: str, prefix: str, host: str) -> str:
    """Return the rewritten link. `prefix` is the path of the proxy, `host` the Host header of the client."""
    try:
        parts = urlsplit(link)
    except ValueError:
        return link
    if (parts.netloc and parts.netloc != host) or not parts.path.startswith("/") or parts.path.startswith(prefix):
        return link
    return urlunsplit(parts._replace(path=prefix.rstrip("/") + parts.path))


def rewrite_html(text: str, prefix: str, host: str) -> str:
    import html  # its table of entities takes 0.3 MB, and few servers proxy a page

    def tag(found: re.Match[str]) -> str:
        wanted = _LINKS.get(found[1].lower())
        if not wanted or "=" not in found[2]:
            return found[0]

        def attribute(one: re.Match[str]) -> str:
            if one[1].lower() not in wanted:
                return one[0]
            value = html.unescape(one[3][1:-1] if one[3][0] in "\"'" else one[3])
            return f'{one[1]}{one[2]}"{html.escape(rewrite_link(value, prefix, host))}"'

        return f"<{found[1]}{_ATTRIBUTE.sub(attribute, found[2])}{found[3]}>"

    return _TAG.sub(tag, text)


_HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
        "host",
    )
)
_CREDENTIALS = frozenset(("authorization", "cookie", "x-remote-user", "x-remote-uid", "x-remote-group"))
_EXTRA = "x-remote-extra-"
_MAX_PAGE = 1 << 20
"""The size in bytes up to which the links of an HTML page are rewritten."""
_DIGITS, _HIGHEST_PORT = re.compile(r"[0-9]+"), 65535
_NAME = re.compile(r"(?:(https?):)?([^:]+)(?::([^:]*))?")


class Proxies:
    def __init__(self, routes: NodeRoutes, reader: CacheReader) -> None:
        self._routes = routes
        self._reader = reader

    async def node(self, ctx: RequestContext, registry: Registry, form: Form) -> Answer:
        await admit_connection(ctx, registry)
        _, name, port = _split(ctx.target.name, "node")
        node = self._reader.get("", "nodes", "", name)
        if node is None:
            raise NotFound.of("", "nodes", name)
        if port and port != str(kubelet_port(node)):
            raise BadRequest(f"only the kubelet's own port of a node can be reached, {kubelet_port(node)}")
        try:
            return _passed(await self._routes.request_node(node, _request(ctx)))
        except NodeUnreachable as error:
            raise ServiceUnavailable(f"error trying to reach service: {error.why}") from None

    async def pod(self, ctx: RequestContext, registry: Registry, form: Form) -> Answer:
        await admit_connection(ctx, registry)
        scheme, name, port = _split(ctx.target.name, "pod")
        pod = registry.get(ctx.target.namespace, name).obj
        return await self._reach(ctx, pod, scheme, port or _first_port(pod))

    async def service(self, ctx: RequestContext, registry: Registry, form: Form) -> Answer:
        await admit_connection(ctx, registry)
        scheme, name, port = _split(ctx.target.name, "service")
        unreachable = ServiceUnavailable(f'no endpoints available for service "{name}"')
        if not port.isdecimal() and self._reader.get("", "services", ctx.target.namespace, name) is None:
            raise unreachable
        service = registry.get(ctx.target.namespace, name).obj
        wanted = _service_port(service, port)
        if wanted is None:
            raise ServiceUnavailable(f'no service port "{port}" found for service "{name}"')
        for pod, target in self._endpoints(ctx.target.namespace, name, wanted.get("name", "")):
            return await self._reach(ctx, pod, scheme, target)
        raise unreachable

    def _endpoints(self, namespace: str, service: str, port: str) -> Iterable[tuple[Obj, str]]:
        """Return the ready Pods of a Service, with the number of the target port."""
        for found in self._reader.list("discovery.k8s.io", "endpointslices", namespace):
            if (found["metadata"].get("labels") or {}).get("kubernetes.io/service-name") != service:
                continue
            number = next((each["port"] for each in found.get("ports") or () if each.get("name", "") == port), None)
            for each in found.get("endpoints") or ():
                reference = each.get("targetRef") or {}
                if number is None or not (each.get("conditions") or {}).get("ready", True):
                    continue
                pod = self._reader.get("", "pods", namespace, reference.get("name", ""))
                if pod is not None:
                    yield pod, str(number)

    async def _reach(self, ctx: RequestContext, pod: Obj, scheme: str, port: str) -> Answer:
        status, name = pod.get("status") or {}, pod["metadata"]["name"]
        address, node = status.get("podIP"), (pod.get("spec") or {}).get("nodeName", "")
        if not address:
            raise BadRequest("address not allowed")
        if not ctx.target.rest and not ctx.request.path.endswith("/") and ctx.request.method in ("GET", "HEAD"):
            return _with_slash(ctx.request)
        number, tls, request = _port_number(pod, port), scheme == "https", _request(ctx)
        connection = self._routes.in_process(node)
        if connection is None:
            return _with_rewritten_links(ctx, _passed(await self._routes.request_pod(address, number, tls, request)))
        try:
            found, why = connection.request_pod(pod, number, tls, request), "its containers do not listen there"
        except LookupError:
            found, why = None, "what its containers would answer is not known"
        if found is None:
            raise ServiceUnavailable(
                f"error trying to reach service: dial tcp {address}:{number}: connect: connection refused "
                f'(Pod "{name}" is simulated: {why})'
            )
        return _with_rewritten_links(ctx, _passed(found))


def _with_slash(request: Request) -> Response:
    """Redirect to the path with a trailing slash, so that relative links work at the root of the proxied server."""
    target = f"{request.path}/" + (f"?{request.query}" if request.query else "")
    return Response(301, b"", [("Location", target)])


def _with_rewritten_links(ctx: RequestContext, answer: Answer) -> Answer:
    """Rewrite links to the root of the proxied server, so that they lead through the proxy."""
    if not isinstance(answer, Response | StreamResponse):
        return answer
    sent = ctx.request
    prefix = sent.path[: len(sent.path) - len(ctx.target.rest)].rstrip("/")
    return rewrite_answer(answer, prefix, sent.headers.get("host", ""))


def rewrite_answer(answer: Response | StreamResponse, prefix: str, host: str) -> Answer:
    """Return an answer whose links to the root of the server begin with `prefix`: in its headers, and in an HTML page
    of limited size."""
    headers = list(answer.headers)
    for at, (name, value) in enumerate(headers):
        if name.lower() == "location":
            headers[at] = (name, rewrite_link(value, prefix, host))
            return replace(answer, headers=headers)
    kinds = [value.partition(";")[0].strip() for name, value in headers if name.lower() == "content-type"]
    if kinds != ["text/html"] or any(name.lower() == "content-encoding" for name, _ in headers):
        return answer

    def rewrite(page: bytes) -> bytes:
        text = rewrite_html(page.decode("utf-8", "surrogateescape"), prefix, host)
        return text.encode("utf-8", "surrogateescape")

    if isinstance(answer, Response):
        return Response(answer.status, rewrite(answer.whole_body), headers)
    run = answer.run

    async def rewritten(writer: StreamWriter) -> None:
        page = _PageWriter(writer, rewrite)
        await run(page)
        page.finish()

    return StreamResponse(answer.status, headers, rewritten)


class _PageWriter:
    """A StreamWriter that holds a page back until it is complete, to rewrite it. A page that is too large is passed on
    as it is."""

    def __init__(self, writer: StreamWriter, rewrite: Callable[[bytes], bytes]) -> None:
        self._writer = writer
        self._rewrite = rewrite
        self._page: bytearray | None = bytearray()
        """The page so far; None once it is passed on as it is."""

    def write(self, data: bytes) -> None:
        if self._page is None:
            self._writer.write(data)
            return
        self._page += data
        if len(self._page) > _MAX_PAGE:
            self._writer.write(bytes(self._page))
            self._page = None

    def write_chunks(self, chunks: bytes) -> None:
        raise AssertionError("nodes send no encoded chunks")

    @property
    def buffered(self) -> int:
        return self._writer.buffered

    async def drained(self) -> None:
        await self._writer.drained()

    async def closed(self) -> None:
        await self._writer.closed()

    def finish(self) -> None:
        if self._page:
            self._writer.write(self._rewrite(bytes(self._page)))


def _port_number(pod: Obj, port: str) -> int:
    if _DIGITS.fullmatch(port) or not port:
        number = int(port[:6] or 80)
        if number > _HIGHEST_PORT:
            raise ServiceUnavailable(f"error trying to reach service: dial tcp: address {port}: invalid port")
        return number
    for container in pod["spec"].get("containers") or ():
        for each in container.get("ports") or ():
            if each.get("name") == port:
                return int(each["containerPort"])
    raise BadRequest(f'no port "{port}" found for pod "{pod["metadata"]["name"]}"')


def _split(text: str, what: str) -> tuple[str, str, str]:
    """Return scheme, name and port; scheme and port may be empty."""
    found = _NAME.fullmatch(text)
    if found is None:
        raise BadRequest(f'invalid {what} request "{text}"')
    return found[1] or "", found[2], found[3] or ""


def _request(ctx: RequestContext) -> Request:
    """Return the request to pass on, without the client's credentials, which are for this server alone."""
    sent = ctx.request
    left_out = _HOP_BY_HOP | _CREDENTIALS
    headers = {
        name: value for name, value in sent.headers.items() if name not in left_out and not name.startswith(_EXTRA)
    }
    return Request(
        sent.method, "/" + quote(ctx.target.rest, safe="/:@!$&'()*+,;=~"), sent.query, headers, sent.body, Peer()
    )


def _passed(answer: HttpAnswer) -> Answer:
    if isinstance(answer, UpgradeResponse):
        return answer
    headers = [(name, value) for name, value in answer.headers if name.lower() not in _HOP_BY_HOP]
    if isinstance(answer, StreamResponse):
        return StreamResponse(answer.status, headers, answer.run)
    return Response(answer.status, answer.body, headers)


def _first_port(pod: Obj) -> str:
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            return str(port["containerPort"])
    return ""


def _service_port(service: Obj, wanted: str) -> Obj | None:
    ports: list[Obj] = service["spec"].get("ports") or []
    if not wanted:
        return ports[0] if len(ports) == 1 else None
    return next((each for each in ports if wanted in (each.get("name"), str(each.get("port")))), None)
