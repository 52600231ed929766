"""Asking a webhook for a review: TokenReview, SubjectAccessReview. Where it is, is written in a kubeconfig.

Without redirects, each attempt with a limit of time; what may be a passing failure is tried again, a few times.
"""

from __future__ import annotations

from typing import Any

import orjson

from setpoint.apiserver.far_server import FarServerProblem, FarServers
from setpoint.apiserver.http.message import Response
from setpoint.apiserver.webhook_client import WebhookProblem, read_answer, refusal_text
from setpoint.apiserver.webhook_endpoint import Endpoint, pauses
from setpoint.meta.clock import Clock, Ids

Obj = dict[str, Any]
_PAUSE = 0.5


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
        body = orjson.dumps(review)
        for pause in pauses(_PAUSE, self._ids):
            try:
                return _status(await self._post(body), api_version, kind)
            except _Passing:
                await self._clock.sleep(pause)
        return _status(await self._post(body), api_version, kind)

    async def _post(self, body: bytes) -> Obj:
        try:
            response = await self._endpoint.post(self._servers, body, self._timeout, f"timeout={self._timeout:g}s")
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
        return read_answer(response.whole_body)
    retry = any(name.lower() == "retry-after" for name, _ in response.headers)
    passing = response.status == 429 or (response.status >= 500 and response.status != 503)
    failure = _Passing if retry or passing else WebhookProblem
    raise failure(refusal_text(response))
