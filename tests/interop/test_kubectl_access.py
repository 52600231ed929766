"""Certificates and tokens with kubectl, from the request to their end."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode, urlsafe_b64decode
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from kubectl_runner import Kubectl, until

from setpoint.testing.live import LiveCluster


def request_for(path: Path, name: str) -> str:
    """A CertificateSigningRequest; its key is kept in `path`."""
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "devs"), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    spec = {
        "request": b64encode(asked.public_bytes(Encoding.PEM)).decode(),
        "usages": ["client auth"],
        "signerName": "kubernetes.io/kube-apiserver-client",
        "expirationSeconds": 3600,
    }
    head = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}}
    return json.dumps({**head, "spec": spec})


@pytest.fixture
def anonymous(commander: Kubectl, live_cluster: LiveCluster, tmp_path: Path) -> Kubectl:
    """The same cluster, for somebody who brings credentials of their own."""
    content = json.loads(live_cluster.kubeconfig.read_text())
    content["users"] = [{"name": user["name"], "user": {}} for user in content["users"]]
    path = tmp_path / "anonymous.kubeconfig"
    path.write_text(json.dumps(content))
    return Kubectl(commander.binary, path, commander.home, "default")


def test_a_certificate_from_the_request_to_its_use(commander: Kubectl, anonymous: Kubectl, tmp_path: Path) -> None:
    key, certificate = tmp_path / "kim.key", tmp_path / "kim.crt"
    commander("create", "-f", "-", stdin=request_for(key, "kim"))
    assert "Pending" in commander("get", "csr", "kim")
    assert commander("certificate", "approve", "kim") == "certificatesigningrequest.certificates.k8s.io/kim approved\n"
    text = until(lambda: commander("get", "csr", "kim", "-o", "jsonpath={.status.certificate}"))
    assert "Approved,Issued" in commander("get", "csr", "kim")
    certificate.write_bytes(b64decode(text))
    left = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc - datetime.now(UTC)
    assert 3500 < left.total_seconds() < 3700
    credentials = ("--client-certificate", str(certificate), "--client-key", str(key))
    who = json.loads(anonymous("auth", "whoami", "-o", "json", *credentials))["status"]["userInfo"]
    assert (who["username"], who["groups"]) == ("kim", ["devs", "system:authenticated"])
    assert who["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")
    assert 'User "kim" cannot list resource "pods"' in anonymous.refused("get", "pods", *credentials)
    commander("create", "clusterrolebinding", "kim", "--clusterrole=view", "--group=devs")
    anonymous("get", "pods", *credentials)


def test_a_denied_signing_request(commander: Kubectl, tmp_path: Path) -> None:
    commander("create", "-f", "-", stdin=request_for(tmp_path / "lee.key", "lee"))
    commander("certificate", "deny", "lee")
    assert "Denied" in commander("get", "csr", "lee")
    assert "is already Denied" in commander.refused("certificate", "approve", "lee")


def test_a_token_is_invalid_after_its_bound_object_is_deleted(commander: Kubectl, anonymous: Kubectl) -> None:
    commander("create", "serviceaccount", "robot")
    commander("create", "secret", "generic", "held")
    bound = ("--bound-object-kind=Secret", "--bound-object-name=held")
    token = commander("create", "token", "robot", "--duration=2h", *bound).strip()
    payload = token.split(".")[1]
    claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["exp"] - claims["iat"] == 7200
    assert claims["kubernetes.io"]["secret"]["name"] == "held"
    who = json.loads(anonymous("auth", "whoami", "-o", "json", "--token", token))["status"]["userInfo"]
    assert who["username"] == "system:serviceaccount:default:robot"
    commander("delete", "secret", "held")
    assert "Unauthorized" in anonymous.refused("auth", "whoami", "--token", token)
    elsewhere = commander("create", "token", "robot", "--audience=elsewhere").strip()
    assert "Unauthorized" in anonymous.refused("auth", "whoami", "--token", elsewhere)


def test_impersonation(commander: Kubectl) -> None:
    acting = ("--as=kim", "--as-group=devs", "--as-group=system:authenticated", "--as-uid=7")
    who = json.loads(commander("auth", "whoami", "-o", "json", *acting))["status"]["userInfo"]
    assert who == {"username": "kim", "uid": "7", "groups": ["devs", "system:authenticated"]}
    assert "cannot delete" in commander.refused("delete", "pod", "x", *acting)
