"""Tokens that a webhook authenticates, through the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from server_harness import ServerHarness
from token_issuer import Network

from setpoint.apiserver.remote_servers import RemoteServer
from setpoint.cluster.config import AccessConfig
from setpoint.meta.objects import Obj
from setpoint.wire.message import Request, Response

REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"


def kubeconfig(path: Path, **user: str) -> str:
    """Return the kubeconfig of a webhook at https://hook.example/authenticate."""
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

    def answer(self, server: RemoteServer, request: Request) -> Response:
        review = orjson.loads(request.body)
        self.asked.append(review["spec"])
        self.requests.append(request)
        if self.reply is not None:
            return self.reply
        return Response(200, orjson.dumps(review | {"status": self.status}))


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[tuple[ServerHarness, Hook]]:
    network = Network()
    found = Hook(network)
    access = AccessConfig(
        authentication_token_webhook_config_file=kubeconfig(tmp_path / "hook.json", token="ours"),
        authentication_token_webhook_version="v1",
        authentication_token_webhook_cache_ttl=60.0,
    )
    harness = await ServerHarness.open(servers=network, access=access, service_account_issuer=["https://own"])
    yield harness, found
    await harness.close()


async def review(harness: ServerHarness, token: str, *audiences: str) -> Obj:
    status: Obj = (await harness.post(REVIEW, {"spec": {"token": token, "audiences": list(audiences)}})).json["status"]
    return status


JANE = {
    "authenticated": True,
    "user": {"username": "jane", "uid": "7", "groups": ["devs"], "extra": {"example.com/a": ["b"]}},
}


async def test_the_webhook_authenticates_the_user(hook: tuple[ServerHarness, Hook]) -> None:
    harness, far = hook
    far.status = JANE
    assert 'User "jane" cannot list' in (await harness.get("/api/v1/pods", token="t")).message
    assert far.asked == [{"token": "t", "audiences": ["https://own"]}]
    request = far.requests[0]
    assert (request.path, request.query) == ("/authenticate", "a=b&timeout=30s")
    assert request.headers["authorization"] == "Bearer ours"
    assert orjson.loads(request.body)["apiVersion"] == "authentication.k8s.io/v1"
    assert await review(harness, "t") == {
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


async def test_answers_are_cached(hook: tuple[ServerHarness, Hook]) -> None:
    harness, far = hook
    for status, code in ((JANE, 403), ({"authenticated": False}, 401)):
        far.status = status
        before = len(far.asked)
        for _ in range(3):
            assert (await harness.get("/api", token=str(code))).status == code
        assert len(far.asked) == before + 1
        await harness.clock.advance(61)
        await harness.get("/api", token=str(code))
        assert len(far.asked) == before + 2


async def test_failures_are_not_cached(hook: tuple[ServerHarness, Hook]) -> None:
    harness, far = hook
    far.status = {"error": "try again"}
    assert (await review(harness, "t"))["error"] == "[invalid bearer token, try again]"
    far.status = JANE
    assert (await review(harness, "t"))["authenticated"]


@pytest.mark.parametrize(
    ("says", "asked", "fitting"),
    [([], ["https://own"], ["https://own"]), ([], ["x"], None), (["x", "y"], ["y", "z"], ["y"]), (["x"], ["y"], None)],
)
async def test_audiences(
    hook: tuple[ServerHarness, Hook], says: list[str], asked: list[str], fitting: list[str] | None
) -> None:
    harness, far = hook
    far.status = JANE | {"audiences": says}
    found = await review(harness, "t", *asked)
    assert far.asked[0]["audiences"] == asked
    assert found.get("audiences") == fitting


async def test_concurrent_requests_share_one_review(hook: tuple[ServerHarness, Hook]) -> None:
    harness, far = hook
    far.status = JANE
    replies = await asyncio.gather(*(harness.get("/api", token="t") for _ in range(10)))
    assert {reply.status for reply in replies} == {403}
    assert len(far.asked) == 1


@pytest.mark.parametrize(
    ("reply", "attempts", "why"),
    [
        (
            Response(302, b"", [("Location", "https://other.example/")]),
            1,
            "the server responded with the status code 302 but did not return more information",
        ),
        (Response(401, b""), 1, "the server has asked for the client to provide credentials"),
        (Response(502, b"oh"), 5, 'an error on the server ("oh") has prevented the request from succeeding'),
        (Response(503, b"", [("Retry-After", "1")]), 55, "the server is currently unable to handle the request"),
        (
            Response(500, b"{}", [("Content-Type", "application/json")]),
            5,
            'an error on the server ("unknown") has prevented the request from succeeding',
        ),
        (
            Response(200, b'{"kind":"Status","apiVersion":"v1"}'),
            1,
            "converting (v1.Status) to (v1.TokenReview): unknown conversion",
        ),
        (
            Response(200, b"[1]"),
            1,
            "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go "
            r'value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string '
            r'"json:\"kind,omitempty\"" }',
        ),
    ],
)
async def test_invalid_responses(hook: tuple[ServerHarness, Hook], reply: Response, attempts: int, why: str) -> None:
    harness, far = hook
    far.reply = reply
    asking = asyncio.ensure_future(review(harness, "t"))
    await harness.clock.advance(70)
    assert (await asking)["error"] == f"[invalid bearer token, {why}]"
    assert len(far.asked) == attempts


async def test_the_token_is_sent_only_to_the_webhook(
    hook: tuple[ServerHarness, Hook], caplog: pytest.LogCaptureFixture
) -> None:
    harness, far = hook
    caplog.set_level("DEBUG")
    far.reply = Response(400, b"bad token very-secret")
    await harness.get("/api", token="another-secret")
    assert "another-secret" not in caplog.text
    assert "ours" not in caplog.text


async def test_retry_after_is_honoured(hook: tuple[ServerHarness, Hook]) -> None:
    harness, far = hook
    far.status, far.reply = JANE, Response(429, b"", [("Retry-After", "7")])
    asking = asyncio.ensure_future(review(harness, "t"))
    await harness.clock.advance(6.9)
    assert len(far.asked) == 1
    far.reply = None
    await harness.clock.advance(0.2)
    assert (await asking)["authenticated"] is True
    assert len(far.asked) == 2


def another(path: Path) -> AccessConfig:
    return AccessConfig(authentication_token_webhook_config_file=str(path), authentication_token_webhook_version="v1")


async def test_the_servers_token_file_is_reloaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    network = Network()
    far = Hook(network)
    secret, path = tmp_path / "token", tmp_path / "hook.json"
    secret.write_text("first\n")
    kubeconfig(path, tokenFile=str(secret))
    harness = await ServerHarness.open(servers=network, access=another(path), service_account_issuer=["https://own"])

    async def shown(token: str) -> str:
        await review(harness, token)
        return far.requests[-1].headers["authorization"]

    assert await shown("a") == "Bearer first"
    secret.write_text("second\n")
    assert await shown("b") == "Bearer first"
    await harness.clock.advance(51)
    assert await shown("c") == "Bearer second"
    secret.write_text("")
    await harness.clock.advance(51)
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
    await harness.close()


async def test_a_review_without_a_user(tmp_path: Path) -> None:
    network = Network()
    far = Hook(network)
    far.status = JANE
    path = tmp_path / "hook.json"
    kubeconfig(path, token="ours")
    content = orjson.loads(path.read_bytes())
    content["users"] = []
    path.write_bytes(orjson.dumps(content))
    harness = await ServerHarness.open(servers=network, access=another(path), service_account_issuer=["https://own"])
    assert (await review(harness, "t"))["authenticated"] is True
    assert "authorization" not in far.requests[0].headers
    await harness.close()
