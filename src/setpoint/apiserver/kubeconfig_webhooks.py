"""Webhooks that an administrator configures in a kubeconfig: address, credentials, retries, and reviews.

TokenReviews, SubjectAccessReviews and ImageReviews are sent without following redirects, and each attempt has a
timeout. Transient failures are retried a few times, and a Retry-After of the webhook is honoured.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from setpoint.apiserver.remote_servers import RemoteServer, RemoteServerError, RemoteServers
from setpoint.apiserver.webhook_client import (
    WebhookError,
    decoded_object,
    error_message,
    with_retry_after,
)
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj
from setpoint.wire.message import Peer, Request, Response

log = logging.getLogger("setpoint.apiserver")

ATTEMPTS = 5
_FACTOR, _JITTER = 1.5, 0.2
_TOKEN_TTL = 50.0
"""Seconds for which a token from a file is used before the file is read again."""
_INITIAL_STATUS: dict[str, Obj] = {"TokenReview": {"user": {}}}
"""Initial status by kind; other kinds start with `allowed: false`."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    server: RemoteServer
    url: str
    path: str = "/"
    query: str = ""
    authorization: str = ""
    """The whole Authorization header; empty if there is none. It never occurs in messages."""
    token_file: Path | None = None
    """The file with the token of that header, which may change; None if the token is not from a file."""

    async def post(
        self, servers: RemoteServers, body: bytes, timeout: float, query: str = "", authorization: str = ""
    ) -> Response:
        """Post a JSON body. `query` is appended to the query of the address; `authorization` replaces the header of
        this endpoint. Raise RemoteServerError, whose message contains the address."""
        headers = {
            "accept": "application/json, */*",
            "content-type": "application/json",
            "user-agent": "kube-apiserver",
        }
        if authorization or self.authorization:
            headers["authorization"] = authorization or self.authorization
        query = "&".join(filter(None, (self.query, query)))
        try:
            return await servers.call(self.server, Request("POST", self.path, query, headers, body, Peer()), timeout)
        except RemoteServerError as error:
            url = f"{self.url}?{query}" if query else self.url
            raise RemoteServerError(f"Post {quote(url)}: {error}") from None


def read_token(file: Path) -> str:
    """Return the token in a file. Raise OSError or ValueError."""
    return file.read_text(encoding="utf-8").strip()


class ReloadedToken:
    """The Authorization header of an endpoint; a token from a file is read again at intervals."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._authorization = endpoint.authorization
        self._expires = clock.monotonic() + _TOKEN_TTL

    def header(self) -> str:
        file = self._endpoint.token_file
        if file is not None and self._clock.monotonic() >= self._expires:
            self._reload(file)
        return self._authorization

    def invalidate(self) -> None:
        """Read the file before the next request, because the server refused the token."""
        self._expires = self._clock.monotonic()

    def _reload(self, file: Path) -> None:
        try:
            token = read_token(file)
        except (OSError, ValueError) as error:
            log.error("Unable to rotate token: failed to read token file %s: %s", quote(str(file)), error)
            return
        if not token:
            log.error("Unable to rotate token: read empty token from file %s", quote(str(file)))
            return
        self._authorization = f"Bearer {token}"
        self._expires = self._clock.monotonic() + _TOKEN_TTL


def backoff_delays(first: float, ids: Ids) -> Iterator[float]:
    """Yield the delay in seconds after each attempt except the last: exponential, with jitter."""
    for attempt in range(ATTEMPTS - 1):
        yield first * _FACTOR**attempt * (1 + _JITTER * ids.below(1000) / 1000)


class _TransientFailure(WebhookError):
    """A failure that a retry may resolve."""


class ForbiddenByWebhook(WebhookError):
    """The webhook answered 403."""

    def __init__(self, status: Obj) -> None:
        super().__init__(status.get("message", ""))
        self.status = status
        """The answer as a Status."""


class ReviewWebhook:
    """Sends reviews to one webhook."""

    def __init__(
        self,
        servers: RemoteServers,
        endpoint: Endpoint,
        clock: Clock,
        ids: Ids,
        timeout: float = 30.0,
        backoff: float = 0.5,
    ) -> None:
        """`backoff` is the delay in seconds before the first retry; later ones wait longer."""
        self._servers = servers
        self._endpoint = endpoint
        self._clock = clock
        self._ids = ids
        self._timeout = timeout
        self._backoff = backoff
        self._token = ReloadedToken(endpoint, clock)

    async def request_status(self, api_version: str, kind: str, spec: Obj) -> Obj:
        """Return the status of the review that the webhook returns. Raises WebhookError."""
        return _status(await self.review(api_version, kind, spec), api_version, kind)

    async def review(self, api_version: str, kind: str, spec: Obj) -> Obj:
        """Return the webhook's response as it is. Raises WebhookError."""
        empty = _INITIAL_STATUS.get(kind, {"allowed": False})
        review = {"kind": kind, "apiVersion": api_version, "metadata": {}, "spec": spec, "status": empty}
        body = orjson.dumps(review)
        for pause in backoff_delays(self._backoff, self._ids):
            try:
                return await self._post(body)
            except _TransientFailure:
                await self._clock.sleep(pause)
        return await self._post(body)

    async def _post(self, body: bytes) -> Obj:
        async def attempt(timeout: float) -> Response:
            query, shown = f"timeout={self._timeout:g}s", self._token.header()
            response = await self._endpoint.post(self._servers, body, timeout, query, shown)
            if response.status == 401:
                self._token.invalidate()
            return response

        try:
            response = await with_retry_after(attempt, self._clock, self._timeout)
        except RemoteServerError as problem:
            raise (_TransientFailure if "reset by peer" in str(problem) else WebhookError)(str(problem)) from None
        return _read(response)


def _status(answer: Obj, api_version: str, kind: str) -> Obj:
    found = (answer.get("apiVersion") or api_version, answer.get("kind") or kind)
    if found != (api_version, kind):
        shown, wanted = (f"({version.rpartition('/')[2]}.{name})" for version, name in (found, (api_version, kind)))
        raise WebhookError(f"converting {shown} to {wanted}: unknown conversion")
    status = answer.get("status")
    return status if isinstance(status, dict) else {}


def _read(response: Response) -> Obj:
    if 200 <= response.status < 300:
        return decoded_object(response)
    if response.status == 403:
        raise ForbiddenByWebhook(_forbidden_status(response))
    retry = any(name.lower() == "retry-after" for name, _ in response.headers)
    transient = response.status == 429 or (response.status >= 500 and response.status != 503)
    failure = _TransientFailure if retry or transient else WebhookError
    raise failure(error_message(response))


def _forbidden_status(response: Response) -> Obj:
    try:
        status = orjson.loads(response.whole_body)
    except orjson.JSONDecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return status
    text = error_message(response)
    details = {"causes": [{"reason": "UnexpectedServerResponse", "message": text}]}
    return {"code": 403, "reason": "Forbidden", "message": text, "details": details}
