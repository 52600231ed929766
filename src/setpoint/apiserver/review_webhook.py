"""Asking a webhook for a review: TokenReview, SubjectAccessReview, ImageReview. Where it is, a kubeconfig says.

Without redirects, each attempt with a limit of time; what may be a passing failure is tried again, a few times, and
within each attempt whoever wants to be asked later is asked later.
"""

from __future__ import annotations

from typing import Any

import orjson

from setpoint.apiserver.far_server import FarServerProblem, FarServers
from setpoint.apiserver.http.message import Response
from setpoint.apiserver.webhook_client import WebhookProblem, refusal_text, until_welcome, whole_answer
from setpoint.apiserver.webhook_endpoint import Endpoint, RenewedToken, pauses
from setpoint.meta.clock import Clock, Ids

Obj = dict[str, Any]
_EMPTY: dict[str, Obj] = {"TokenReview": {"user": {}}}
"""By kind: the status that is still to come; of all others that they do not allow anything yet."""


class _Passing(WebhookProblem):
    """It may work the next time."""


class Unwelcome(WebhookProblem):
    """We may not ask: it says 403."""

    def __init__(self, status: Obj) -> None:
        super().__init__(status.get("message", ""))
        self.status = status
        """What it says, as a Status."""


class ReviewWebhook:
    def __init__(
        self, servers: FarServers, endpoint: Endpoint, clock: Clock, ids: Ids, timeout: float = 30.0, pause: float = 0.5
    ) -> None:
        """`pause`: before the second attempt; then longer."""
        self._servers = servers
        self._endpoint = endpoint
        self._clock = clock
        self._ids = ids
        self._timeout = timeout
        self._pause = pause
        self._token = RenewedToken(endpoint, clock)

    async def ask(self, api_version: str, kind: str, spec: Obj) -> Obj:
        """The status of the review that comes back. Raises WebhookProblem."""
        return _status(await self.review(api_version, kind, spec), api_version, kind)

    async def review(self, api_version: str, kind: str, spec: Obj) -> Obj:
        """What comes back, whatever it is. Raises WebhookProblem."""
        empty = _EMPTY.get(kind, {"allowed": False})
        review = {"kind": kind, "apiVersion": api_version, "metadata": {}, "spec": spec, "status": empty}
        body = orjson.dumps(review)
        for pause in pauses(self._pause, self._ids):
            try:
                return await self._post(body)
            except _Passing:
                await self._clock.sleep(pause)
        return await self._post(body)

    async def _post(self, body: bytes) -> Obj:
        async def attempt(timeout: float) -> Response:
            query, shown = f"timeout={self._timeout:g}s", self._token.header()
            response = await self._endpoint.post(self._servers, body, timeout, query, shown)
            if response.status == 401:
                self._token.refused()
            return response

        try:
            response = await until_welcome(attempt, self._clock, self._timeout)
        except FarServerProblem as problem:
            raise (_Passing if "reset by peer" in str(problem) else WebhookProblem)(str(problem)) from None
        return _read(response)


def _status(answer: Obj, api_version: str, kind: str) -> Obj:
    found = (answer.get("apiVersion") or api_version, answer.get("kind") or kind)
    if found != (api_version, kind):
        shown, wanted = (f"({version.rpartition('/')[2]}.{name})" for version, name in (found, (api_version, kind)))
        raise WebhookProblem(f"converting {shown} to {wanted}: unknown conversion")
    status = answer.get("status")
    return status if isinstance(status, dict) else {}


def _read(response: Response) -> Obj:
    if 200 <= response.status < 300:
        return whole_answer(response)
    if response.status == 403:
        raise Unwelcome(_forbidding(response))
    retry = any(name.lower() == "retry-after" for name, _ in response.headers)
    passing = response.status == 429 or (response.status >= 500 and response.status != 503)
    failure = _Passing if retry or passing else WebhookProblem
    raise failure(refusal_text(response))


def _forbidding(response: Response) -> Obj:
    try:
        status = orjson.loads(response.whole_body)
    except orjson.JSONDecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return status
    text = refusal_text(response)
    details = {"causes": [{"reason": "UnexpectedServerResponse", "message": text}]}
    return {"code": 403, "reason": "Forbidden", "message": text, "details": details}
