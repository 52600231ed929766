"""A webhook that wants to be asked again later is asked again, in the time that it has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import pytest

from setpoint.apiserver.far_server import FarReply, FarServer
from setpoint.apiserver.http.message import Request, Response
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.webhook_client import WebhookClient, WebhookProblem

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

    async def ask(self, server: FarServer, request: Request, timeout: float) -> FarReply:
        raise NotImplementedError

    async def post(self, server: FarServer, request: Request, timeout: float) -> Response:
        self.timeouts.append(timeout)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time, UTC)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


async def test_it_is_asked_again_after_that_time() -> None:
    hook = Hook(busy(429, retry_after="2"), busy(503, Retry_After="0"), busy(500, retry_after="3"), FINE)
    assert await hook.client.ask(CONFIG, b"{}", 10) == {"fine": True}
    assert hook.timeouts == [10.0, 8.0, 8.0, 5.0]


@pytest.mark.parametrize(
    "answer", [busy(503), busy(503, retry_after="soon"), busy(404, retry_after="1"), busy(302, retry_after="1")]
)
async def test_what_is_no_such_wish_is_an_answer(answer: Response) -> None:
    hook = Hook(answer, FINE)
    with pytest.raises(WebhookProblem):
        await hook.client.ask(CONFIG, b"{}", 10)
    assert len(hook.timeouts) == 1


async def test_it_gives_up_in_the_end() -> None:
    late = Hook(busy(429, retry_after="5"))
    with pytest.raises(WebhookProblem, match=r"^context deadline exceeded$"):
        await late.client.ask(CONFIG, b"{}", 10)
    assert late.timeouts == [10.0, 5.0]
    often = Hook(busy(429, retry_after="0"))
    with pytest.raises(WebhookProblem, match="has asked us to try again later"):
        await often.client.ask(CONFIG, b"{}", 10)
    assert len(often.timeouts) == 11
