"""No token in any log or audit record at any verbosity, and no Secret where a rule does not ask for objects
(CVE-2019-11250, CVE-2020-8565)."""

from __future__ import annotations

import logging
from base64 import b64encode

import orjson
import pytest
from audited_door import Kept, audit
from front_door import ADMIN_TOKEN, APPLY, LIMITED_TOKEN, FrontDoor

_SECRETS = "/api/v1/namespaces/default/secrets"
_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
_PASSWORD = "correct horse battery staple"


async def _use(door: FrontDoor) -> list[str]:
    """Everything that could let something slip; returns what nobody may see."""
    encoded = b64encode(_PASSWORD.encode()).decode()
    await door.post(_SECRETS, {"metadata": {"name": "s"}, "stringData": {"password": _PASSWORD}})
    await door.get(f"{_SECRETS}/s")
    await door.get(_SECRETS)
    await door.patch(f"{_SECRETS}/s", {"stringData": {"other": _PASSWORD}})
    applied = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"third": _PASSWORD}}
    await door.patch(f"{_SECRETS}/s?fieldManager=me", applied, APPLY)
    await door.put(f"{_SECRETS}/s", {"metadata": {"name": "s"}, "data": {"password": encoded}})
    await door.post(_SECRETS, {"metadata": {"name": "BAD"}, "stringData": {"password": _PASSWORD}})
    await door.post(_SECRETS, b'{"stringData": {"password": "%b"' % _PASSWORD.encode())
    await door.get(_SECRETS, token=LIMITED_TOKEN)
    await door.get(_SECRETS, token="wrong-token-of-somebody")
    await door.get(_SECRETS, token="", headers={"authorization": "Basic c3dvcmRmaXNo"})
    await door.get(_SECRETS, token="", headers={"authorization": "Bearer  spaced-token-of-somebody"})
    await door.get(_SECRETS, headers={"impersonate-user": "jane", "cookie": "session=cookie-of-somebody"})
    socket = {"sec-websocket-protocol": "base64url.bearer.authorization.k8s.io.d3Jvbmctc29ja2V0LXRva2Vu, v4"}
    for opening in ({}, {"upgrade": "websocket", "connection": "Upgrade"}):
        await door.get(_SECRETS, token="", headers=socket | opening)
    await door.make(_ACCOUNTS, {"metadata": {"name": "a"}})
    issued = (await door.post(f"{_ACCOUNTS}/a/token", {"spec": {}})).json["status"]["token"]
    await door.get(_SECRETS, token=issued)
    await door.get(_SECRETS, token=issued[:-8])
    review = {"spec": {"token": issued}}
    await door.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
    await door.delete(f"{_SECRETS}/s")
    return [
        _PASSWORD, encoded, ADMIN_TOKEN, LIMITED_TOKEN, "wrong-token-of-somebody", "spaced-token-of-somebody",
        "c3dvcmRmaXNo", "cookie-of-somebody", "d3Jvbmctc29ja2V0LXRva2Vu", "wrong-socket-token", issued, issued[:-8],
    ]  # fmt: skip


def _seen(secrets: list[str], text: str) -> list[str]:
    return [secret for secret in secrets if secret in text]


async def test_nothing_slips_out_where_objects_are_not_asked_for(
    door: FrontDoor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    kept = audit(door, {"level": "Metadata"})
    secrets = await _use(door)
    written = [event.line.decode() for event in kept.events]
    assert len(written) > 30
    assert not _seen(secrets, "".join(written))
    assert not _seen(secrets, "".join(event.text for event in kept.events))
    assert not _seen(secrets, caplog.text)


async def test_where_objects_are_asked_for_credentials_still_are_not_told(
    door: FrontDoor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    kept: Kept = audit(door, {"level": "RequestResponse"})
    secrets = await _use(door)
    told = [orjson.loads(event.line) for event in kept.events]
    bare = orjson.dumps(
        [{key: value for key, value in event.items() if not key.endswith("Object")} for event in told]
    ).decode()
    assert not _seen(secrets, bare)
    objects = orjson.dumps([event.get("requestObject") or event.get("responseObject") for event in told]).decode()
    # What the rule asked for is there, as it is upstream.
    assert _seen(secrets[:1], objects)
    assert not _seen(secrets[2:-2], objects)
    assert not _seen(secrets, caplog.text)
