"""The servers in simulated Pods: which ports they have open, and what they respond to HTTP requests and datagrams."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from posixpath import dirname, normpath
from typing import NamedTuple
from urllib.parse import parse_qs

from setpoint.meta.clock import Clock
from setpoint.meta.goformat import quote
from setpoint.node.runtime.agnhost_webhooks import convert_review, review_admission
from setpoint.node.runtime.containers import Container, PodContainers
from setpoint.node.runtime.files import Files
from setpoint.node.runtime.images import SimulatedImageService, command_line
from setpoint.node.runtime.interface import STDERR, ContainerLog, NoSuchContainer
from setpoint.node.runtime.managed_files import hostname_of
from setpoint.node.runtime.network import (
    HTML,
    JSON,
    TCP,
    TEXT,
    UDP,
    ConnectionFailure,
    Network,
    PodRequest,
    PodResponse,
    response_head,
)
from setpoint.node.runtime.shell.session import flags_of

_BAD_REQUEST = (
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
)
_NETTEST_STATE = "/run/nettest.json"
"""The file in which `nettest` stores its state."""
_ServerResponse = tuple[PodResponse, str] | None
"""A response and the line that the server writes to its log (empty: none); None if nothing listens on the port."""


class _Server(NamedTuple):
    """The properties of a container that its responses depend on."""

    argv: Sequence[str] | None
    """The command line of the server; None if it is the image's own."""
    index_page: str
    """The file that the image's own server shows first; empty if it is not a web server."""
    files: Files
    hostname: str
    environment: Mapping[str, str]
    ports: Sequence[int]
    """The ports that the container declares."""
    now: float
    age: float
    """Seconds since the container was started."""
    network: Network


def _server_response(server: _Server, request: PodRequest) -> _ServerResponse:
    """Return the response of a server. Raise LookupError if its behaviour is not simulated."""
    argv = server.argv
    if request.datagram is not None and (argv is None or list(argv[1:2]) not in (["netexec"], ["serve-hostname"])):
        raise LookupError(server.hostname)
    if request.stream is not None and not _serves_without_http(argv):
        return _respond_to_stream(server, request, request.stream)
    if argv is not None and argv[0].rpartition("/")[2] in ("agnhost", "agnhost-2") and len(argv) > 1:
        return _AGNHOST[argv[1]](server, request, flags_of([*argv[2:]]))
    own = argv is None or argv[0].rpartition("/")[2] in ("nginx", "httpd", "httpd-foreground")
    if not own or not server.index_page:
        raise LookupError(server.hostname)
    if request.port not in (80, *server.ports) or request.tls:
        return None
    return _serve_file(server.files, dirname(server.index_page), request), ""


def _respond_to_stream(server: _Server, request: PodRequest, text: str) -> _ServerResponse:
    """Return all that a web server sends to a client that sends `text`."""
    words = text.split(" ", 2)
    valid = len(words) == 3 and words[0] in ("GET", "HEAD", "POST", "PUT", "DELETE")
    path, _, query = words[1].partition("?") if valid else ("/", "", "")
    found = _server_response(server, PodRequest(request.port, path, query, words[0] if valid else "GET"))
    if found is None:
        return None
    if not valid:
        return PodResponse(400, _BAD_REQUEST if text else ""), ""
    response, log_message = found
    return response._replace(body=response_head(response, server.now) + response.body), log_message


def _grpc_port(argv: Sequence[str] | None) -> int | None:
    """Return the port of the server's gRPC health service; None if it is not known."""
    if argv is None or len(argv) < 2 or not argv[0].endswith("agnhost") or argv[1] != "grpc-health-checking":
        return None
    return int(flags_of([*argv[2:]]).get("port") or 5000)


def _agnhost_ports(argv: Sequence[str], environment: Mapping[str, str]) -> set[tuple[int, str]]:
    """Return ports and protocols of a server of agnhost."""
    command, flags = argv[1] if len(argv) > 1 else "", flags_of([*argv[2:]])
    match command:
        case "netexec":
            http, udp = int(flags.get("http-port") or 8080), int(flags.get("udp-port") or 8081)
            return {(http, TCP), (udp, UDP)}
        case "serve-hostname" if _serves_without_http(argv):
            port = int(flags.get("port") or _DEFAULT_PORTS[command])
            return {(port, protocol) for name, protocol in (("tcp", TCP), ("udp", UDP)) if _is_set(flags, name)}
        case "porter":
            names = [re.fullmatch(r"SERVE_(?:TLS_|TCP_)?PORT_(\d{1,5})", name) for name in environment]
            return {(int(found[1]), TCP) for found in names if found is not None}
        case _ if command in _DEFAULT_PORTS:
            return {(int(flags.get("port") or _DEFAULT_PORTS[command]), TCP)}
    return set()


