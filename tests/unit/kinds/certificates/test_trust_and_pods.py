from base64 import b64encode
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from setpoint.meta.x509.pem import blocks

KEY = ec.generate_private_key(ec.SECP256R1())
NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "someone")])
NOW = datetime(2030, 1, 1)


def certificate(ca: bool = True, key: ec.EllipticCurvePrivateKey = KEY) -> str:
    builder = x509.CertificateBuilder().subject_name(NAME).issuer_name(NAME).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + timedelta(hours=2))
    if ca:
        builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def test_pem_ignores_text_outside_of_blocks() -> None:
    text = b"noise\n-----BEGIN A-----\n!!\n-----END A-----\n-----BEGIN B-----\nk: v\n\nYWJj\n-----END B-----\n"
    assert [(block.type, block.headers, block.data) for block in blocks(text)] == [("B", {"k": "v"}, b"abc")]


def test_trust_bundle(lifecycle: Any) -> None:
    bundles = lifecycle("certificates.k8s.io/v1", "ClusterTrustBundle")
    anchor = certificate()
    assert bundles.errors({"spec": {"trustBundle": anchor}}) == []
    assert bundles.errors({"spec": {"trustBundle": anchor + anchor}})[0].endswith(
        "duplicate trust anchor (indices [0 1])"
    )
    assert bundles.errors({"spec": {"trustBundle": certificate(ca=False)}})[0].endswith("does not have the CA bit set")
    assert bundles.errors({"spec": {"trustBundle": ""}})[0].endswith("at least one trust anchor must be provided")
    (error,) = bundles.errors({"spec": {"signerName": "a.b/c", "trustBundle": anchor}})
    assert error.endswith("ClusterTrustBundle for signerName a.b/c must be named with prefix a.b:c:")


def test_a_pod_certificate_can_be_issued_once(lifecycle: Any) -> None:
    requests = lifecycle("certificates.k8s.io/v1", "PodCertificateRequest")
    asked = x509.CertificateSigningRequestBuilder().subject_name(NAME).sign(KEY, hashes.SHA256())
    spec = {
        "signerName": "example.com/x",
        "podName": "p",
        "podUID": "1",
        "serviceAccountName": "s",
        "serviceAccountUID": "2",
        "nodeName": "n",
        "nodeUID": "3",
        "stubPKCS10Request": b64encode(asked.public_bytes(Encoding.DER)).decode(),
    }
    old = requests.created({"spec": spec})
    assert old["spec"]["maxExpirationSeconds"] == 86400
    since = "2030-01-01T00:00:00Z"
    issued = {"type": "Issued", "status": "True", "reason": "R", "message": "", "lastTransitionTime": since}
    status = {
        "conditions": [issued],
        "certificateChain": certificate(ca=False),
        "notBefore": "2030-01-01T00:00:00Z",
        "notAfter": "2030-01-01T02:00:00Z",
        "beginRefreshAt": "2030-01-01T01:00:00Z",
    }
    obj, errors, _ = requests.update(old, "status", status=status, metadata={"labels": {"a": "b"}})
    assert errors == []
    assert "labels" not in obj["metadata"]
    assert requests.cells(obj)["State"] == "Issued"
    _, errors, _ = requests.update(obj, "status", status={"beginRefreshAt": None})
    assert errors == ["status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed"]
    other = certificate(ca=False, key=ec.generate_private_key(ec.SECP256R1()))
    _, errors, _ = requests.update(old, "status", status={**status, "certificateChain": other})
    assert errors[0].endswith("leaf certificate was not issued to the requested public key")
    _, errors, _ = requests.update(old, spec={"podName": "q"})
    assert errors[0].startswith('spec: Invalid value: {"SignerName":"example.com/x","PodName":"q"')
