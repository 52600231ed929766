"""The certificate directory: creation, reuse and renewal of its files."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from setpoint.cluster.certificates import (
    CertificateFiles,
    ensure_certificates,
    issue_client_certificate,
    server_context,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def serving(files: CertificateFiles) -> x509.Certificate:
    return x509.load_pem_x509_certificate(files.certificate.read_bytes())


def contents(files: CertificateFiles) -> list[bytes]:
    return [path.read_bytes() for path in (files.ca, files.ca_key, files.certificate, files.key)]


def test_a_new_directory_gets_all_files(tmp_path: Path) -> None:
    files = ensure_certificates(
        tmp_path / "pki", NOW, service_ip="10.0.0.1", extra_names=["api.example.com", "10.9.8.7"]
    )
    assert sorted(path.name for path in files.ca.parent.iterdir()) == [
        "apiserver.crt",
        "apiserver.json",
        "apiserver.key",
        "ca.crt",
        "ca.key",
    ]
    for key in (files.key, files.ca_key):
        assert os.stat(key).st_mode & 0o777 == 0o600
    certificate = serving(files)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "api.example.com",
    }
    assert set(names.get_values_for_type(x509.IPAddress)) == {
        ipaddress.ip_address(a) for a in ("127.0.0.1", "::1", "10.0.0.1", "10.9.8.7")
    }
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(files.ca.read_bytes()))
    assert certificate.not_valid_before_utc < NOW < certificate.not_valid_after_utc
    server_context(files, files.ca)


def test_valid_files_are_reused(tmp_path: Path) -> None:
    before = contents(ensure_certificates(tmp_path, NOW, extra_names=["b", "a"]))
    later = NOW + timedelta(days=300)
    assert contents(ensure_certificates(tmp_path, later, extra_names=["a", "b"])) == before


def test_an_expiring_certificate_is_renewed_by_the_same_authority(tmp_path: Path) -> None:
    ca, ca_key, certificate, key = contents(ensure_certificates(tmp_path, NOW))
    later = NOW + timedelta(days=340)
    renewed = ensure_certificates(tmp_path, later)
    now_ca, now_ca_key, now_certificate, now_key = contents(renewed)
    assert (now_ca, now_ca_key) == (ca, ca_key)
    assert now_certificate != certificate
    assert now_key != key
    assert serving(renewed).not_valid_after_utc > later + timedelta(days=300)


def test_an_expiring_authority_is_replaced(tmp_path: Path) -> None:
    before = contents(ensure_certificates(tmp_path, NOW))
    after = contents(ensure_certificates(tmp_path, NOW + timedelta(days=3500)))
    assert not set(before) & set(after)


def test_other_names_need_a_new_certificate(tmp_path: Path) -> None:
    ensure_certificates(tmp_path, NOW)
    files = ensure_certificates(tmp_path, NOW, extra_names=["new.example.com"])
    names = serving(files).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "new.example.com" in names.get_values_for_type(x509.DNSName)


@pytest.mark.parametrize("broken", ["apiserver.key", "apiserver.crt", "apiserver.json", "ca.crt", "ca.key"])
@pytest.mark.parametrize("how", ["missing", "garbage"])
def test_a_damaged_directory_is_repaired(tmp_path: Path, broken: str, how: str) -> None:
    files = ensure_certificates(tmp_path, NOW)
    if broken == "ca.key":
        files.metadata.unlink()  # the authority's key is needed only to issue certificates
    if how == "missing":
        (tmp_path / broken).unlink()
    elif broken != "apiserver.key":
        (tmp_path / broken).write_bytes(b"garbage")
    files = ensure_certificates(tmp_path, NOW)
    server_context(files, files.ca)
    serving(files).verify_directly_issued_by(x509.load_pem_x509_certificate(files.ca.read_bytes()))


def test_client_certificates_name_user_and_groups(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, NOW)
    pem, key = issue_client_certificate(files, "admin", ["system:masters", "ops"], NOW, timedelta(hours=1))
    certificate = x509.load_pem_x509_certificate(pem)
    subject = certificate.subject
    assert [a.value for a in subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)] == ["admin"]
    assert [a.value for a in subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)] == [
        "system:masters",
        "ops",
    ]
    assert certificate.not_valid_after_utc == NOW + timedelta(hours=1)
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    assert key.startswith(b"-----BEGIN PRIVATE KEY-----")


def test_a_start_with_valid_files_does_not_import_cryptography(tmp_path: Path) -> None:
    ensure_certificates(tmp_path, NOW)
    program = f"""
import sys
from datetime import datetime
from pathlib import Path
from setpoint.cluster.certificates import ensure_certificates, server_context
files = ensure_certificates(Path({str(tmp_path)!r}), datetime.fromisoformat({NOW.isoformat()!r}))
server_context(files, files.ca)
assert "cryptography" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
