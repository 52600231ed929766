from base64 import b64encode
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from setpoint.kinds.strategy import UserInfo

KEY = ec.generate_private_key(ec.SECP256R1())
NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "someone")])
REQUEST = b64encode(
    x509.CertificateSigningRequestBuilder().subject_name(NAME).sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM)
).decode()


@pytest.fixture
def csr(lifecycle: Any) -> Any:
    return lifecycle("certificates.k8s.io/v1", "CertificateSigningRequest")


def body(**spec: Any) -> dict[str, Any]:
    return {"spec": {"request": REQUEST, "signerName": "example.com/x", "usages": ["client auth"], **spec}}


def test_requestor_fields_are_set_by_the_server(csr: Any) -> None:
    csr.ctx = csr.ctx._replace(user=UserInfo("ann", "7", ("devs",), {"k": ("v",)}))
    spec = csr.created(body(username="root", groups=["system:masters"]))["spec"]
    assert (spec["username"], spec["uid"], spec["groups"], spec["extra"]) == ("ann", "7", ["devs"], {"k": ["v"]})


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"usages": []}, "spec.usages: Required value"),
        ({"usages": ["any", "any"]}, 'spec.usages[1]: Duplicate value: "any"'),
        ({"signerName": "kubernetes.io/legacy-unknown"}, "the legacy signerName is not allowed via this API version"),
        ({"signerName": "a"}, "must be a fully qualified domain and path of the form 'example.com/signer-name'"),
        ({"expirationSeconds": 599}, "may not specify a duration less than 600 seconds (10 minutes)"),
        ({"request": "Zm9v"}, 'spec.request: Invalid value: "Zm9v": PEM block type must be CERTIFICATE REQUEST'),
    ],
)
def test_invalid_requests_are_rejected(csr: Any, spec: dict[str, Any], error: str) -> None:
    (found,) = csr.errors(body(**spec))
    assert error in found


def test_approval_changes_conditions_only_and_stamps_them(csr: Any) -> None:
    old = csr.created(body())
    approved = [{"type": "Approved", "status": "True"}]
    obj, errors, _ = csr.update(old, "approval", status={"conditions": approved, "certificate": "Zm9v"})
    assert errors == []
    assert obj["status"]["conditions"][0]["lastUpdateTime"] == "2030-01-01T00:00:00Z"
    assert "certificate" not in obj["status"]
    assert csr.cells(obj)["Condition"] == "Approved"
    _, errors, _ = csr.update(obj, "approval", status={"conditions": []})
    assert errors == ['status.conditions: Forbidden: updates may not remove a condition of type "Approved"']
    _, errors, _ = csr.update(obj, "approval", status={"conditions": [*approved, {"type": "Denied", "status": "True"}]})
    assert "must specify at most one of" in errors[0]


def test_status_update_cannot_approve(csr: Any) -> None:
    old = csr.created(body())
    _, errors, _ = csr.update(old, "status", status={"conditions": [{"type": "Approved", "status": "True"}]})
    assert errors == ['status.conditions: Forbidden: updates may not add a condition of type "Approved"']


def test_a_main_update_changes_neither_spec_nor_status(csr: Any) -> None:
    old = csr.created(body())
    obj, errors, _ = csr.update(old, spec={"usages": ["any"]}, status={"certificate": "Zm9v"})
    assert errors == []
    assert obj["spec"] == old["spec"] and obj["status"] == old["status"]
