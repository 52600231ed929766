"""The HTTP requests of probes and lifecycle hooks, with the error texts of Go's client, which users know."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote as percent_encode
from urllib.parse import urljoin, urlsplit

from setpoint.meta.clock import Clock
from setpoint.meta.goformat import quote
from setpoint.tasks import within
from setpoint.wire.client_connection import ClientConnection, open_connection
from setpoint.wire.http_exchange import ResponseLost, encode_request
from setpoint.wire.tls import TlsClient

MAX_BODY: Final = 10 * 1024
_MAX_REDIRECTS: Final = 10
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_HTTP_TO_HTTPS: Final = "http: server gave HTTP response to HTTPS client"
_PATH_CHARACTERS: Final = "/%:@!$&'()*+,;=~-._"
_ERRNO_TEXTS: Final = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset by peer",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network is unreachable",
    errno.EADDRNOTAVAIL: "cannot assign requested address",
    errno.EACCES: "permission denied",
    errno.EINVAL: "invalid argument",
    errno.ETIMEDOUT: "connection timed out",
}


class RequestFailed(Exception):
    """There is no response. The message is that of Go's client."""

    @property
    def is_http_on_https(self) -> bool:
        """Whether the server answered a TLS handshake with HTTP."""
        return str(self).endswith(_HTTP_TO_HTTPS)


class HttpResponse(NamedTuple):
    status: int
    body: str
    """The first 10 KiB of the body."""

    @property
    def is_redirect(self) -> bool:
        """Whether the response redirects to another host, where the client did not follow."""
        return 300 <= self.status < 400


@dataclass(frozen=True, slots=True)
class GetRequest:
    """A GET request of a probe or a hook."""

    scheme: str
    host: str
    port: int
    target: str
    """The path with the query, encoded."""
    headers: tuple[tuple[str, str], ...]
    host_header: str = ""
    """The header Host; empty means host and port."""

    @property
    def authority(self) -> str:
        return join_host_port(self.host, self.port)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def port_number(container: Mapping[str, Any], wanted: Any) -> int:
    """Return the number of a port, which may be the name of a port of the container. Raise ValueError."""
    number = wanted
    if isinstance(wanted, str):
        ports = container.get("ports") or ()
        number = next((each["containerPort"] for each in ports if each.get("name") == wanted), None)
        if number is None:
            raise ValueError(f"port {quote(wanted)} not found")
    if not isinstance(number, int) or not 0 < number < 65536:
        raise ValueError(f"invalid port number: {number}")
    return number


def request_of(action: Mapping[str, Any], container: Mapping[str, Any], ip: str, agent: str) -> GetRequest:
    """Return the request of an HTTPGetAction; `agent` is the default of the header User-Agent. Raise ValueError."""
    port = port_number(container, action.get("port"))
    headers: list[tuple[str, str]] = []
    for each in action.get("httpHeaders") or ():
        headers.append((_canonical(each.get("name") or ""), each.get("value") or ""))
    host_header = next((value for name, value in headers if name == "Host"), "")
    names = {name for name, _ in headers}
    if "User-Agent" not in names:
        headers.append(("User-Agent", agent))
    if "Accept" not in names:
        headers.append(("Accept", "*/*"))
    # An empty value of these two removes the header.
    sent = [each for each in headers if each[0] != "Host" and not (each[0] in ("Accept", "User-Agent") and not each[1])]
    return GetRequest(
        scheme=(action.get("scheme") or "http").lower(),
        host=action.get("host") or ip,
        port=port,
        target=_target(action.get("path") or ""),
        headers=(*sent, ("Connection", "close")),
        host_header=host_header,
    )


async def get(request: GetRequest, clock: Clock, timeout: float | None) -> HttpResponse:
    """Send a request, and follow redirects on the same host. Raise RequestFailed."""
    if timeout is None:
        return await _follow(request)
    try:
        return await within(clock, timeout, _follow(request))
    except TimeoutError:
        waiting = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        raise RequestFailed(f"Get {quote(request.url)}: {waiting}") from None


