"""Errors of the command line if the server rejects the client, or cannot be trusted."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from command_line import typed_offline
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from server_process import ServerProcess, server_process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("bad"), "--authorization-mode", "Node,RBAC") as running:
        yield running


def kubeconfig(server: ServerProcess, path: Path, user: dict[str, Any] | None = None, ca: bytes | None = None) -> str:
    config = json.loads(server.kubeconfig.read_text())
    if user is not None:
        config["users"][0]["user"] = user
    if ca is not None:
        config["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(ca).decode()
    path.write_text(json.dumps(config))
    return str(path)


def issued(server: ServerProcess, days: int) -> dict[str, str]:
    """A client certificate of the cluster's own authority, that ends so many days from now."""
    pki = server.ca_file.parent
    authority = x509.load_pem_x509_certificate(server.ca_file.read_bytes())
    signing = serialization.load_pem_private_key((pki / "ca.key").read_bytes(), None)
    key, end = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC) + timedelta(days=days)
    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"), x509.NameAttribute(NameOID.COMMON_NAME, "me")]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(end - timedelta(days=10))
        .not_valid_after(end)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)
        .sign(signing, hashes.SHA256())  # type: ignore[arg-type]
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "client-certificate-data": base64.b64encode(certificate.public_bytes(serialization.Encoding.PEM)).decode(),
        "client-key-data": base64.b64encode(private).decode(),
    }


def test_a_valid_certificate(server: ServerProcess, tmp_path: Path) -> None:
    good = kubeconfig(server, tmp_path / "good", issued(server, 5))
    assert typed_offline("get ns default -o name", tmp_path, KUBECONFIG=good).out == "namespace/default\n"


def test_an_expired_certificate(server: ServerProcess, tmp_path: Path) -> None:
    expired = kubeconfig(server, tmp_path / "expired", issued(server, -5))
    done = typed_offline("get ns", tmp_path, KUBECONFIG=expired)
    assert (done.code, done.out) == (1, "")
    assert "expired" in done.err.lower()
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) == 1


def test_an_untrusted_server(server: ServerProcess, tmp_path: Path) -> None:
    other = issued(server, 5)["client-certificate-data"]
    wrong = kubeconfig(server, tmp_path / "wrong", ca=base64.b64decode(other))
    done = typed_offline("get ns", tmp_path, KUBECONFIG=wrong)
    assert done.code == 1
    assert "is not trusted" in done.err


def test_an_unknown_token(server: ServerProcess, tmp_path: Path) -> None:
    unknown = kubeconfig(server, tmp_path / "unknown", {"token": "nobody"})
    done = typed_offline("get ns", tmp_path, KUBECONFIG=unknown)
    assert (done.code, done.err) == (1, "error: You must be logged in to the server (Unauthorized)\n")


def test_a_user_without_permissions(server: ServerProcess, tmp_path: Path) -> None:
    limited = str(server.kubeconfig_with_token("limited-token"))
    done = typed_offline("get secrets", tmp_path, KUBECONFIG=limited)
    assert done.code == 1
    assert done.err.startswith('Error from server (Forbidden): secrets is forbidden: User "limited" cannot list')
