"""Certificate signing requests, and the controllers that decide on them, with an authority of their own."""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster
from setpoint.testing.virtual_time import EPOCH

REQUESTS = builtin("certificatesigningrequests", "certificates.k8s.io")
CLIENT, KUBELET = "kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
SIGN, ENCIPHER = "digital signature", "key encipherment"


def _authority() -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cluster-ca")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(EPOCH - timedelta(days=1))
        .not_valid_after(EPOCH + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.public_bytes(Encoding.PEM).decode(), pem.decode()


CA, CA_KEY = _authority()
ONLY: Obj = {
    "nodes": 0,
    "scheduler": False,
    "controllers": [f"certificatesigningrequest-{part}-controller" for part in ("approving", "signing", "cleaner")],
    "controller_options": ControllerOptions(cluster_signing_cert=CA, cluster_signing_key=CA_KEY),
}


def a_request(
    common_name: str = "jane",
    organization: str = "",
    names: list[x509.GeneralName] | None = None,
    signer: str = CLIENT,
    usages: list[str] | None = None,
    **spec: Any,
) -> Obj:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    if names:
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    pem = made.sign(ec.generate_private_key(ec.SECP256R1()), SHA256()).public_bytes(Encoding.PEM)
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "csr"},
        "spec": {
            "request": b64encode(pem).decode(),
            "signerName": signer,
            "usages": usages or [SIGN, ENCIPHER, "client auth"],
            **spec,
        },
    }


async def certificate(cluster: VirtualCluster) -> x509.Certificate:
    csr = await cluster.client.get(REQUESTS, "csr")
    return x509.load_pem_x509_certificate(b64decode(csr["status"]["certificate"]))
