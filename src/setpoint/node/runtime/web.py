"""What simulated servers answer to HTTP requests: those of which it is known what they serve."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from posixpath import dirname, normpath
from typing import NamedTuple
from urllib.parse import parse_qs

from setpoint.meta.goformat import quote
from setpoint.node.runtime.files import Files
from setpoint.node.runtime.network import TCP, UDP, Failure, Network
from setpoint.node.runtime.shell.agnhost import flags_of
from setpoint.node.runtime.web_admission import review
from setpoint.node.runtime.web_conversion import convert
from setpoint.node.runtime.web_messages import HTML, JSON, TEXT, WebAnswer, WebRequest

_NOTES = "/run/nettest.json"
"""What `nettest` remembers."""


class Server(NamedTuple):
    """A container, as far as answers depend on it."""

    argv: Sequence[str] | None
    """None: the image's own."""
    page: str
    """The file that the image's own server shows first; empty: it is no web server."""
    files: Files
    hostname: str
    environment: Mapping[str, str]
    ports: Sequence[int]
    """Those that the container says it has."""
    now: float
    age: float
    """Since it was started, in seconds."""
    network: Network


def answer(server: Server, request: WebRequest) -> tuple[WebAnswer, str] | None:
    """With what the server writes to its log; None: nothing listens there. Raises LookupError when nobody knows."""
    argv = server.argv
    if request.datagram is not None and (argv is None or list(argv[1:2]) != ["netexec"]):
        raise LookupError(server.hostname)
    if argv is not None and argv[0].rpartition("/")[2] in ("agnhost", "agnhost-2") and len(argv) > 1:
        return _AGNHOST[argv[1]](server, request, flags_of([*argv[2:]]))
    own = argv is None or argv[0].rpartition("/")[2] in ("nginx", "httpd", "httpd-foreground")
    if not own or not server.page:
        raise LookupError(server.hostname)
    if request.port not in (80, *server.ports) or request.tls:
        return None
    return _file(server.files, dirname(server.page), request), ""


def grpc_port(argv: Sequence[str] | None) -> int | None:
    """Where the server answers questions about its health over gRPC; None: nobody knows."""
    if argv is None or len(argv) < 2 or not argv[0].endswith("agnhost") or argv[1] != "grpc-health-checking":
        return None
    return int(flags_of([*argv[2:]]).get("port") or 5000)


def agnhost_ports(argv: Sequence[str], environment: Mapping[str, str]) -> set[tuple[int, str]]:
    """Where a server of agnhost listens, with the protocol."""
    command, flags = argv[1] if len(argv) > 1 else "", flags_of([*argv[2:]])
    match command:
        case "netexec":
            http, udp = int(flags.get("http-port") or 8080), int(flags.get("udp-port") or 8081)
            return {(http, TCP), (udp, UDP)}
        case "porter":
            names = [re.fullmatch(r"SERVE_(?:TLS_|TCP_)?PORT_(\d{1,5})", name) for name in environment]
            return {(int(found[1]), TCP) for found in names if found is not None}
        case _ if command in _DEFAULT_PORTS:
            return {(int(flags.get("port") or _DEFAULT_PORTS[command]), TCP)}
    return set()


_DEFAULT_PORTS = {
    "crd-conversion-webhook": 443, "grpc-health-checking": 5000, "liveness": 8080, "nettest": 8080,
    "serve-hostname": 9376, "test-webserver": 80, "webhook": 443,
}  # fmt: skip


def _file(files: Files, root: str, request: WebRequest) -> WebAnswer:
    path = normpath(f"{root}/{request.path.lstrip('/')}")
    text = files.read(path)
    if text is None:
        text = files.read(f"{path}/index.html")
    if text is None:
        return WebAnswer(404, "404 page not found\n")
    return WebAnswer(200, text, HTML if text.lstrip()[:1] == "<" else TEXT)


def _stamp(server: Server, text: str) -> str:
    return f"{datetime.fromtimestamp(server.now, UTC):%Y/%m/%d %H:%M:%S} {text}\n"


def _serve_hostname(server: Server, request: WebRequest, flags: Mapping[str, str]) -> tuple[WebAnswer, str] | None:
    if request.port != int(flags.get("port") or 9376) or flags.get("http") == "false" or request.tls:
        return None
    return WebAnswer(200, server.hostname), ""


