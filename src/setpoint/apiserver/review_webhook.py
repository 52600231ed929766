"""Asking a webhook for a review: TokenReview, SubjectAccessReview. Where it is, is written in a kubeconfig.

Without redirects, each attempt with a limit of time; what may be a passing failure is tried again, a few times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from setpoint.apiserver.far_server import FarServer, FarServerProblem, FarServers
from setpoint.apiserver.http.message import Peer, Request, Response
from setpoint.apiserver.webhook_client import WebhookProblem, read_answer, refusal_text
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.goformat import quote

Obj = dict[str, Any]
_ATTEMPTS = 5
_PAUSE, _FACTOR, _JITTER = 0.5, 1.5, 0.2


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a webhook is and what it is shown."""

    server: FarServer
    url: str
    path: str = "/"
    query: str = ""
    authorization: str = ""
    """The header, whole; it is never shown."""


class _Passing(WebhookProblem):
    """It may work the next time."""


class ReviewWebhook:
    def __init__(self, servers: FarServers, endpoint: Endpoint, clock: Clock, ids: Ids, timeout: float = 30.0) -> None:
        self._servers = servers
        self._endpoint = endpoint
        self._clock = clock
        self._ids = ids
        self._timeout = timeout

    async def ask(self, api_version: str, kind: str, spec: Obj) -> Obj:
        """The status of the review that comes back. Raises WebhookProblem."""
        empty: Obj = {"allowed": False} if kind == "SubjectAccessReview" else {"user": {}}
        review = {"kind": kind, "apiVersion": api_version, "metadata": {}, "spec": spec, "status": empty}
        body, pause = orjson.dumps(review), _PAUSE
        for attempt in range(_ATTEMPTS):
            try:
                return self._status(await self._post(body), api_version, kind)
            except _Passing:
                if attempt == _ATTEMPTS - 1:
                    raise
            await self._clock.sleep(pause * (1 + _JITTER * self._ids.below(1000) / 1000))
            pause *= _FACTOR
        raise AssertionError("there is an attempt")

    async def _post(self, body: bytes) -> Obj:
        place = self._endpoint
        headers = {
            "accept": "application/json, */*", "content-type": "application/json", "user-agent": "kube-apiserver",
        }  # fmt: skip
        if place.authorization:
            headers["authorization"] = place.authorization
        query = f"timeout={self._timeout:g}s"
        query = f"{place.query}&{query}" if place.query else query
        request = Request("POST", place.path, query, headers, body, Peer())
        try:
            response = await self._servers.post(place.server, request, self._timeout)
        except FarServerProblem as problem:
            text = f"Post {quote(f'{place.url}?{query}')}: {problem}"
            raise (_Passing if "reset by peer" in str(problem) else WebhookProblem)(text) from None
        return _read(response)

    def _status(self, answer: Obj, api_version: str, kind: str) -> Obj:
        found = (answer.get("apiVersion") or api_version, answer.get("kind") or kind)
        if found != (api_version, kind):
            shown, wanted = (f"({version.rpartition('/')[2]}.{name})" for version, name in (found, (api_version, kind)))
            raise WebhookProblem(f"converting {shown} to {wanted}: unknown conversion")
        status = answer.get("status")
        return status if isinstance(status, dict) else {}


def _read(response: Response) -> Obj:
    data = response.body if isinstance(response.body, bytes) else b"".join(response.body)
    if 200 <= response.status < 300:
        return read_answer(data)
    retry = any(name.lower() == "retry-after" for name, _ in response.headers)
    passing = response.status == 429 or (response.status >= 500 and response.status != 503)
    failure = _Passing if retry or passing else WebhookProblem
    raise failure(refusal_text(response, data))
