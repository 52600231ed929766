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
from server_harness import ADMIN_TOKEN, ServerHarness, VirtualClock

from setpoint.apiserver.authentication.client_certificates import CertificateAuthenticator
from setpoint.apiserver.filters.authenticate import (
    ANONYMOUS,
    AuthenticatorChain,
    LoopbackAuthenticator,
    TokenFileAuthenticator,
)
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Unauthorized
from setpoint.wire.message import Peer, Request

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
    user = CHAIN.authenticate(asked, (warnings if warnings is not None else []).append)
    assert isinstance(user, UserInfo)
    return user.name


@pytest.mark.parametrize("header", ["Bearer t", "bearer t", " BEARER t ", "Bearer t more"])
def test_bearer_tokens(header: str) -> None:
    assert who(request(authorization=header)) == "jane"


@pytest.mark.parametrize("header", ["", "Bearer", "Basic dDp0", "t"])
def test_other_authorization_headers_are_anonymous(header: str) -> None:
    assert who(request(authorization=header)) == "system:anonymous"


def test_a_token_after_extra_spaces_is_ignored_with_a_warning() -> None:
    warnings: list[str] = []
    assert who(request(authorization="Bearer  t"), warnings) == "system:anonymous"
    (text,) = warnings
    assert text == "the provided Authorization header contains extra space before the bearer token, and is ignored"


@pytest.mark.parametrize("token", ["x", "T", "é", "\udcff", "a.b.c"])
def test_unknown_tokens(token: str) -> None:
    with pytest.raises(Unauthorized):
        who(request(authorization=f"Bearer {token}"))


def test_without_anonymous_access_credentials_are_required() -> None:
    with pytest.raises(Unauthorized):
        AuthenticatorChain([], False).authenticate(request(), print)


def test_credentials_are_removed_from_the_request() -> None:
    headers = {"authorization": "Bearer t", "accept": "*/*"}
    asked = Request("GET", "/", "", headers, b"", Peer())
    assert who(asked) == "jane"
    assert asked.headers == {"accept": "*/*"}
    assert "authorization" in headers  # the sender's own


SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."


def socket(protocols: str) -> Request:
    return request(upgrade="websocket", connection="keep-alive, Upgrade", sec_websocket_protocol=protocols)


def test_a_token_in_the_websocket_subprotocols() -> None:
    offered = SUBPROTOCOL + urlsafe_b64encode(b"t").decode().rstrip("=")
    asked = socket(f"{offered}, v4.channel.k8s.io")
    assert who(asked) == "jane"
    assert asked.headers["sec-websocket-protocol"] == "v4.channel.k8s.io"
    for bad in (offered, f"{offered}==,v4", f"{offered},{offered},v4", f"{SUBPROTOCOL}!,v4"):
        with pytest.raises(Unauthorized):
            who(socket(bad))
    for none in (f"{SUBPROTOCOL},v4", f"x{offered},v4"):
        assert who(socket(none)) == "system:anonymous"


def test_subprotocols_count_only_for_websockets() -> None:
    asked = request(sec_websocket_protocol=f"{SUBPROTOCOL}dA, v4")
    assert who(asked) == "system:anonymous"
    assert not asked.headers, "and go no further"


def test_the_first_of_several_authorization_headers_counts() -> None:
    asked = request(authorization="Bearer t, Bearer x")
    asked.repeated["authorization"] = ["Bearer t", "Bearer x"]
    assert who(asked) == "jane"
    assert not asked.repeated


def certificate(*attributes: tuple[x509.ObjectIdentifier, str]) -> Peer:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return Peer(certificate=made.public_bytes(Encoding.DER))


def test_certificates_have_user_groups_and_uid() -> None:
    uid = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
    peer = certificate(
        (NameOID.COMMON_NAME, "kate"), (NameOID.ORGANIZATION_NAME, "a"), (NameOID.ORGANIZATION_NAME, "b"), (uid, "7")
    )
    user = CHAIN.authenticate(request(peer), print)
    assert isinstance(user, UserInfo)
    assert (user.name, user.uid, user.groups) == ("kate", "7", ("a", "b", "system:authenticated"))
    (credential,) = user.extra["authentication.kubernetes.io/credential-id"]
    assert credential.startswith("X509SHA256=")
    assert CHAIN.authenticate(request(peer), print) is user


def test_a_certificate_without_a_common_name() -> None:
    assert CHAIN.authenticate(request(certificate((NameOID.ORGANIZATION_NAME, "a"))), print) is ANONYMOUS


async def test_token_reviews_parse_the_token_like_a_header() -> None:
    verified, error = await CHAIN.review("t", ["x", "api"])
    assert verified is not None
    assert (verified.user, verified.audiences, error) == (JANE, ("api",), "")
    assert await CHAIN.review("t", ["x"]) == (None, "invalid bearer token")
    assert await CHAIN.review("bad", []) == (None, "invalid bearer token")
    verified, _ = await CHAIN.review(" t", [])
    assert verified is not None
    assert verified.user is ANONYMOUS


async def test_no_token_is_ever_logged(harness: ServerHarness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "s3cr3t-of-somebody"
    for token in (secret, ADMIN_TOKEN, f"{secret}.e30.e30"):
        await harness.get("/api/v1/pods", token=token)
        await harness.get("/nosuch", token=token)
        await harness.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
        await harness.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token, "audiences": [3]}})
    assert secret not in caplog.text
    assert ADMIN_TOKEN not in caplog.text