def _porter(server: Server, request: WebRequest, flags: Mapping[str, str]) -> tuple[WebAnswer, str] | None:
    names = ("SERVE_TLS_PORT",) if request.tls else ("SERVE_PORT", "SERVE_TCP_PORT")
    text = next((server.environment[f"{each}_{request.port}"] for each in names
                 if f"{each}_{request.port}" in server.environment), None)  # fmt: skip
    if text is None:
        return None
    if "json-response" in flags:
        return WebAnswer(200, json.dumps({"Method": request.method, "Body": text}, separators=(",", ":")), JSON), ""
    return WebAnswer(200, text, HTML if text.lstrip()[:1] == "<" else TEXT), ""


def _netexec(server: Server, request: WebRequest, flags: Mapping[str, str]) -> tuple[WebAnswer, str] | None:
    if request.datagram is not None:
        return (
            _netexec_datagram(server, request.datagram) if request.port == int(flags.get("udp-port") or 8081) else None
        )
    if request.port != int(flags.get("http-port") or 8080) or request.tls != ("tls-cert-file" in flags):
        return None
    asked = {name: values[0] for name, values in parse_qs(request.query, keep_blank_values=True).items()}
    said = f"GET {request.path}"
    match request.path:
        case "/":
            found = WebAnswer(200, f"NOW: {datetime.fromtimestamp(server.now, UTC):%Y-%m-%d %H:%M:%S.%f +0000 UTC}")
        case "/echo":
            message, code = asked.get("msg", ""), asked.get("code", "")
            said = f"GET /echo?msg={message}&code={code}"
            found = WebAnswer(int(code) if re.fullmatch("[2-5][0-9]{2}", code) else 200, message)
        case "/dial":
            names = ("host", "protocol", "port", "request", "tries")
            said = "GET /dial?" + "&".join(f"{name}={asked.get(name, '')}" for name in names)
            found = _dialled(server, asked)
        case "/hostname" | "/hostName":
            found = WebAnswer(200, server.hostname)
        case "/serverport":
            found = WebAnswer(200, str(request.port))
        case "/envvar":
            name = asked.get("var", "")
            said = f"GET /envvar?var={name}"
            value = server.environment.get(name)
            problem = f"env var {quote(name)} is not set\n"
            found = WebAnswer(200, value) if value is not None else WebAnswer(500, problem)
        case "/healthz" | "/readyz":
            found = WebAnswer(200, "")
        case _:
            return WebAnswer(404, "404 page not found\n"), ""
    return found, _stamp(server, said)


def _netexec_datagram(server: Server, text: str) -> tuple[WebAnswer, str] | None:
    command, _, rest = text.strip().partition(" ")
    match command.lower():
        case "hostname":
            return WebAnswer(200, server.hostname), _stamp(server, "Sending udp hostName response")
        case "echo":
            return WebAnswer(200, rest.lower()), _stamp(server, f"Echoing {rest.lower()} to UDP client")
        case "envvar":
            said = f"Sending UDP envvar response for {rest}"
            return WebAnswer(200, server.environment.get(rest, "")), _stamp(server, said)
    return WebAnswer(200, ""), ""


def _dialled(server: Server, asked: Mapping[str, str]) -> WebAnswer:
    """It asks somebody else, and tells what it was told."""
    port, tries, wanted = asked.get("port", ""), asked.get("tries") or "1", asked.get("request", "")
    udp = asked.get("protocol", "").lower() == "udp"
    if not port.isdigit() or not tries.isdigit() or not wanted:
        return WebAnswer(400, "request parameter not specified. <nil>\n")
    path, _, query = wanted.partition("?")
    request = WebRequest(int(port), f"/{path}", query, datagram=wanted if udp else None)
    answers: list[str] = []
    problems: list[str] = []
    host = asked.get("host", "")
    for _ in range(min(int(tries), 100)):
        address = server.network.resolve(host)
        found = server.network.exchange(address, request) if address else None
        if found is None:
            problems.append(f"dial tcp: lookup {host}: no such host")
        elif found is Failure.CLOSED:
            problems.append(f'Get "http://{host}:{port}{request.path}": EOF')
        elif isinstance(found, Failure):
            problems.append(f"dial tcp {address}:{port}: connect: {found.value.lower()}")
        else:
            answers.append(found.body)
    output = {"responses": answers} if answers and answers[-1] else {}
    if problems:
        output = {"errors": problems, **output}
    return WebAnswer(200, json.dumps(output, separators=(",", ":")))


