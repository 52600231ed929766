"""Certificates of clients and proxies: who signed them, until when they are valid, and which users they
authenticate."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from server_harness import EPOCH, VirtualClock

from setpoint.apiserver.authentication.client_certificates import Anchors, CertificateAuthenticator
from setpoint.apiserver.authentication.request_header import HeaderNames, RequestHeaderAuthenticator
from setpoint.apiserver.filters.authenticate import AuthenticatorChain
from setpoint.cluster.config import AccessConfig, ApiServerConfig, ConfigError
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Unauthorized
from setpoint.wire.message import Peer, Request

NAMES = HeaderNames(("x-remote-user", "x-user"), ("x-remote-uid",), ("x-remote-group",), ("x-remote-extra-",))


class Authority:
    def __init__(self, name: str, parent: Authority | None = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer = parent or self
        self.certificate = self._issue(self.name, self.key, signer, timedelta(days=365), True)

    def _issue(
        self, name: x509.Name, key: Any, signer: Authority, life: timedelta, is_authority: bool
    ) -> x509.Certificate:
        return (
            x509.CertificateBuilder(signer.name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(EPOCH - timedelta(hours=1))
            .not_valid_after(EPOCH + life)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .sign(signer.key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def peer(self, name: str, *between: Authority, life: timedelta = timedelta(days=1)) -> Peer:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._issue(subject, ec.generate_private_key(ec.SECP256R1()), self, life, False)
        chain = [one.certificate.public_bytes(Encoding.DER) for one in between]
        return Peer(certificate=made.public_bytes(Encoding.DER), intermediates=lambda: chain)


CLIENTS, PROXIES, UNTRUSTED = Authority("clients"), Authority("proxies"), Authority("untrusted")


class World:
    def __init__(self, allowed: list[str] | None = None) -> None:
        self.clock = VirtualClock()
        self.clients, self.proxies = Anchors([CLIENTS.pem], self.clock), Anchors([PROXIES.pem], self.clock)
        front = RequestHeaderAuthenticator(self.proxies, allowed or [], NAMES, self.clock)
        self.chain = AuthenticatorChain([front, CertificateAuthenticator(self.clock, self.clients)], True)

    def who(self, peer: Peer, **headers: str) -> str:
        user = self.ask(peer, **headers)[0]
        return user.name

    def ask(self, peer: Peer, **headers: str) -> tuple[UserInfo, Request]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        request = Request("GET", "/", "", sent, b"", peer)
        user = self.chain.authenticate(request, print)
        assert isinstance(user, UserInfo)
        return user, request


def test_each_authority_is_for_its_own_purpose() -> None:
    world = World()
    jane, proxy = CLIENTS.peer("jane"), PROXIES.peer("proxy")
    assert world.who(jane) == "jane"
    assert world.who(jane, x_remote_user="bob") == "jane"
    assert world.who(proxy, x_remote_user="bob") == "bob"
    assert world.who(Peer(), x_remote_user="bob") == "system:anonymous"
    for peer, headers in ((proxy, {}), (UNTRUSTED.peer("x"), {}), (UNTRUSTED.peer("x"), {"x_remote_user": "bob"})):
        with pytest.raises(Unauthorized):
            world.who(peer, **headers)


def test_a_certificate_that_is_no_authority_cannot_sign() -> None:
    jane = Authority("jane", CLIENTS)
    mallory = jane.peer("mallory", jane)
    assert World().who(mallory) == "mallory"
    jane.certificate = jane._issue(jane.name, jane.key, CLIENTS, timedelta(days=1), False)
    with pytest.raises(Unauthorized):
        World().who(jane.peer("mallory", jane))


def test_an_authority_may_be_an_intermediate_one() -> None:
    world = World()
    middle = Authority("middle", UNTRUSTED)
    with pytest.raises(Unauthorized):
        world.who(middle.peer("jane"))
    world.clients.replace([middle.pem])
    assert world.who(middle.peer("jane")) == "jane"
    with pytest.raises(Unauthorized):
        world.who(UNTRUSTED.peer("jane"))


def test_a_proxy_may_send_no_user() -> None:
    user, _ = World().ask(PROXIES.peer("proxy"), x_remote_user="system:anonymous")
    assert user == UserInfo("system:anonymous")


def test_users_of_a_proxy() -> None:
    peer = PROXIES.peer("proxy")
    sent = {
        "x-user": "jane",
        "x-remote-uid": "7",
        "x-remote-group": "a, b",
        "x-remote-extra-example.com%2fteam": "core",
        "x-remote-extra-n": "1, 2",
        "accept": "*/*",
    }
    repeated = {"x-remote-group": ["a", "b"], "x-remote-extra-n": ["1", "2"]}
    request = Request("GET", "/", "", sent, b"", peer, repeated)
    user = World().chain.authenticate(request, print)
    extra = {"example.com/team": ("core",), "n": ("1", "2")}
    assert user == UserInfo("jane", "7", ("a", "b", "system:authenticated"), extra)
    assert request.headers == {"accept": "*/*"}


def test_headers_of_others_are_removed() -> None:
    _, request = World().ask(CLIENTS.peer("jane"), x_user="bob", x_remote_extra_a="b", accept="*/*")
    assert request.headers == {"accept": "*/*"}


def test_a_proxy_must_have_an_allowed_name() -> None:
    world = World(allowed=["proxy-a", "proxy-b"])
    assert world.who(PROXIES.peer("proxy-b"), x_remote_user="bob") == "bob"
    with pytest.raises(Unauthorized):
        world.who(PROXIES.peer("other"), x_remote_user="bob")


async def test_certificates_expire_while_in_use() -> None:
    world = World()
    jane, proxy = CLIENTS.peer("jane", life=timedelta(hours=1)), PROXIES.peer("proxy", life=timedelta(hours=1))
    assert (world.who(jane), world.who(proxy, x_remote_user="bob")) == ("jane", "bob")
    await world.clock.advance(3601)
    for peer in (jane, proxy):
        with pytest.raises(Unauthorized):
            world.who(peer, x_remote_user="bob")


def test_intermediate_certificates() -> None:
    middle = Authority("middle", CLIENTS)
    lower = Authority("lower", middle)
    world = World()
    assert world.who(lower.peer("jane", lower, middle)) == "jane"
    for shown in ((), (lower,), (middle,)):
        with pytest.raises(Unauthorized):
            world.who(lower.peer("jane", *shown))


def test_authorities_can_be_replaced() -> None:
    world = World()
    jane, mallory = CLIENTS.peer("jane"), UNTRUSTED.peer("mallory")
    assert world.who(jane) == "jane"
    world.clients.replace([UNTRUSTED.pem])
    assert world.who(mallory) == "mallory"
    with pytest.raises(Unauthorized):
        world.who(jane)
    with pytest.raises(ValueError, match="no certificate"):
        world.clients.replace([b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"])
    world.clients.replace([CLIENTS.pem, UNTRUSTED.pem])
    assert (world.who(jane), world.who(mallory)) == ("jane", "mallory")


def test_a_token_is_accepted_with_an_invalid_certificate() -> None:
    from setpoint.apiserver.filters.authenticate import LoopbackAuthenticator

    world = World()
    world.chain.add(LoopbackAuthenticator("t"))
    assert world.who(UNTRUSTED.peer("x"), authorization="Bearer t") == "system:apiserver"


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"requestheader_username_headers": ["X-Remote-User", " "]}, 'empty value in "requestheader-username-headers"'),
        (
            {"requestheader_uid_headers": ["X-Uid"]},
            "--requestheader-uid-headers is set without specifying the standard "
            "X-Remote-Uid header - API aggregation will not work",
        ),
        (
            {"oidc_client_id": "x"},
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
        ),
        (
            {"authentication_config": "f", "oidc_issuer_url": "x"},
            "authentication-config file and oidc-* flags are mutually exclusive",
        ),
        (
            {"oidc_issuer_url": "https://x", "oidc_client_id": "x", "oidc_signing_algs": ["HS256"]},
            'oidc: unsupported signing alg: "HS256"',
        ),
        (
            {"service_account_max_token_expiration": 60.0},
            "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds",
        ),
        (
            {"authorization_webhook_config_file": "f"},
            "cannot specify --authorization-webhook-config-file without mode Webhook",
        ),
        (
            {"authorization_config": "f"},
            "--authorization-config can not be specified when --authorization-mode or "
            "--authorization-webhook-* flags are defined",
        ),
        (
            {"authentication_token_webhook_config_file": "f", "authentication_token_webhook_version": "v2"},
            'unsupported authentication webhook version "v2", supported versions are "v1", "v1beta1"',
        ),
    ],
)
def test_invalid_settings(told: dict[str, Any], problem: str) -> None:
    assert AccessConfig(**told).problems(["RBAC"]) == [problem]


def test_a_server_without_authorizers_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one authorization-mode must be passed"):
        ApiServerConfig(tmp_path, authorization_mode=[]).check()


def test_valid_settings(tmp_path: Path) -> None:
    assert AccessConfig().problems(["Node", "RBAC"]) == []
