"""No token in any log or audit record at any verbosity, and no Secret where a rule does not ask for objects
(CVE-2019-11250, CVE-2020-8565)."""

from __future__ import annotations

import logging
from base64 import b64encode

import orjson
import pytest
from audit_harness import RecordingSink, audit
from server_harness import ADMIN_TOKEN, APPLY, LIMITED_TOKEN, ServerHarness

_SECRETS = "/api/v1/namespaces/default/secrets"
_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
_PASSWORD = "correct horse battery staple"


async def _use(harness: ServerHarness) -> list[str]:
    """Send requests that could leak secrets, and return the secrets."""
    encoded = b64encode(_PASSWORD.encode()).decode()
    await harness.post(_SECRETS, {"metadata": {"name": "s"}, "stringData": {"password": _PASSWORD}})
    await harness.get(f"{_SECRETS}/s")
    await harness.get(_SECRETS)
    await harness.patch(f"{_SECRETS}/s", {"stringData": {"other": _PASSWORD}})
    applied = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"third": _PASSWORD}}
    await harness.patch(f"{_SECRETS}/s?fieldManager=me", applied, APPLY)
    await harness.put(f"{_SECRETS}/s", {"metadata": {"name": "s"}, "data": {"password": encoded}})
    await harness.post(_SECRETS, {"metadata": {"name": "BAD"}, "stringData": {"password": _PASSWORD}})
    await harness.post(_SECRETS, b'{"stringData": {"password": "%b"' % _PASSWORD.encode())
    await harness.get(_SECRETS, token=LIMITED_TOKEN)
    await harness.get(_SECRETS, token="wrong-token-of-somebody")
    await harness.get(_SECRETS, token="", headers={"authorization": "Basic c3dvcmRmaXNo"})
    await harness.get(_SECRETS, token="", headers={"authorization": "Bearer  spaced-token-of-somebody"})
    await harness.get(_SECRETS, headers={"impersonate-user": "jane", "cookie": "session=cookie-of-somebody"})
    socket = {"sec-websocket-protocol": "base64url.bearer.authorization.k8s.io.d3Jvbmctc29ja2V0LXRva2Vu, v4"}
    for opening in ({}, {"upgrade": "websocket", "connection": "Upgrade"}):
        await harness.get(_SECRETS, token="", headers=socket | opening)
    await harness.make(_ACCOUNTS, {"metadata": {"name": "a"}})
    issued = (await harness.post(f"{_ACCOUNTS}/a/token", {"spec": {}})).json["status"]["token"]
    await harness.get(_SECRETS, token=issued)
    await harness.get(_SECRETS, token=issued[:-8])
    review = {"spec": {"token": issued}}
    await harness.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
    await harness.delete(f"{_SECRETS}/s")
    return [
        _PASSWORD,
        encoded,
        ADMIN_TOKEN,
        LIMITED_TOKEN,
        "wrong-token-of-somebody",
        "spaced-token-of-somebody",
        "c3dvcmRmaXNo",
        "cookie-of-somebody",
        "d3Jvbmctc29ja2V0LXRva2Vu",
        "wrong-socket-token",
        issued,
        issued[:-8],
    ]


def _seen(secrets: list[str], text: str) -> list[str]:
    return [secret for secret in secrets if secret in text]


async def test_no_secrets_at_the_level_metadata(harness: ServerHarness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sink = audit(harness, {"level": "Metadata"})
    secrets = await _use(harness)
    written = [event.line.decode() for event in sink.events]
    assert len(written) > 30
    assert not _seen(secrets, "".join(written))
    assert not _seen(secrets, "".join(event.text for event in sink.events))
    assert not _seen(secrets, caplog.text)


async def test_no_credentials_at_the_level_request_response(
    harness: ServerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sink: RecordingSink = audit(harness, {"level": "RequestResponse"})
    secrets = await _use(harness)
    told = [orjson.loads(event.line) for event in sink.events]
    bare = orjson.dumps(
        [{key: value for key, value in event.items() if not key.endswith("Object")} for event in told]
    ).decode()
    assert not _seen(secrets, bare)
    objects = orjson.dumps([event.get("requestObject") or event.get("responseObject") for event in told]).decode()
    # What the rule asked for is there, as it is upstream.
    assert _seen(secrets[:1], objects)
    assert not _seen(secrets[2:-2], objects)
    assert not _seen(secrets, caplog.text)