async def connect_tcp(host: str, port: int, clock: Clock, timeout: float) -> str:
    """Open a TCP connection and close it. Return Go's error text, or an empty string."""
    address = join_host_port(host, port)
    try:
        connection = await within(clock, timeout, open_connection(host, port, None))
    except TimeoutError:
        return f"dial tcp {address}: i/o timeout"
    except OSError as error:
        return _dial_error(error, host, address)
    connection.abort()
    return ""


async def _follow(request: GetRequest) -> HttpResponse:
    first_host = request.host
    for _ in range(_MAX_REDIRECTS):
        try:
            response, location = await _exchange(request)
        except _Failure as failure:
            raise RequestFailed(f"Get {quote(request.url)}: {failure}") from None
        if response.status not in _REDIRECTS or not location:
            return response
        target = urlsplit(urljoin(request.url, location))
        try:
            port = target.port or (443 if target.scheme == "https" else 80)
        except ValueError:
            return response
        if (target.hostname or "") != first_host.lower() or target.scheme not in ("http", "https"):
            return response
        path = _target(target.path + (f"?{target.query}" if target.query else ""))
        same = urlsplit(location).netloc == ""
        kept = request.host_header if same else ""
        request = GetRequest(target.scheme, first_host, port, path, request.headers, kept)
    raise RequestFailed(f"Get {quote(request.url)}: stopped after {_MAX_REDIRECTS} redirects")


class _Failure(Exception):
    """One exchange failed; the message is Go's, without the address."""


async def _exchange(request: GetRequest) -> tuple[HttpResponse, str]:
    """Return the response, and the header Location."""
    connection = await _connect(request)
    try:
        data = encode_request(
            "GET", request.target or "/", request.host_header or request.authority, request.headers, b""
        )
        exchange = connection.send(data)
        await connection.head(exchange)
        location = next((value for name, value in exchange.headers if name.lower() == "location"), "")
        body = bytearray()
        while len(body) < MAX_BODY and (chunk := await connection.next_chunk(exchange)):
            body += chunk
        return HttpResponse(exchange.status, bytes(body[:MAX_BODY]).decode("utf-8", "replace")), location
    except ValueError as error:
        raise _Failure(f"net/http: {error}") from None
    except ResponseLost as error:
        raise _Failure(_lost(error, connection)) from None
    finally:
        connection.abort()


@cache
def _unverified_tls() -> TlsClient:
    return TlsClient(None)


async def _connect(request: GetRequest) -> ClientConnection:
    tls = _unverified_tls() if request.scheme == "https" else None
    try:
        return await open_connection(request.host, request.port, tls)
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
            raise _Failure(_HTTP_TO_HTTPS) from None
        reason = (error.reason or "handshake failure").replace("_", " ").lower()
        raise _Failure(f"remote error: tls: {reason}") from None
    except OSError as error:
        if tls is not None and error.errno in (None, errno.ECONNRESET):
            raise _Failure("EOF" if error.errno is None else "read: connection reset by peer") from None
        raise _Failure(_dial_error(error, request.host, request.authority)) from None


def _lost(error: ResponseLost, connection: ClientConnection) -> str:
    """Return Go's text for a response that did not arrive."""
    text = str(error)
    if "not HTTP" in text:
        return "net/http: HTTP/1.x transport connection broken: malformed HTTP response"
    if "reset" in text.lower():
        return "read: connection reset by peer"
    return "unexpected EOF" if connection.answered else "EOF"


def _dial_error(error: OSError, host: str, address: str) -> str:
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {host}: no such host"
    number = error.errno
    text = _ERRNO_TEXTS.get(number, os.strerror(number).lower()) if number else str(error).lower()
    return f"dial tcp {address}: connect: {text}"


def _target(path: str) -> str:
    """Return path and query of a URL reference, encoded as Go does; the rest of the reference has no effect."""
    try:
        parsed = urlsplit(path)
    except ValueError:
        return "/" + percent_encode(path.lstrip("/"), safe=_PATH_CHARACTERS)
    encoded = percent_encode(parsed.path, safe=_PATH_CHARACTERS)
    if encoded and not encoded.startswith("/"):
        encoded = f"/{encoded}"
    return encoded + (f"?{percent_encode(parsed.query, safe=_PATH_CHARACTERS + '?')}" if parsed.query else "")


def _canonical(name: str) -> str:
    """Return the name of a header as Go writes it."""
    return "-".join(part.capitalize() for part in name.split("-"))
