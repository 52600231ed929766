"""Calls webhooks at the URL or Service of their clientConfig, over TLS, without following redirects.

The credentials that this server presents to admission webhooks are configured by host name, with wildcards.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import orjson

from setpoint.apiserver.api_resources import CacheReader
from setpoint.apiserver.remote_servers import (
    RemoteServer,
    RemoteServerError,
    RemoteServers,
    resolve_service,
)
from setpoint.meta.body import BodyError, parse_json, parse_yaml, type_meta
from setpoint.meta.caching import TtlCache
from setpoint.meta.clock import Clock
from setpoint.meta.decode import DecodeError
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj
from setpoint.wire.message import Peer, Request, Response

_DEFAULT_PORT = ":443"
_ANY_HOST = "*"
_THIS_SERVER = "kubernetes.default.svc:443"
_CACHE_SECONDS = 60.0
"""Seconds for which credentials are cached: tokens in files change."""
_MAX_TEXT = 2048
_MAX_RETRIES = 10
_PORT = re.compile(r":[0-9]+$")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
_HEADERS = {
    "accept": "application/json, */*",
    "content-type": "application/json",
    "user-agent": "kube-apiserver-admission",
}
_MESSAGES = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


class NoIdentity(Exception):
    """The credentials for a webhook cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Credentials for a webhook."""

    headers: Sequence[tuple[str, str]] = ()
    """Authentication headers, which are sent to no other host."""
    certificate: tuple[bytes, bytes] | None = None
    """Client certificate and its key as PEM; None means no certificate."""


NO_CREDENTIALS = Identity()


class WebhookIdentities:
    """Credentials by host name. `names` are the configured host patterns; `current` is the one for all other hosts, or
    "" for none. `read` returns the credentials of a pattern and raises NoIdentity."""

    def __init__(self, names: Collection[str], current: str, read: Callable[[str], Identity], clock: Clock) -> None:
        self._names = frozenset(names)
        self._current = current
        self._read = read
        self._cache: TtlCache[str, Identity] = TtlCache(max(1, len(self._names)), clock)

    def identity_for(self, target: str) -> Identity:
        """Return the credentials for a host and port; a Service is `name.namespace.svc`. Raises NoIdentity."""
        name = self.pattern_for(target)
        if not name:
            return NO_CREDENTIALS
        cached = self._cache.get(name)
        if cached is None:
            cached = self._read(name)
            self._cache.put(name, cached, _CACHE_SECONDS)
        return cached

    def pattern_for(self, target: str) -> str:
        """Return the most specific pattern that matches."""
        if target == _THIS_SERVER:
            return ""
        found = (name for name in _candidates(target) if name in self._names)
        return next(found, self._current)


def _candidates(target: str) -> Iterator[str]:
    yield from _with_wildcards(target)
    if target.endswith(_DEFAULT_PORT):
        yield from _with_wildcards(target.removesuffix(_DEFAULT_PORT).strip("[]"))
    yield _ANY_HOST


def _with_wildcards(target: str) -> Iterator[str]:
    yield target
    steps = target.split(".")
    for at in range(1, len(steps)):
        yield "*." + ".".join(steps[at:])


Attempt = Callable[[float], Awaitable[Response]]
"""Sends one request, and returns its response within the given number of seconds."""


class WebhookError(Exception):
    """A webhook did not respond, or its response is invalid."""


class WebhookClient:
    def __init__(
        self, servers: RemoteServers, reader: CacheReader, clock: Clock, identities: WebhookIdentities | None = None
    ) -> None:
        """`identities` are the credentials for webhooks; None means that none are sent."""
        self._servers = servers
        self._reader = reader
        self._clock = clock
        self._identities = identities

    def with_identities(self, identities: WebhookIdentities) -> WebhookClient:
        """Return a client that authenticates itself to webhooks."""
        return WebhookClient(self._servers, self._reader, self._clock, identities)

    async def call(self, config: Obj, body: bytes, timeout: int) -> Obj:
        """Send a request to the webhook of a clientConfig, and return the object in its response, within `timeout`
        seconds. Retry if the webhook requests it. Raise WebhookError or NoIdentity."""
        query = f"timeout={timeout}s"
        address, path, ca_bundle = _target(config)
        request = Request("POST", path, query, dict(_HEADERS), body, Peer())
        identity = NO_CREDENTIALS
        if self._identities is not None:
            identity = self._identities.identity_for(address if _PORT.search(address) else f"{address}:443")
            for name, value in identity.headers:
                request.headers[name] = value
                request.repeated.setdefault(name, []).append(value)
        try:
            server = self._server(config, address, ca_bundle)
            if identity.certificate is not None:
                server = replace(server, client_certificate=identity.certificate)

            async def attempt(seconds: float) -> Response:
                return await self._servers.call(server, request, seconds)

            response = await with_retry_after(attempt, self._clock, float(timeout))
        except RemoteServerError as error:
            raise WebhookError(f'Post "https://{address}{path}?{query}": {error}') from None
        if not 200 <= response.status < 300:
            raise WebhookError(error_message(response))
        return decoded_object(response)

    def _server(self, config: Obj, address: str, ca_bundle: bytes) -> RemoteServer:
        service = config.get("service")
        if service is None:
            url = urlsplit(config["url"])
            return RemoteServer(url.hostname or "", url.port or 443, ca_bundle=ca_bundle, display_address=address)
        namespace, name, port = service["namespace"], service["name"], service.get("port", 443)
        at = resolve_service(self._reader, namespace, name, port)
        server_name = f"{name}.{namespace}.svc"
        return RemoteServer(at.host, at.port, server_name, ca_bundle, pod=at.pod, display_address=address)


async def with_retry_after(attempt: Attempt, clock: Clock, timeout: float) -> Response:
    """Return the response of a server, after up to ten retries as its Retry-After headers request, all within
    `timeout` seconds. Raise WebhookError."""
    end = clock.monotonic() + timeout
    for _ in range(_MAX_RETRIES):
        response = await attempt(end - clock.monotonic())
        wait = _retry_after(response)
        if wait is None:
            return response
        if wait > 0:
            if clock.monotonic() + wait >= end:
                raise WebhookError("context deadline exceeded")
            await clock.sleep(wait)
    return await attempt(end - clock.monotonic())


def _retry_after(response: Response) -> int | None:
    """Return the seconds after which the server requests a retry; None if it does not."""
    if response.status != 429 and response.status < 500:
        return None
    text = next((value for name, value in response.headers if name.lower() == "retry-after"), "")
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


def _target(config: Obj) -> tuple[str, str, bytes]:
    """Return host and port as in messages, the path, and the CA bundle of a clientConfig."""
    ca_bundle = b64decode(config.get("caBundle") or "").strip()
    service = config.get("service")
    if service is None:
        url = urlsplit(config["url"])
        return url.netloc, url.path or "/", ca_bundle
    address = f"{service['name']}.{service['namespace']}.svc:{service.get('port', 443)}"
    return address, service.get("path") or "/", ca_bundle


def decoded_object(response: Response) -> Obj:
    """Return the object in a response. A body that does not look like JSON is decoded as YAML, as upstream does, which
    decides the error message. Raise WebhookError."""
    data = response.whole_body
    if not data:
        kind = _content_type(response)
        raise WebhookError(f"0-length response with status code: {response.status} and content type: {kind}")
    is_json = data.lstrip()[:1] == b"{"
    try:
        answer = (parse_json if is_json else parse_yaml)(data)[0]
        type_meta(answer)
    except (BodyError, DecodeError) as error:
        where = "" if isinstance(error, BodyError) and not is_json else "couldn't get version/kind; json parse error: "
        raise WebhookError(f"{where}{error}") from None
    return answer or {}


def _content_type(response: Response) -> str:
    return next((value for name, value in response.headers if name.lower() == "content-type"), "")


def error_message(response: Response) -> str:
    """Return the message of an error response: that of a Status, or upstream's text for the code."""
    code, data = response.status, response.whole_body
    try:
        status = orjson.loads(data)
    except orjson.JSONDecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return str(status.get("message", ""))
    text = "unknown"
    if _content_type(response).startswith("text/") or not _content_type(response):
        text = data[:_MAX_TEXT].decode("utf-8", "replace").strip()
    if code == 406 and text in ("", "unknown"):
        return "the server was unable to respond with a content type that the client supports"
    if code in (403, 406, 415):
        return text
    if code >= 500 and code not in _MESSAGES:
        return f"an error on the server ({quote(text)}) has prevented the request from succeeding"
    return _MESSAGES.get(code, f"the server responded with the status code {code} but did not return more information")