_DEFAULT_PORTS = {
    "crd-conversion-webhook": 443,
    "grpc-health-checking": 5000,
    "liveness": 8080,
    "nettest": 8080,
    "serve-hostname": 9376,
    "test-webserver": 80,
    "webhook": 443,
}


def _serve_file(files: Files, root: str, request: PodRequest) -> PodResponse:
    path = normpath(f"{root}/{request.path.lstrip('/')}")
    text = files.read(path)
    if text is None:
        text = files.read(f"{path}/index.html")
    if text is None:
        return PodResponse(404, "404 page not found\n")
    return PodResponse(200, text, HTML if text.lstrip()[:1] == "<" else TEXT)


def _stamp(server: _Server, text: str) -> str:
    return f"{datetime.fromtimestamp(server.now, UTC):%Y/%m/%d %H:%M:%S} {text}\n"


def _is_set(flags: Mapping[str, str], name: str) -> bool:
    return flags.get(name, "false") in ("", "true")


def _serves_without_http(argv: Sequence[str] | None) -> bool:
    """Return whether the server sends its data over TCP or UDP, without HTTP."""
    return argv is not None and list(argv[1:2]) == ["serve-hostname"] and flags_of([*argv[2:]]).get("http") == "false"


def _serve_hostname(server: _Server, request: PodRequest, flags: Mapping[str, str]) -> _ServerResponse:
    if request.port != int(flags.get("port") or 9376):
        return None
    if flags.get("http") != "false":
        return (PodResponse(200, server.hostname), "") if request.datagram is None and not request.tls else None
    if not _is_set(flags, "tcp" if request.datagram is None else "udp"):
        return None
    if request.datagram is None and request.stream is None:
        raise LookupError(server.hostname)  # The name alone is no response to an HTTP request.
    return PodResponse(200, server.hostname), ""


def _porter(server: _Server, request: PodRequest, flags: Mapping[str, str]) -> _ServerResponse:
    names = ("SERVE_TLS_PORT",) if request.tls else ("SERVE_PORT", "SERVE_TCP_PORT")
    text = next(
        (
            server.environment[f"{each}_{request.port}"]
            for each in names
            if f"{each}_{request.port}" in server.environment
        ),
        None,
    )
    if text is None:
        return None
    if "json-response" in flags:
        return PodResponse(200, json.dumps({"Method": request.method, "Body": text}, separators=(",", ":")), JSON), ""
    return PodResponse(200, text, HTML if text.lstrip()[:1] == "<" else TEXT), ""


def _netexec(server: _Server, request: PodRequest, flags: Mapping[str, str]) -> _ServerResponse:
    if request.datagram is not None:
        return (
            _netexec_datagram(server, request.datagram) if request.port == int(flags.get("udp-port") or 8081) else None
        )
    if request.port != int(flags.get("http-port") or 8080) or request.tls != ("tls-cert-file" in flags):
        return None
    parameters = {name: values[0] for name, values in parse_qs(request.query, keep_blank_values=True).items()}
    log_message = f"GET {request.path}"
    match request.path:
        case "/":
            found = PodResponse(200, f"NOW: {datetime.fromtimestamp(server.now, UTC):%Y-%m-%d %H:%M:%S.%f +0000 UTC}")
        case "/echo":
            message, code = parameters.get("msg", ""), parameters.get("code", "")
            log_message = f"GET /echo?msg={message}&code={code}"
            found = PodResponse(int(code) if re.fullmatch("[2-5][0-9]{2}", code) else 200, message)
        case "/dial":
            names = ("host", "protocol", "port", "request", "tries")
            log_message = "GET /dial?" + "&".join(f"{name}={parameters.get(name, '')}" for name in names)
            found = _dial(server, parameters)
        case "/hostname" | "/hostName":
            found = PodResponse(200, server.hostname)
        case "/serverport":
            found = PodResponse(200, str(request.port))
        case "/envvar":
            name = parameters.get("var", "")
            log_message = f"GET /envvar?var={name}"
            value = server.environment.get(name)
            problem = f"env var {quote(name)} is not set\n"
            found = PodResponse(200, value) if value is not None else PodResponse(500, problem)
        case "/healthz" | "/readyz":
            found = PodResponse(200, "")
        case _:
            return PodResponse(404, "404 page not found\n"), ""
    return found, _stamp(server, log_message)


def _netexec_datagram(server: _Server, text: str) -> _ServerResponse:
    command, _, rest = text.strip().partition(" ")
    match command.lower():
        case "hostname":
            return PodResponse(200, server.hostname), _stamp(server, "Sending udp hostName response")
        case "echo":
            return PodResponse(200, rest.lower()), _stamp(server, f"Echoing {rest.lower()} to UDP client")
        case "envvar":
            log_message = f"Sending UDP envvar response for {rest}"
            return PodResponse(200, server.environment.get(rest, "")), _stamp(server, log_message)
    return PodResponse(200, ""), ""


