"""Asking a webhook, as its configuration says where it is: by URL or by Service, over TLS, without redirects."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import orjson

from setpoint.apiserver.far_server import FarServer, FarServerProblem, FarServers, resolve_service
from setpoint.apiserver.http.message import Peer, Request, Response
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.webhook_identities import NOBODY, WebhookIdentities
from setpoint.meta.body import BodyError, parse_json, parse_yaml, type_meta
from setpoint.meta.clock import Clock
from setpoint.meta.decode import DecodeError
from setpoint.meta.goformat import quote

Obj = dict[str, Any]
Attempt = Callable[[float], Awaitable[Response]]
"""One request, within so many seconds."""
_LONGEST_TEXT = 2048
_RETRIES = 10
_PORT = re.compile(r":[0-9]+$")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
_HEADERS = {
    "accept": "application/json, */*",
    "content-type": "application/json",
    "user-agent": "kube-apiserver-admission",
}
_REFUSALS = {
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


class WebhookProblem(Exception):
    """There is no answer, or none that can be used."""


class WebhookClient:
    def __init__(
        self, servers: FarServers, reader: CacheReader, clock: Clock, identities: WebhookIdentities | None = None
    ) -> None:
        """Without `identities`, we are nobody to them."""
        self._servers = servers
        self._reader = reader
        self._clock = clock
        self._identities = identities

    def showing(self, identities: WebhookIdentities) -> WebhookClient:
        """One that is somebody to them."""
        return WebhookClient(self._servers, self._reader, self._clock, identities)

    async def ask(self, config: Obj, body: bytes, timeout: int) -> Obj:
        """The JSON object that comes back, within `timeout`. `config` is a clientConfig. Who wants to be asked later is
        asked again. Raises WebhookProblem, NoIdentity."""
        query = f"timeout={timeout}s"
        shown, path, authority = _place(config)
        request = Request("POST", path, query, dict(_HEADERS), body, Peer())
        identity = NOBODY
        if self._identities is not None:
            identity = self._identities.of(shown if _PORT.search(shown) else f"{shown}:443")
            for name, value in identity.headers:
                request.headers[name] = value
                request.repeated.setdefault(name, []).append(value)
        try:
            server = self._server(config, shown, authority)
            if identity.certificate is not None:
                server = replace(server, certificate=identity.certificate)

            async def attempt(left: float) -> Response:
                return await self._servers.post(server, request, left)

            response = await until_welcome(attempt, self._clock, float(timeout))
        except FarServerProblem as problem:
            raise WebhookProblem(f'Post "https://{shown}{path}?{query}": {problem}') from None
        if not 200 <= response.status < 300:
            raise WebhookProblem(refusal_text(response))
        return whole_answer(response)

    def _server(self, config: Obj, shown: str, authority: bytes) -> FarServer:
        service = config.get("service")
        if service is None:
            url = urlsplit(config["url"])
            return FarServer(url.hostname or "", url.port or 443, authority=authority, shown=shown)
        namespace, name, port = service["namespace"], service["name"], service.get("port", 443)
        at = resolve_service(self._reader, namespace, name, port)
        return FarServer(at.host, at.port, f"{name}.{namespace}.svc", authority, pod=at.pod, shown=shown)


async def until_welcome(attempt: Attempt, clock: Clock, timeout: float) -> Response:
    """The answer of a server that may say when it wants to be asked again: up to ten times, all within `timeout`.
    Raises WebhookProblem."""
    end = clock.monotonic() + timeout
    for _ in range(_RETRIES):
        response = await attempt(end - clock.monotonic())
        wait = _retry_after(response)
        if wait is None:
            return response
        if wait > 0:
            if clock.monotonic() + wait >= end:
                raise WebhookProblem("context deadline exceeded")
            await clock.sleep(wait)
    return await attempt(end - clock.monotonic())


def _retry_after(response: Response) -> int | None:
    """After how many seconds it wants to be asked again, if so."""
    if response.status != 429 and response.status < 500:
        return None
    text = next((value for name, value in response.headers if name.lower() == "retry-after"), "")
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


def _place(config: Obj) -> tuple[str, str, bytes]:
    """Host and port as messages have them, the path, and who signed its certificate."""
    authority = b64decode(config.get("caBundle") or "").strip()
    service = config.get("service")
    if service is None:
        url = urlsplit(config["url"])
        return url.netloc, url.path or "/", authority
    shown = f"{service['name']}.{service['namespace']}.svc:{service.get('port', 443)}"
    return shown, service.get("path") or "/", authority


def whole_answer(response: Response) -> Obj:
    """What does not look like JSON is YAML, if only to say what it is instead of an object. Raises WebhookProblem."""
    data = response.whole_body
    if not data:
        kind = _content_type(response)
        raise WebhookProblem(f"0-length response with status code: {response.status} and content type: {kind}")
    is_json = data.lstrip()[:1] == b"{"
    try:
        answer = (parse_json if is_json else parse_yaml)(data)[0]
        type_meta(answer)
    except (BodyError, DecodeError) as error:
        where = "" if isinstance(error, BodyError) and not is_json else "couldn't get version/kind; json parse error: "
        raise WebhookProblem(f"{where}{error}") from None
    return answer or {}


def _content_type(response: Response) -> str:
    return next((value for name, value in response.headers if name.lower() == "content-type"), "")


def refusal_text(response: Response) -> str:
    """The message of a Status, if it is one; else what the code stands for."""
    code, data = response.status, response.whole_body
    try:
        status = orjson.loads(data)
    except orjson.JSONDecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return str(status.get("message", ""))
    text = "unknown"
    if _content_type(response).startswith("text/") or not _content_type(response):
        text = data[:_LONGEST_TEXT].decode("utf-8", "replace").strip()
    if code == 406 and text in ("", "unknown"):
        return "the server was unable to respond with a content type that the client supports"
    if code in (403, 406, 415):
        return text
    if code >= 500 and code not in _REFUSALS:
        return f"an error on the server ({quote(text)}) has prevented the request from succeeding"
    return _REFUSALS.get(code, f"the server responded with the status code {code} but did not return more information")
