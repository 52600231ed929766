"""Retries of webhooks that answer with Retry-After, within their timeout."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import pytest

from setpoint.apiserver.api_resources import CacheReader
from setpoint.apiserver.remote_servers import RemoteServer
from setpoint.apiserver.webhook_client import WebhookClient, WebhookError
from setpoint.wire.message import HttpAnswer, Request, Response

CONFIG = {"url": "https://hook.example.com/ask"}
FINE = Response(200, b'{"fine": true}')


def busy(status: int, **headers: str) -> Response:
    return Response(status, b"busy", [(name.replace("_", "-"), value) for name, value in headers.items()])


class Hook:
    """Answers one after the other, the last one for ever; its clock moves when somebody sleeps."""

    def __init__(self, *answers: Response) -> None:
        self._answers = list(answers)
        self.timeouts: list[float] = []
        self.time = 0.0
        self.client = WebhookClient(self, cast("CacheReader", None), self)

    async def forward(self, server: RemoteServer, request: Request, timeout: float) -> HttpAnswer:
        raise NotImplementedError

    async def call(self, server: RemoteServer, request: Request, timeout: float) -> Response:
        self.timeouts.append(timeout)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time, UTC)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


async def test_a_webhook_is_called_again_after_retry_after() -> None:
    hook = Hook(busy(429, retry_after="2"), busy(503, Retry_After="0"), busy(500, retry_after="3"), FINE)
    assert await hook.client.call(CONFIG, b"{}", 10) == {"fine": True}
    assert hook.timeouts == [10.0, 8.0, 8.0, 5.0]


@pytest.mark.parametrize(
    "answer", [busy(503), busy(503, retry_after="soon"), busy(404, retry_after="1"), busy(302, retry_after="1")]
)
async def test_other_responses_are_not_retried(answer: Response) -> None:
    hook = Hook(answer, FINE)
    with pytest.raises(WebhookError):
        await hook.client.call(CONFIG, b"{}", 10)
    assert len(hook.timeouts) == 1


async def test_retries_are_limited() -> None:
    late = Hook(busy(429, retry_after="5"))
    with pytest.raises(WebhookError, match=r"^context deadline exceeded$"):
        await late.client.call(CONFIG, b"{}", 10)
    assert late.timeouts == [10.0, 5.0]
    often = Hook(busy(429, retry_after="0"))
    with pytest.raises(WebhookError, match="has asked us to try again later"):
        await often.client.call(CONFIG, b"{}", 10)
    assert len(often.timeouts) == 11