def _dial(server: _Server, parameters: Mapping[str, str]) -> PodResponse:
    """Send requests to another server and return its responses and errors."""
    port, tries, wanted = parameters.get("port", ""), parameters.get("tries") or "1", parameters.get("request", "")
    udp = parameters.get("protocol", "").lower() == "udp"
    if not port.isdigit() or not tries.isdigit() or not wanted:
        return PodResponse(400, "request parameter not specified. <nil>\n")
    path, _, query = wanted.partition("?")
    request = PodRequest(int(port), f"/{path}", query, datagram=wanted if udp else None)
    answers: list[str] = []
    problems: list[str] = []
    host = parameters.get("host", "")
    for _ in range(min(int(tries), 100)):
        address = server.network.resolve(host)
        found = server.network.exchange(address, request) if address else None
        if found is None:
            problems.append(f"dial tcp: lookup {host}: no such host")
        elif found is ConnectionFailure.RESET:
            problems.append(f'Get "http://{host}:{port}{request.path}": EOF')
        elif isinstance(found, ConnectionFailure):
            problems.append(f"dial tcp {address}:{port}: connect: {found.value.lower()}")
        else:
            answers.append(found.body)
    output = {"responses": answers} if answers and answers[-1] else {}
    if problems:
        output = {"errors": problems, **output}
    return PodResponse(200, json.dumps(output, separators=(",", ":")))


def _test_webserver(server: _Server, request: PodRequest, flags: Mapping[str, str]) -> _ServerResponse:
    if request.port != int(flags.get("port") or 80) or request.tls:
        return None
    path = normpath(request.path)
    if server.files.is_directory(path) and not server.files.is_file(f"{path.rstrip('/')}/index.html"):
        names = "".join(f'<a href="{each}">{each}</a>\n' for each in server.files.entries(path))
        return PodResponse(200, f"<pre>\n{names}</pre>\n", HTML), ""
    return _serve_file(server.files, "/", request), ""


def _liveness(server: _Server, request: PodRequest, flags: Mapping[str, str]) -> _ServerResponse:
    """A server that is healthy for ten seconds."""
    if request.port != 8080 or request.tls:
        return None
    if request.path == "/healthz":
        return (PodResponse(200, "ok") if server.age <= 10 else PodResponse(500, f"error: {server.age:g}")), ""
    return PodResponse(404, "404 page not found\n"), ""


def _nettest(server: _Server, request: PodRequest, flags: Mapping[str, str]) -> _ServerResponse:
    """A server that records who writes to it. It does not contact peers by itself."""
    if request.port != int(flags.get("port") or 8080) or request.tls:
        return None
    state = json.loads(server.files.read(_NETTEST_STATE) or "{}")
    received: dict[str, int] = state.setdefault("Received", {})
    errors: list[str] = state.setdefault("Errors", [])
    match request.path:
        case "/read":
            known = {"Hostname": server.hostname, "Sent": {}, **state, "Log": [], "StillContactingPeers": True}
            return PodResponse(200, json.dumps(known, indent="\t"), JSON), ""
        case "/write":
            source = _nettest_source(request.body)
            if source:
                received[source] = received.get(source, 0) + 1
            else:
                errors.append(f"{server.hostname}: Got request with no source")
            server.files.write(_NETTEST_STATE, json.dumps(state))
            return PodResponse(200, json.dumps({"Hostname": server.hostname}) + "\n", JSON), ""
        case "/status":
            return PodResponse(200, "running"), ""
    return PodResponse(404, "404 page not found\n"), ""


def _nettest_source(body: bytes) -> str:
    try:
        posted = json.loads(body)
    except ValueError:
        return ""
    return str(posted.get("Source") or "") if isinstance(posted, dict) else ""


def _no_listener(server: _Server, request: PodRequest, flags: Mapping[str, str]) -> _ServerResponse:
    return None


def _conversion_webhook(server: _Server, request: PodRequest, flags: Mapping[str, str]) -> _ServerResponse:
    if request.port != int(flags.get("port") or 443) or not request.tls:
        return None
    if request.path == "/readyz":
        return PodResponse(200, "ok"), ""
    if request.path != "/crdconvert":
        return PodResponse(404, "404 page not found\n"), ""
    return PodResponse(200, convert_review(request.body), JSON), ""


def _admission_webhook(server: _Server, request: PodRequest, flags: Mapping[str, str]) -> _ServerResponse:
    if request.port != int(flags.get("port") or 443) or not request.tls:
        return None
    if request.path == "/readyz":
        return PodResponse(200, "ok"), ""
    found = review_admission(request.path, request.body, flags)
    if found is None:
        return PodResponse(404, "404 page not found\n"), ""
    return PodResponse(200, found[0], JSON, found[1]), ""


