"""Parses certificate signing requests and checks them against the rules of the built-in signers."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from setpoint.kinds.certificates.requests import parse_request
from setpoint.meta.x509.pem import blocks

Obj = dict[str, Any]

CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"

_SIGNATURE, _ENCIPHERMENT, _CLIENT_AUTH, _SERVER_AUTH = (
    "digital signature", "key encipherment", "client auth", "server auth",
)  # fmt: skip
_NODES, _NODE = "system:nodes", "system:node:"


class Unreadable(Exception):
    """The request is not a valid certificate signing request."""


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    request: x509.CertificateSigningRequest
    common_name: str
    organizations: tuple[str, ...]
    names: tuple[x509.GeneralName, ...]
    """Subject alternative names of the supported types; others are dropped."""

    def has(self, kind: type[x509.GeneralName]) -> bool:
        return any(isinstance(name, kind) for name in self.names)


_KINDS = (x509.DNSName, x509.IPAddress, x509.RFC822Name, x509.UniformResourceIdentifier)


def parsed(csr: Obj) -> ParsedRequest:
    """Parse a request. Raise Unreadable."""
    block = next(blocks(b64decode(csr["spec"]["request"])), None)
    if block is None or block.type != "CERTIFICATE REQUEST":
        raise Unreadable("PEM block type must be CERTIFICATE REQUEST")
    request = parse_request(block.data)
    if request is None:
        raise Unreadable("the request cannot be parsed")

    def attribute(oid: x509.ObjectIdentifier) -> tuple[str, ...]:
        return tuple(str(found.value) for found in request.subject.get_attributes_for_oid(oid))

    try:
        extension = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = tuple(name for name in extension.value if isinstance(name, _KINDS))
    except x509.ExtensionNotFound:
        names = ()
    common = attribute(NameOID.COMMON_NAME)
    return ParsedRequest(request, common[-1] if common else "", attribute(NameOID.ORGANIZATION_NAME), names)


def refusal(signer: str, asked: ParsedRequest, usages: Collection[str]) -> str:
    """Return why the signer rejects the request; empty means it accepts it."""
    if signer == KUBELET_CLIENT:
        return _kubelet_client(asked, set(usages))
    if signer == KUBELET_SERVING:
        return _kubelet_serving(asked, set(usages))
    if signer == CLIENT:
        return _client(usages)
    return ""


def _kubelet_client(asked: ParsedRequest, usages: set[str]) -> str:
    if asked.organizations != (_NODES,):
        return f"subject organization is not {_NODES}"
    for kind, what in (
        (x509.DNSName, "DNS"), (x509.RFC822Name, "Email"), (x509.IPAddress, "IP"),
        (x509.UniformResourceIdentifier, "URI"),
    ):  # fmt: skip
        if asked.has(kind):
            return f"{what} subjectAltNames are not allowed"
    if not asked.common_name.startswith(_NODE):
        return f"subject common name does not begin with {_NODE}"
    return _usages(usages, _CLIENT_AUTH)


def _kubelet_serving(asked: ParsedRequest, usages: set[str]) -> str:
    if asked.organizations != (_NODES,):
        return f"subject organization is not {_NODES}"
    if not asked.has(x509.DNSName) and not asked.has(x509.IPAddress):
        return "DNS or IP subjectAltName is required"
    if asked.has(x509.RFC822Name):
        return "Email subjectAltNames are not allowed"
    if asked.has(x509.UniformResourceIdentifier):
        return "URI subjectAltNames are not allowed"
    if wrong := _usages(usages, _SERVER_AUTH):
        return wrong
    return "" if asked.common_name.startswith(_NODE) else f"subject common name does not begin with {_NODE}"


def _usages(usages: set[str], purpose: str) -> str:
    """Check the usages. Key encipherment is optional, because only RSA keys support it."""
    wanted = {_SIGNATURE, _ENCIPHERMENT, purpose}
    if usages in (wanted, wanted - {_ENCIPHERMENT}):
        return ""
    return f"usages did not match [{' '.join(sorted(wanted))}]"


def _client(usages: Collection[str]) -> str:
    for usage in usages:
        if usage not in (_SIGNATURE, _ENCIPHERMENT, _CLIENT_AUTH):
            return f"invalid usage for client certificate: {usage}"
    return "" if _CLIENT_AUTH in usages else f"missing required usage for client certificate: {_CLIENT_AUTH}"