def _test_webserver(server: Server, request: WebRequest, flags: Mapping[str, str]) -> tuple[WebAnswer, str] | None:
    if request.port != int(flags.get("port") or 80) or request.tls:
        return None
    path = normpath(request.path)
    if server.files.is_directory(path) and not server.files.is_file(f"{path.rstrip('/')}/index.html"):
        names = "".join(f'<a href="{each}">{each}</a>\n' for each in server.files.entries(path))
        return WebAnswer(200, f"<pre>\n{names}</pre>\n", HTML), ""
    return _file(server.files, "/", request), ""


def _liveness(server: Server, request: WebRequest, flags: Mapping[str, str]) -> tuple[WebAnswer, str] | None:
    """It is well for ten seconds."""
    if request.port != 8080 or request.tls:
        return None
    if request.path == "/healthz":
        return (WebAnswer(200, "ok") if server.age <= 10 else WebAnswer(500, f"error: {server.age:g}")), ""
    return WebAnswer(404, "404 page not found\n"), ""


def _nettest(server: Server, request: WebRequest, flags: Mapping[str, str]) -> tuple[WebAnswer, str] | None:
    """Notes who writes to it. It contacts nobody by itself: Services lead nowhere."""
    if request.port != int(flags.get("port") or 8080) or request.tls:
        return None
    state = json.loads(server.files.read(_NOTES) or "{}")
    received: dict[str, int] = state.setdefault("Received", {})
    errors: list[str] = state.setdefault("Errors", [])
    match request.path:
        case "/read":
            known = {"Hostname": server.hostname, "Sent": {}, **state, "Log": [], "StillContactingPeers": True}
            return WebAnswer(200, json.dumps(known, indent="\t"), JSON), ""
        case "/write":
            source = _source(request.body)
            if source:
                received[source] = received.get(source, 0) + 1
            else:
                errors.append(f"{server.hostname}: Got request with no source")
            server.files.write(_NOTES, json.dumps(state))
            return WebAnswer(200, json.dumps({"Hostname": server.hostname}) + "\n", JSON), ""
        case "/status":
            return WebAnswer(200, "running"), ""
    return WebAnswer(404, "404 page not found\n"), ""


def _source(body: bytes) -> str:
    try:
        posted = json.loads(body)
    except ValueError:
        return ""
    return str(posted.get("Source") or "") if isinstance(posted, dict) else ""


def _nothing(server: Server, request: WebRequest, flags: Mapping[str, str]) -> tuple[WebAnswer, str] | None:
    return None


def _conversion_webhook(server: Server, request: WebRequest, flags: Mapping[str, str]) -> tuple[WebAnswer, str] | None:
    if request.port != int(flags.get("port") or 443) or not request.tls:
        return None
    if request.path == "/readyz":
        return WebAnswer(200, "ok"), ""
    if request.path != "/crdconvert":
        return WebAnswer(404, "404 page not found\n"), ""
    return WebAnswer(200, convert(request.body), JSON), ""


def _admission_webhook(server: Server, request: WebRequest, flags: Mapping[str, str]) -> tuple[WebAnswer, str] | None:
    if request.port != int(flags.get("port") or 443) or not request.tls:
        return None
    if request.path == "/readyz":
        return WebAnswer(200, "ok"), ""
    found = review(request.path, request.body, flags)
    if found is None:
        return WebAnswer(404, "404 page not found\n"), ""
    return WebAnswer(200, found[0], JSON, found[1]), ""


_AGNHOST = {
    "crd-conversion-webhook": _conversion_webhook, "liveness": _liveness, "pause": _nothing,
    "netexec": _netexec, "nettest": _nettest, "porter": _porter, "serve-hostname": _serve_hostname,
    "test-webserver": _test_webserver, "webhook": _admission_webhook,
}  # fmt: skip