_AGNHOST = {
    "crd-conversion-webhook": _conversion_webhook,
    "liveness": _liveness,
    "pause": _no_listener,
    "netexec": _netexec,
    "nettest": _nettest,
    "porter": _porter,
    "serve-hostname": _serve_hostname,
    "test-webserver": _test_webserver,
    "webhook": _admission_webhook,
}


class SimulatedServers:
    """The servers in the containers of all Pods."""

    def __init__(
        self,
        pods: Mapping[str, PodContainers],
        images: SimulatedImageService,
        clock: Clock,
        files: Callable[[Container], Files],
        network: Callable[[Container], Network],
        log: Callable[[str, str], ContainerLog],
    ) -> None:
        """Create the servers. `log(uid, container)` creates the log of a container if there is none."""
        self._pods = pods
        self._images = images
        self._clock = clock
        self._files = files
        self._network = network
        self._log = log

    def deliver(self, uid: str, request: PodRequest) -> PodResponse | ConnectionFailure:
        """Return the response of a Pod, or why there is none. If the behaviour of a server is not simulated, the ports
        that the container declares and the image is known for are open."""
        try:
            found = self.respond(uid, request)
        except NoSuchContainer:
            protocol = TCP if request.datagram is None else UDP
            return self.listens(uid, request.port, protocol) or ConnectionFailure.RESET
        return ConnectionFailure.REFUSED if found is None else found

    def listens(self, uid: str, port: int, protocol: str) -> ConnectionFailure | None:
        """Return None if a container of the Pod listens on the port."""
        pod = self._pods.get(uid)
        for run in pod.current.values() if pod is not None else ():
            if run.record.running and run.runs_server and (port, protocol) in self._open_ports(run):
                return None
        return ConnectionFailure.REFUSED

    def _open_ports(self, run: Container) -> set[tuple[int, str]]:
        spec = run.config.spec
        info = self._images.info(spec.get("image", ""))
        found = {(int(each["containerPort"]), each.get("protocol", TCP)) for each in spec.get("ports") or ()}
        argv = run.server_argv or command_line(spec, info)
        if argv is not None and argv[0].rpartition("/")[2] in ("agnhost", "agnhost-2"):
            return _agnhost_ports(argv, run.config.provider.environment(spec))
        if info is not None:
            found |= {(port, TCP) for port in info.ports}
        return found

    def respond(self, uid: str, request: PodRequest) -> PodResponse | None:
        pod, now = self._pods.get(uid), self._clock.now().timestamp()
        unknown = False
        for run in pod.current.values() if pod is not None else ():
            if not run.record.running or not run.runs_server:
                continue
            try:
                found = _server_response(self._server(run), request)
            except LookupError:
                unknown = True
                continue
            if found is not None:
                if found[1]:
                    self._log(uid, run.config.name)
                    assert run.log is not None
                    run.log.write(now, STDERR, found[1])
                return found[0]
        if unknown or pod is None:
            raise NoSuchContainer(uid)
        return None

    def probe_status(self, uid: str, container: str, request: PodRequest, *, grpc: bool = False) -> int:
        """Return the HTTP status with which the container responds to a probe; 0 if nothing listens on the port.

        Servers that are not simulated are healthy, and so is every page of a web server unless the file was removed."""
        pod = self._pods.get(uid)
        run = pod.current.get(container) if pod is not None else None
        if run is None:
            return 0
        info = self._images.info(run.config.spec.get("image", ""))
        argv = command_line(run.config.spec, info)
        if grpc:
            port = _grpc_port(argv)
            return 200 if port is None or port == request.port else 0
        if argv is None or argv[0].rpartition("/")[2] not in ("agnhost", "agnhost-2"):
            page_removed = (
                info is not None
                and info.index_page
                and run.files is not None
                and not run.files.is_file(info.index_page)
            )
            return 404 if page_removed and request.path in ("", "/", "/index.html") else 200
        try:
            found = _server_response(self._server(run), request)
        except LookupError:
            return 200
        return found[0].status if found is not None else 0

    def _server(self, run: Container) -> _Server:
        config, now = run.config, self._clock.now().timestamp()
        info = self._images.info(config.spec.get("image", ""))
        ports = [each["containerPort"] for each in config.spec.get("ports") or ()]
        return _Server(
            run.server_argv or command_line(config.spec, info),
            info.index_page if info is not None else "",
            self._files(run),
            hostname_of(config.pod),
            config.provider.environment(config.spec),
            ports,
            now,
            now - run.record.started_at,
            self._network(run),
        )
