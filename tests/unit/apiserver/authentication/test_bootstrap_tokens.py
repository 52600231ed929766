"""Bootstrap tokens in Secrets of kube-system, through the API."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest
from server_harness import ServerHarness

from setpoint.cluster.config import AccessConfig

TOKEN = "abcdef.0123456789abcdef"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"
GOOD = {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}


def secret(name: str = "bootstrap-token-abcdef", kind: str = "bootstrap.kubernetes.io/token", **data: str) -> Any:
    given = {key.replace("_", "-"): value for key, value in data.items()}
    encoded = {key: b64encode(value.encode()).decode() for key, value in (GOOD | given).items()}
    return {"metadata": {"name": name}, "type": kind, "data": encoded}


@pytest.fixture
async def bootstrap() -> AsyncIterator[ServerHarness]:
    harness = await ServerHarness.open(access=AccessConfig(enable_bootstrap_token_auth=True))
    await harness.make("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
    yield harness
    await harness.close()


async def groups(harness: ServerHarness, token: str = TOKEN) -> list[str] | None:
    status = (await harness.post(REVIEW, {"spec": {"token": token}})).json["status"]
    assert status["user"].get("username", "system:bootstrap:abcdef") == "system:bootstrap:abcdef"
    found: list[str] | None = status["user"].get("groups")
    return found


async def test_a_token_is_valid_while_its_secret_exists(bootstrap: ServerHarness) -> None:
    assert await groups(bootstrap) is None
    await bootstrap.make(SECRETS, secret(auth_extra_groups="system:bootstrappers:b,system:bootstrappers:a"))
    everybody = ["system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:b", "system:authenticated"]
    assert await groups(bootstrap) == everybody
    reply = await bootstrap.get("/api/v1/nodes", token=TOKEN)
    assert 'User "system:bootstrap:abcdef" cannot list' in reply.message
    await bootstrap.delete(f"{SECRETS}/bootstrap-token-abcdef")
    assert (await bootstrap.get("/api/v1/nodes", token=TOKEN)).status == 401


@pytest.mark.parametrize(
    "bad",
    [
        secret(kind="Opaque"),
        secret(token_secret="0123456789abcdee"),
        secret(token_id="abcdee"),
        secret(usage_bootstrap_authentication="yes"),
        secret(expiration="2025-12-31T23:59:59Z"),
        secret(expiration="whenever"),
        secret(auth_extra_groups="system:masters"),
        secret(auth_extra_groups="system:bootstrappers:a,"),
    ],
)
async def test_invalid_tokens(bootstrap: ServerHarness, bad: Any) -> None:
    await bootstrap.make(SECRETS, bad)
    assert await groups(bootstrap) is None


async def test_a_token_expires(bootstrap: ServerHarness) -> None:
    await bootstrap.make(SECRETS, secret(expiration="2026-01-01T00:10:00Z"))
    await bootstrap.clock.advance(599)
    assert await groups(bootstrap) == ["system:bootstrappers", "system:authenticated"]
    await bootstrap.clock.advance(1)
    assert await groups(bootstrap) is None


async def test_a_secret_being_deleted_is_invalid(bootstrap: ServerHarness) -> None:
    held = secret()
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await bootstrap.make(SECRETS, held)
    await bootstrap.delete(f"{SECRETS}/bootstrap-token-abcdef")
    assert await groups(bootstrap) is None


@pytest.mark.parametrize(
    "token", ["ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef0", "abcdef", "abcdef.0123456789abcdef\n"]
)
async def test_other_tokens(bootstrap: ServerHarness, token: str) -> None:
    await bootstrap.make(SECRETS, secret())
    assert await groups(bootstrap, token) is None or token.strip() == TOKEN


async def test_disabled_by_default(harness: ServerHarness) -> None:
    await harness.make("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
    await harness.make(SECRETS, secret())
    assert await groups(harness) is None
