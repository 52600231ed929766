"""Tokens that a webhook knows, through the front door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from front_door import FrontDoor
from token_issuer import Network

from setpoint.apiserver.far_server import FarServer
from setpoint.apiserver.http.message import Request, Response
from setpoint.cluster.access_config import AccessConfig

REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"
Obj = dict[str, Any]


def kubeconfig(path: Path, **user: str) -> str:
    """Of a webhook at https://hook.example/authenticate."""
    content = {
        "current-context": "hook",
        "contexts": [{"name": "hook", "context": {"cluster": "hook", "user": "us"}}],
        "clusters": [{"name": "hook", "cluster": {"server": "https://hook.example/authenticate?a=b"}}],
        "users": [{"name": "us", "user": user}],
    }
    path.write_bytes(orjson.dumps(content))
    return str(path)


class Hook:
    def __init__(self, network: Network) -> None:
        self.status: Obj = {}
        self.reply: Response | None = None
        self.asked: list[Obj] = []
        self.requests: list[Request] = []
        network.hosts["hook.example"] = self.answer

    def answer(self, server: FarServer, request: Request) -> Response:
        review = orjson.loads(request.body)
        self.asked.append(review["spec"])
        self.requests.append(request)
        if self.reply is not None:
            return self.reply
        return Response(200, orjson.dumps(review | {"status": self.status}))


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[tuple[FrontDoor, Hook]]:
    network = Network()
    found = Hook(network)
    access = AccessConfig(
        authentication_token_webhook_config_file=kubeconfig(tmp_path / "hook.json", token="ours"),
        authentication_token_webhook_version="v1",
        authentication_token_webhook_cache_ttl=60.0,
    )
    door = await FrontDoor.open(servers=network, access=access, service_account_issuer=["https://own"])
    yield door, found
    await door.close()


async def review(door: FrontDoor, token: str, *audiences: str) -> Obj:
    status: Obj = (await door.post(REVIEW, {"spec": {"token": token, "audiences": list(audiences)}})).json["status"]
    return status


JANE = {
    "authenticated": True,
    "user": {"username": "jane", "uid": "7", "groups": ["devs"], "extra": {"example.com/a": ["b"]}},
}


async def test_the_webhook_says_who_it_is(hook: tuple[FrontDoor, Hook]) -> None:
    door, far = hook
    far.status = JANE
    assert 'User "jane" cannot list' in (await door.get("/api/v1/pods", token="t")).message
    assert far.asked == [{"token": "t", "audiences": ["https://own"]}]
    request = far.requests[0]
    assert (request.path, request.query) == ("/authenticate", "a=b&timeout=30s")
    assert request.headers["authorization"] == "Bearer ours"
    assert orjson.loads(request.body)["apiVersion"] == "authentication.k8s.io/v1"
    assert await review(door, "t") == {
        "authenticated": True,
        "audiences": ["https://own"],
        "user": {
            "username": "jane",
            "uid": "7",
            "groups": ["devs", "system:authenticated"],
            "extra": {"example.com/a": ["b"]},
        },
    }
    assert len(far.asked) == 1


async def test_answers_are_kept_for_a_while(hook: tuple[FrontDoor, Hook]) -> None:
    door, far = hook
    for status, code in ((JANE, 403), ({"authenticated": False}, 401)):
        far.status = status
        before = len(far.asked)
        for _ in range(3):
            assert (await door.get("/api", token=str(code))).status == code
        assert len(far.asked) == before + 1
        await door.clock.advance(61)
        await door.get("/api", token=str(code))
        assert len(far.asked) == before + 2


async def test_failures_are_not_kept(hook: tuple[FrontDoor, Hook]) -> None:
    door, far = hook
    far.status = {"error": "try again"}
    assert (await review(door, "t"))["error"] == "[invalid bearer token, try again]"
    far.status = JANE
    assert (await review(door, "t"))["authenticated"]


@pytest.mark.parametrize(
    ("says", "asked", "fitting"),
    [([], ["https://own"], ["https://own"]), ([], ["x"], None), (["x", "y"], ["y", "z"], ["y"]), (["x"], ["y"], None)],
)
async def test_audiences(
    hook: tuple[FrontDoor, Hook], says: list[str], asked: list[str], fitting: list[str] | None
) -> None:
    door, far = hook
    far.status = JANE | {"audiences": says}
    found = await review(door, "t", *asked)
    assert far.asked[0]["audiences"] == asked
    assert found.get("audiences") == fitting


