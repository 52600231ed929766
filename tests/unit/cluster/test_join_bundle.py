"""Join tokens and the bundle of the cluster's keys."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from setpoint.cluster.certificates import ensure_certificates, ensure_etcd_certificates
from setpoint.cluster.config import ConfigError
from setpoint.cluster.join_bundle import (
    OPTIONAL_FILES,
    REQUIRED_FILES,
    Bundle,
    JoinToken,
    bundle_objects,
    check_join_url,
    remove_keys,
    sealed_bundle,
    token_secret,
)

FILES = {name: f"the content of {name}".encode() for name in REQUIRED_FILES}


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> JoinToken:
    files = ensure_certificates(tmp_path_factory.mktemp("pki"), datetime.now(UTC))
    return JoinToken.create(files.ca.read_bytes(), os.urandom)


def test_a_token_is_read_as_it_was_written(token: JoinToken) -> None:
    assert JoinToken.parse(f" {token}\n") == token
    assert str(token).split(".")[:2] == token.bearer.split(".")


@pytest.mark.parametrize("cut", range(4))
def test_a_token_with_a_part_that_is_missing_or_short_is_refused(token: JoinToken, cut: int) -> None:
    parts = str(token).split(".")
    for changed in ([*parts[:cut], *parts[cut + 1 :]], [*parts[:cut], parts[cut][:-1], *parts[cut + 1 :]]):
        with pytest.raises(ConfigError, match="setpoint token create"):
            JoinToken.parse(".".join(changed))


def test_a_bundle_is_read_with_its_token(token: JoinToken, tmp_path: Path) -> None:
    bundle = Bundle(dict(FILES), {"etcd-prefix": "/registry"}, "shop", ["https://10.0.0.1:2379"])
    sealed = bundle.seal(token, os.urandom)
    assert Bundle.open(sealed, token) == bundle
    assert not any(part in sealed for part in (b"content of", b"shop", b"10.0.0.1"))
    bundle.write(tmp_path / "pki")
    for name, content in FILES.items():
        path = tmp_path / "pki" / name
        assert (path.read_bytes(), path.stat().st_mode & 0o077) == (content, 0)
        assert path.parent.stat().st_mode & 0o077 == 0


def test_the_keys_of_a_bundle_are_removed_with_the_certificates_made_of_them(tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    now = datetime.now(UTC)
    ensure_etcd_certificates(pki / "etcd", now, ["10.0.0.1"])
    ensure_certificates(pki, now)
    ensure_certificates(pki / "front-proxy", now)
    Bundle(dict.fromkeys((*REQUIRED_FILES, *OPTIONAL_FILES), b"")).write(pki)
    remove_keys(pki)
    assert not pki.exists()
    remove_keys(pki)


def test_a_bundle_cannot_be_read_without_its_token(token: JoinToken) -> None:
    """The bootstrap token is in the store, as the bundle is; it is no help."""
    sealed = Bundle(dict(FILES)).seal(token, os.urandom)
    damaged = bytes([*sealed[:-1], sealed[-1] ^ 1])
    for data, with_token in (
        (sealed, token._replace(key=bytes(16))),
        (sealed, token._replace(id="abcdef")),
        (damaged, token),
        (b"", token),
    ):
        with pytest.raises(ConfigError, match="cannot be decrypted"):
            Bundle.open(data, with_token)


@pytest.mark.parametrize("name", ["../authorized_keys", "/etc/passwd", "apiserver.key"])
def test_a_bundle_with_unexpected_files_is_refused(token: JoinToken, name: str) -> None:
    with pytest.raises(ConfigError, match="expected files"):
        Bundle.open(Bundle({**FILES, name: b""}).seal(token, os.urandom), token)
    with pytest.raises(ConfigError, match="expected files"):
        Bundle.open(Bundle({}).seal(token, os.urandom), token)
    assert Bundle.open(Bundle({**FILES, OPTIONAL_FILES[0]: b""}).seal(token, os.urandom), token)


def test_machines_agree_in_their_flags() -> None:
    bundle = Bundle({}, {"service-cluster-ip-range": "10.0.0.0/16", "api-audiences": "[a,b]"})
    bundle.check({"service-cluster-ip-range": "10.0.0.0/16", "api-audiences": "[a,b]", "port": "6443"})
    with pytest.raises(ConfigError, match=r"--api-audiences=a,b; give this flag here too, instead of none"):
        bundle.check({"service-cluster-ip-range": "10.0.0.0/16", "api-audiences": "[]"})


def test_the_holder_of_a_token_may_read_one_secret(token: JoinToken) -> None:
    owner = token_secret(token, datetime.now(UTC) + timedelta(hours=2))
    owner["metadata"]["uid"] = "the-uid"
    secret, role, binding = bundle_objects(token, b"sealed", owner)
    assert sealed_bundle(secret) == b"sealed"
    (rule,) = role["rules"]
    assert (rule["resources"], rule["resourceNames"], rule["verbs"]) == (
        ["secrets"],
        [secret["metadata"]["name"]],
        ["get"],
    )
    assert [subject["name"] for subject in binding["subjects"]] == [f"system:bootstrap:{token.id}"]
    for obj in (secret, role, binding):  # all are deleted with the token
        assert [one["uid"] for one in obj["metadata"]["ownerReferences"]] == ["the-uid"]


@pytest.mark.parametrize("url", ["http://10.0.0.1:6443", "10.0.0.1:6443", "https://", "https://a:x", "https://a/api"])
def test_a_server_to_join_is_an_https_url(url: str) -> None:
    with pytest.raises(ConfigError, match="such as https://"):
        check_join_url(url)
    assert check_join_url("https://10.0.0.1:6443/") == "https://10.0.0.1:6443"
