from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from front_door import ADMIN_TOKEN, FrontDoor, VirtualClock

from setpoint.apiserver.authentication.client_certificates import CertificateAuthenticator
from setpoint.apiserver.filters.authenticate import (
    ANONYMOUS,
    AuthenticatorChain,
    LoopbackAuthenticator,
    TokenFileAuthenticator,
)
from setpoint.apiserver.http.message import Peer, Request
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Unauthorized

JANE = UserInfo("jane", "1", ("devs", "system:authenticated"))
CHAIN = AuthenticatorChain(
    [LoopbackAuthenticator("loop"), CertificateAuthenticator(VirtualClock()), TokenFileAuthenticator({"t": JANE})],
    True,
    ["api"],
)


def request(peer: Peer | None = None, **headers: str) -> Request:
    return Request(
        "GET", "/", "", {name.replace("_", "-"): value for name, value in headers.items()}, b"", peer or Peer()
    )


def who(asked: Request, warnings: list[str] | None = None) -> str:
    user = CHAIN.authenticate(asked, warnings if warnings is not None else [])
    assert isinstance(user, UserInfo)
    return user.name


@pytest.mark.parametrize("header", ["Bearer t", "bearer t", " BEARER t ", "Bearer t more"])
def test_bearer_tokens(header: str) -> None:
    assert who(request(authorization=header)) == "jane"


@pytest.mark.parametrize("header", ["", "Bearer", "Basic dDp0", "t"])
def test_what_is_no_bearer_token_is_nobody(header: str) -> None:
    assert who(request(authorization=header)) == "system:anonymous"


def test_a_badly_spaced_token_is_ignored_and_said_so() -> None:
    warnings: list[str] = []
    assert who(request(authorization="Bearer  t"), warnings) == "system:anonymous"
    (text,) = warnings
    assert text == "the provided Authorization header contains extra space before the bearer token, and is ignored"


@pytest.mark.parametrize("token", ["x", "T", "é", "\udcff", "a.b.c"])
def test_unknown_tokens(token: str) -> None:
    with pytest.raises(Unauthorized):
        who(request(authorization=f"Bearer {token}"))


def test_without_anonymous_access_everybody_must_say_who_they_are() -> None:
    with pytest.raises(Unauthorized):
        AuthenticatorChain([], False).authenticate(request(), [])


def test_credentials_travel_no_further() -> None:
    headers = {"authorization": "Bearer t", "accept": "*/*"}
    asked = Request("GET", "/", "", headers, b"", Peer())
    assert who(asked) == "jane"
    assert asked.headers == {"accept": "*/*"}
    assert "authorization" in headers  # the sender's own


SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."


def socket(protocols: str) -> Request:
    return request(upgrade="websocket", connection="keep-alive, Upgrade", sec_websocket_protocol=protocols)


def test_a_token_among_the_websocket_protocols() -> None:
    offered = SUBPROTOCOL + urlsafe_b64encode(b"t").decode().rstrip("=")
    asked = socket(f"{offered}, v4.channel.k8s.io")
    assert who(asked) == "jane"
    assert asked.headers["sec-websocket-protocol"] == "v4.channel.k8s.io"
    for bad in (offered, f"{offered}==,v4", f"{offered},{offered},v4", f"{SUBPROTOCOL}!,v4"):
        with pytest.raises(Unauthorized):
            who(socket(bad))
    for none in (f"{SUBPROTOCOL},v4", f"x{offered},v4"):
        assert who(socket(none)) == "system:anonymous"


def test_websocket_protocols_are_looked_at_where_a_websocket_is_opened() -> None:
    asked = request(sec_websocket_protocol=f"{SUBPROTOCOL}dA, v4")
    assert who(asked) == "system:anonymous"
    assert not asked.headers, "and go no further"


def test_of_several_authorization_headers_the_first_counts() -> None:
    asked = request(authorization="Bearer t, Bearer x")
    asked.repeated["authorization"] = ["Bearer t", "Bearer x"]
    assert who(asked) == "jane"
    assert not asked.repeated


def certificate(*attributes: tuple[x509.ObjectIdentifier, str]) -> Peer:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now).not_valid_after(now + timedelta(days=1)).sign(key, hashes.SHA256())
    )  # fmt: skip
    return Peer(certificate=made.public_bytes(Encoding.DER))


def test_certificates_tell_user_groups_and_uid() -> None:
    uid = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
    peer = certificate(
        (NameOID.COMMON_NAME, "kate"), (NameOID.ORGANIZATION_NAME, "a"), (NameOID.ORGANIZATION_NAME, "b"), (uid, "7")
    )
    user = CHAIN.authenticate(request(peer), [])
    assert isinstance(user, UserInfo)
    assert (user.name, user.uid, user.groups) == ("kate", "7", ("a", "b", "system:authenticated"))
    (credential,) = user.extra["authentication.kubernetes.io/credential-id"]
    assert credential.startswith("X509SHA256=")
    assert CHAIN.authenticate(request(peer), []) is user


def test_a_certificate_without_a_name_is_nobody() -> None:
    assert CHAIN.authenticate(request(certificate((NameOID.ORGANIZATION_NAME, "a"))), []) is ANONYMOUS


async def test_reviews_take_a_token_as_if_it_came_in_a_header() -> None:
    verified, error = await CHAIN.review("t", ["x", "api"])
    assert verified is not None
    assert (verified.user, verified.audiences, error) == (JANE, ("api",), "")
    assert await CHAIN.review("t", ["x"]) == (None, "invalid bearer token")
    assert await CHAIN.review("bad", []) == (None, "invalid bearer token")
    verified, _ = await CHAIN.review(" t", [])
    assert verified is not None
    assert verified.user is ANONYMOUS


async def test_no_token_is_ever_logged(door: FrontDoor, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "s3cr3t-of-somebody"
    for token in (secret, ADMIN_TOKEN, f"{secret}.e30.e30"):
        await door.get("/api/v1/pods", token=token)
        await door.get("/nosuch", token=token)
        await door.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
        await door.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token, "audiences": [3]}})
    assert secret not in caplog.text
    assert ADMIN_TOKEN not in caplog.text