async def test_one_question_for_all_who_ask_at_once(hook: tuple[FrontDoor, Hook]) -> None:
    door, far = hook
    far.status = JANE
    replies = await asyncio.gather(*(door.get("/api", token="t") for _ in range(10)))
    assert {reply.status for reply in replies} == {403}
    assert len(far.asked) == 1


@pytest.mark.parametrize(
    ("reply", "attempts", "why"),
    [
        (Response(302, b"", [("Location", "https://other.example/")]), 1, "the server responded with the status code "
         "302 but did not return more information"),
        (Response(401, b""), 1, "the server has asked for the client to provide credentials"),
        (Response(502, b"oh"), 5, 'an error on the server ("oh") has prevented the request from succeeding'),
        (Response(503, b"", [("Retry-After", "1")]), 55, "the server is currently unable to handle the request"),
        (Response(500, b"{}", [("Content-Type", "application/json")]), 5, 'an error on the server ("unknown") has '
         "prevented the request from succeeding"),
        (Response(200, b'{"kind":"Status","apiVersion":"v1"}'), 1, "converting (v1.Status) to (v1.TokenReview): "
         "unknown conversion"),
        (Response(200, b"[1]"), 1, "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go "
         r'value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string '
         r'"json:\"kind,omitempty\"" }'),
    ],
)  # fmt: skip
async def test_a_webhook_that_does_not_answer_properly(
    hook: tuple[FrontDoor, Hook], reply: Response, attempts: int, why: str
) -> None:
    door, far = hook
    far.reply = reply
    asking = asyncio.ensure_future(review(door, "t"))
    await door.clock.advance(70)
    assert (await asking)["error"] == f"[invalid bearer token, {why}]"
    assert len(far.asked) == attempts


async def test_the_token_goes_to_the_webhook_and_nowhere_else(
    hook: tuple[FrontDoor, Hook], caplog: pytest.LogCaptureFixture
) -> None:
    door, far = hook
    caplog.set_level("DEBUG")
    far.reply = Response(400, b"bad token very-secret")
    await door.get("/api", token="another-secret")
    assert "another-secret" not in caplog.text
    assert "ours" not in caplog.text


async def test_a_webhook_that_wants_to_be_asked_later_is(hook: tuple[FrontDoor, Hook]) -> None:
    door, far = hook
    far.status, far.reply = JANE, Response(429, b"", [("Retry-After", "7")])
    asking = asyncio.ensure_future(review(door, "t"))
    await door.clock.advance(6.9)
    assert len(far.asked) == 1
    far.reply = None
    await door.clock.advance(0.2)
    assert (await asking)["authenticated"] is True
    assert len(far.asked) == 2


def another(path: Path) -> AccessConfig:
    return AccessConfig(authentication_token_webhook_config_file=str(path), authentication_token_webhook_version="v1")


async def test_our_token_in_a_file_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    network = Network()
    far = Hook(network)
    secret, path = tmp_path / "token", tmp_path / "hook.json"
    secret.write_text("first\n")
    kubeconfig(path, tokenFile=str(secret))
    door = await FrontDoor.open(servers=network, access=another(path), service_account_issuer=["https://own"])

    async def shown(token: str) -> str:
        await review(door, token)
        return far.requests[-1].headers["authorization"]

    assert await shown("a") == "Bearer first"
    secret.write_text("second\n")
    assert await shown("b") == "Bearer first"
    await door.clock.advance(51)
    assert await shown("c") == "Bearer second"
    secret.write_text("")
    await door.clock.advance(51)
    assert await shown("d") == "Bearer second"
    assert f'Unable to rotate token: read empty token from file "{secret}"' in caplog.text
    secret.unlink()
    assert await shown("e") == "Bearer second"
    secret.write_text("third")
    assert await shown("f") == "Bearer third"
    secret.write_text("fourth")
    far.reply = Response(401, b"")
    assert await shown("g") == "Bearer third"
    assert await shown("h") == "Bearer fourth"
    await door.close()


async def test_a_user_that_is_not_there_is_nobody(tmp_path: Path) -> None:
    network = Network()
    far = Hook(network)
    far.status = JANE
    path = tmp_path / "hook.json"
    kubeconfig(path, token="ours")
    content = orjson.loads(path.read_bytes())
    content["users"] = []
    path.write_bytes(orjson.dumps(content))
    door = await FrontDoor.open(servers=network, access=another(path), service_account_issuer=["https://own"])
    assert (await review(door, "t"))["authenticated"] is True
    assert "authorization" not in far.requests[0].headers
    await door.close()
