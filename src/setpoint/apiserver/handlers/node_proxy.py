"""`/proxy` of nodes, Pods and Services: requests passed on, with what was checked and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

from setpoint.apiserver.call import Call
from setpoint.apiserver.handlers.connecting import admit_connection
from setpoint.apiserver.handlers.proxied_links import rewrite_html, rewrite_link
from setpoint.apiserver.http.message import Answer, Peer, Request, Response, StreamResponse, UpgradeResponse
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.node_connection import NodeReply, NodeRoutes, NodeUnreachable, kubelet_port
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.watch_cache import Obj
from setpoint.meta.errors import BadRequest, NotFound, ServiceUnavailable

_HOP_BY_HOP = frozenset((
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
    "upgrade", "content-length", "host",
))  # fmt: skip
_CREDENTIALS = frozenset(("authorization", "cookie", "x-remote-user", "x-remote-uid", "x-remote-group"))
_EXTRA = "x-remote-extra-"
_DIGITS, _HIGHEST_PORT = re.compile(r"[0-9]+"), 65535
_NAME = re.compile(r"(?:(https?):)?([^:]+)(?::([^:]*))?")


class Proxies:
    def __init__(self, routes: NodeRoutes, reader: CacheReader) -> None:
        self._routes = routes
        self._reader = reader

    async def node(self, call: Call, registry: Registry, form: Form) -> Answer:
        await admit_connection(call, registry)
        _, name, port = _split(call.target.name, "node")
        node = self._reader.get("", "nodes", "", name)
        if node is None:
            raise NotFound.of("", "nodes", name)
        if port and port != str(kubelet_port(node)):
            raise BadRequest(f"only the kubelet's own port of a node can be reached, {kubelet_port(node)}")
        try:
            return _passed(await self._routes.ask(node, _request(call)))
        except NodeUnreachable as error:
            raise ServiceUnavailable(f"error trying to reach service: {error.why}") from None

    async def pod(self, call: Call, registry: Registry, form: Form) -> Answer:
        await admit_connection(call, registry)
        scheme, name, port = _split(call.target.name, "pod")
        pod = registry.get(call.target.namespace, name).obj
        return await self._reach(call, pod, scheme, port or _first_port(pod))

    async def service(self, call: Call, registry: Registry, form: Form) -> Answer:
        await admit_connection(call, registry)
        scheme, name, port = _split(call.target.name, "service")
        unreachable = ServiceUnavailable(f'no endpoints available for service "{name}"')
        if not port.isdecimal() and self._reader.get("", "services", call.target.namespace, name) is None:
            raise unreachable
        service = registry.get(call.target.namespace, name).obj
        wanted = _service_port(service, port)
        if wanted is None:
            raise ServiceUnavailable(f'no service port "{port}" found for service "{name}"')
        for pod, target in self._behind(call.target.namespace, name, wanted.get("name", "")):
            return await self._reach(call, pod, scheme, target)
        raise unreachable

    def _behind(self, namespace: str, service: str, port: str) -> Iterable[tuple[Obj, str]]:
        """The Pods that are ready, with the number of their port."""
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

    async def _reach(self, call: Call, pod: Obj, scheme: str, port: str) -> Answer:
        status, name = pod.get("status") or {}, pod["metadata"]["name"]
        address, node = status.get("podIP"), (pod.get("spec") or {}).get("nodeName", "")
        if not address:
            raise BadRequest("address not allowed")
        if not call.target.rest and not call.request.path.endswith("/") and call.request.method in ("GET", "HEAD"):
            return _with_slash(call.request)
        number, tls, asked = _port_number(pod, port), scheme == "https", _request(call)
        near = self._routes.near(node)
        if near is None:
            return _led_back(call, _passed(await self._routes.reach(address, number, tls, asked)))
        try:
            found, why = near.reach(pod, number, tls, asked), "its containers do not listen there"
        except LookupError:
            found, why = None, "what its containers would answer is not known"
        if found is None:
            raise ServiceUnavailable(
                f"error trying to reach service: dial tcp {address}:{number}: connect: connection refused "
                f'(Pod "{name}" is simulated: {why})'
            )
        return _led_back(call, _passed(found))


def _with_slash(request: Request) -> Response:
    """Links of a page are relative to where it is: so the root of what is proxied has a slash at its end."""
    target = f"{request.path}/" + (f"?{request.query}" if request.query else "")
    return Response(301, b"", [("Location", target)])


def _led_back(call: Call, answer: Answer) -> Answer:
    """With links to the server's own root leading through the proxy."""
    if not isinstance(answer, Response):
        return answer
    sent = call.request
    prefix = sent.path[: len(sent.path) - len(call.target.rest)].rstrip("/")
    host, headers = sent.headers.get("host", ""), list(answer.headers)
    body = answer.whole_body
    for at, (name, value) in enumerate(headers):
        if name.lower() == "location":
            headers[at] = (name, rewrite_link(value, prefix, host))
            return Response(answer.status, body, headers)
    kinds = [value.partition(";")[0].strip() for name, value in headers if name.lower() == "content-type"]
    if kinds == ["text/html"] and not any(name.lower() == "content-encoding" for name, _ in headers):
        body = rewrite_html(body.decode("utf-8", "surrogateescape"), prefix, host).encode("utf-8", "surrogateescape")
    return Response(answer.status, body, headers)


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
    """Scheme, name and port; the scheme and the port may be empty."""
    found = _NAME.fullmatch(text)
    if found is None:
        raise BadRequest(f'invalid {what} request "{text}"')
    return found[1] or "", found[2], found[3] or ""


def _request(call: Call) -> Request:
    """What is passed on: without the client's credentials, they are for this server alone."""
    sent = call.request
    left_out = _HOP_BY_HOP | _CREDENTIALS
    kept = {name: value for name, value in sent.headers.items() if name not in left_out and not name.startswith(_EXTRA)}
    return Request(
        sent.method, "/" + quote(call.target.rest, safe="/:@!$&'()*+,;=~"), sent.query, kept, sent.body, Peer()
    )


def _passed(answer: NodeReply) -> Answer:
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
