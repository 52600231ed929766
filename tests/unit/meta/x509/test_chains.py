"""Certificate chains: results and messages are those of Go's `crypto/x509`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from certificate_chains import CASES, CLIENT, HOST, LEAF, NOW, ROOT, SERVER, Case, Issue, but, pem
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from setpoint.meta.x509.certificate import Certificate, X509Error, parse
from setpoint.meta.x509.chains import CLIENT_AUTH, CertificatePool, verify


def parsed(certificate: x509.Certificate) -> Certificate:
    return parse(certificate.public_bytes(Encoding.DER))


def verification_error(case: Case, usage: str = "") -> str:
    sent, roots = case.make()
    options = {"usage": usage} if usage else {}
    try:
        verify([parsed(one) for one in sent], CertificatePool.from_pem(roots), NOW, host=case.host, **options)
    except X509Error as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_are_those_of_go(case: Case) -> None:
    assert verification_error(case) == case.said


@pytest.mark.parametrize(("number", "algorithm"), [("04", "MD5-RSA"), ("05", "SHA1-RSA")])
def test_signatures_with_broken_hashes_do_not_count(number: str, algorithm: str) -> None:
    sha256, other = bytes.fromhex("2a864886f70d01010b"), bytes.fromhex(f"2a864886f70d0101{number}")
    der = but(LEAF, signer_kind="rsa2048").make().public_bytes(Encoding.DER).replace(sha256, other)
    root = but(ROOT, key_kind="rsa2048", signer_kind="rsa2048").make()
    with pytest.raises(X509Error, match=f"insecure algorithm {algorithm}"):
        verify([parse(der)], CertificatePool.from_pem(pem(root)), NOW, host=HOST)


def test_client_certificates_need_the_client_usage() -> None:
    for usages, wanted in (([SERVER], "incompatible key usage"), ([CLIENT], "")):
        assert wanted in verification_error(Case("", [but(LEAF, usages=usages)], [ROOT]), CLIENT_AUTH)


def test_a_loop_of_authorities_ends() -> None:
    one, two = Issue("one", "two", ca=True), Issue("two", "one", ca=True)
    found = verification_error(Case("", [Issue("leaf", "one", names=[HOST]), one, two], [ROOT]))
    assert found == "x509: certificate signed by unknown authority"


def test_the_cost_of_a_verification_is_bounded() -> None:
    """Many authorities with the same name, each of which could have issued each other, need a bounded search."""
    many = [Issue("m", "m", ca=True, key=f"key {i}", signer="key 0") for i in range(12)]
    case = Case("", [Issue("leaf", "m", names=[HOST], signer="key 0"), *many], [ROOT])
    assert "signature check attempts limit reached" in verification_error(
        case
    ) or "unknown authority" in verification_error(case)


def test_validity_includes_its_last_second() -> None:
    leaf = but(LEAF, ends=timedelta(0))
    assert verification_error(Case("", [leaf], [ROOT])) == ""
    assert "is after" in verification_error(Case("", [but(LEAF, ends=timedelta(seconds=-1))], [ROOT]))


@pytest.mark.parametrize("der", [b"", b"\x30\x00", b"\x30\x82\xff\xff", b"no certificate at all"])
def test_invalid_certificates_are_malformed(der: bytes) -> None:
    with pytest.raises(X509Error, match="x509: malformed certificate"):
        parse(der)


def test_a_bundle_may_contain_other_things() -> None:
    noise = b"# a comment\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert len(CertificatePool.from_pem(noise + broken + pem(ROOT.make()) + noise)) == 1


def test_certificate_policies_are_rejected() -> None:
    strict = but(LEAF, extra=[(x509.PolicyConstraints(0, None), True)])
    assert verification_error(Case("", [strict], [ROOT])) == (
        "x509: no valid chains built: 1 candidate chains with invalid policies"
    )
