"""Certificate chains, good and bad, and what Go's `crypto/x509` says about each.

Every `said` was compared with `x509.Certificate.Verify` of Go 1.27."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOST = "hook.default.svc"
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
_DAY = timedelta(days=1)


@cache
def key_of(owner: str, kind: str = "ec") -> Any:
    """Return the key of that name: the same one each time."""
    return (
        rsa.generate_private_key(65537, int(kind[3:]))
        if kind.startswith("rsa")
        else ec.generate_private_key(ec.SECP256R1())
    )


def pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def key_pem(key: Any) -> bytes:
    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass(frozen=True)
class Issue:
    """A certificate to be: what differs from a plain one."""

    subject: str
    issuer: str = "root"
    ca: bool | None = None
    """The cA of basicConstraints; None leaves the extension out."""
    path_length: int | None = None
    names: Sequence[str] = ()
    """subjectAltName; empty leaves the extension out."""
    usages: Sequence[x509.ObjectIdentifier] = ()
    permitted: Sequence[str] = ()
    excluded: Sequence[str] = ()
    begins: timedelta = -_DAY
    ends: timedelta = _DAY * 300
    key: str = ""
    """Whose key it certifies; empty means the subject's."""
    signer: str = ""
    """Whose key signs; empty means the issuer's."""
    key_kind: str = "ec"
    signer_kind: str = "ec"
    hash: Any = field(default_factory=hashes.SHA256)
    may_sign: bool | None = None
    """keyUsage with or without keyCertSign; None leaves the extension out."""
    with_key_ids: bool = False
    extra: Sequence[tuple[x509.ExtensionType, bool]] = ()
    """Further extensions, and whether each is critical."""

    def make(self, now: datetime = NOW) -> x509.Certificate:
        key, signer = (
            key_of(self.key or self.subject, self.key_kind),
            key_of(self.signer or self.issuer, self.signer_kind),
        )
        builder = x509.CertificateBuilder(
            name(self.issuer), name(self.subject), key.public_key(), x509.random_serial_number()
        )
        builder = builder.not_valid_before(now + self.begins).not_valid_after(now + self.ends)
        for extension, critical in self._extensions(key, signer):
            builder = builder.add_extension(extension, critical)
        return builder.sign(signer, self.hash)

    def _extensions(self, key: Any, signer: Any) -> Iterable[tuple[x509.ExtensionType, bool]]:
        if self.ca is not None:
            yield x509.BasicConstraints(self.ca, self.path_length), True
        if self.names:
            yield x509.SubjectAlternativeName([_general(one) for one in self.names]), False
        if self.usages:
            yield x509.ExtendedKeyUsage(self.usages), False
        if self.permitted or self.excluded:
            permitted, excluded = ([_subtree(one) for one in side] or None for side in (self.permitted, self.excluded))
            yield x509.NameConstraints(permitted, excluded), True
        if self.may_sign is not None:
            yield x509.KeyUsage(True, False, False, False, False, self.may_sign, False, False, False), True
        if self.with_key_ids:
            yield x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False
            yield x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False
        yield from self.extra


def _general(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        pass
    if "://" in text:
        return x509.UniformResourceIdentifier(text)
    return x509.RFC822Name(text) if "@" in text else x509.DNSName(text)


def _subtree(text: str) -> x509.GeneralName:
    if "/" in text:
        return x509.IPAddress(ip_network(text))
    if text.startswith("uri:"):
        return x509.UniformResourceIdentifier(text[4:])
    if text.startswith("mail:"):
        return x509.RFC822Name(text[5:])
    return x509.DNSName(text)


@dataclass(frozen=True)
class Case:
    name: str
    sent: Sequence[Issue]
    """What the server sends, its own certificate first."""
    roots: Sequence[Issue | int]
    """What is trusted; a number stands for a certificate that is sent."""
    said: str = ""
    """The error, with NOW for the time; empty if the chain is good."""
    host: str = HOST

    def make(self, now: datetime = NOW) -> tuple[list[x509.Certificate], bytes]:
        """Return what is sent and the trusted bundle."""
        sent = [issue.make(now) for issue in self.sent]
        return sent, pem(*(sent[root] if isinstance(root, int) else root.make(now) for root in self.roots))

    @property
    def key(self) -> Any:
        """The private key of the server."""
        return key_of(self.sent[0].key or self.sent[0].subject, self.sent[0].key_kind)


def but(issue: Issue, **changes: Any) -> Issue:
    """Return the same with some fields changed."""
    return replace(issue, **changes)


ROOT = Issue("root", ca=True)
LEAF = Issue("leaf", names=[HOST])
MIDDLE = Issue("middle", ca=True)
BELOW = Issue("leaf", "middle", names=[HOST])

_UNKNOWN = "x509: certificate signed by unknown authority"
_USAGE = "x509: certificate specifies an incompatible key usage"
_NAME = "x509: a root or intermediate certificate is not authorized to sign for this name: "
_EXPIRED = "x509: certificate has expired or is not yet valid: "
_CANNOT = "x509: invalid signature: parent certificate cannot sign this kind of certificate"


def _because(why: str, candidate: str) -> str:
    return (
        f'{_UNKNOWN} (possibly because of "{why}" while trying to verify candidate authority certificate "{candidate}")'
    )


CASES: Sequence[Case] = (
    # -- good ones
    Case("signed by the root", [LEAF], [ROOT]),
    Case("with key identifiers", [but(LEAF, with_key_ids=True)], [but(ROOT, with_key_ids=True)]),
    Case("through an intermediate", [BELOW, MIDDLE], [ROOT]),
    Case("the root is sent too", [BELOW, MIDDLE, ROOT], [ROOT]),
    Case("an intermediate is trusted", [BELOW], [MIDDLE]),
    Case("an intermediate is trusted and sent, its root is not known", [BELOW, MIDDLE], [1]),
    Case("the leaf itself is trusted", [LEAF], [0]),
    Case("a self-signed leaf is trusted", [Issue("leaf", "leaf", names=[HOST])], [0]),
    Case("a self-signed CA that serves itself", [Issue("leaf", "leaf", ca=True, names=[HOST])], [0]),
    Case(
        "subject of the CA, no key identifiers",
        [Issue("knative", "knative", names=[HOST], key="server", signer="authority")],
        [Issue("knative", "knative", ca=True, key="authority", signer="authority", usages=[SERVER, CLIENT])],
    ),
    Case(
        "subject of the CA, two CAs of that name",
        [Issue("knative", "knative", names=[HOST], key="server", signer="authority")],
        [
            Issue("knative", "knative", ca=True, key="before", signer="before"),
            Issue("knative", "knative", ca=True, key="authority", signer="authority"),
        ],
    ),
    Case("in the wrong order, with unrelated certificates", [BELOW, ROOT, Issue("x", "y", ca=True), MIDDLE], [ROOT]),
    Case("wildcard", [but(LEAF, names=["*.default.svc"])], [ROOT]),
    Case("upper case", [but(LEAF, names=["HOOK.default.SVC"])], [ROOT]),
    Case("an address", [but(LEAF, names=["127.0.0.1"])], [ROOT], host="127.0.0.1"),
    Case("an IPv6 address", [but(LEAF, names=["::1"])], [ROOT], host="::1"),
    Case("server usage", [but(LEAF, usages=[CLIENT, SERVER])], [ROOT]),
    Case("any usage", [but(LEAF, usages=[ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE])], [ROOT]),
    Case("path length just kept", [BELOW, but(MIDDLE, path_length=0)], [but(ROOT, path_length=1)]),
    Case("within its name constraints", [LEAF], [but(ROOT, permitted=["svc"], excluded=["other.svc"])]),
    Case(
        "address within its constraints", [but(LEAF, names=[HOST, "10.1.2.3"])], [but(ROOT, permitted=["10.0.0.0/8"])]
    ),
    Case("RSA", [but(LEAF, signer_kind="rsa2048")], [but(ROOT, key_kind="rsa2048", signer_kind="rsa2048")]),
    Case("a leaf with CA:FALSE", [but(LEAF, ca=False, may_sign=False)], [but(ROOT, may_sign=True)]),
    Case("a second way, the first has expired", [BELOW, but(MIDDLE, ends=-_DAY / 2), MIDDLE], [ROOT]),
    # -- bad ones
    Case("unrelated self-signed", [Issue("leaf", "leaf", names=[HOST])], [ROOT], _UNKNOWN),
    Case("another root", [LEAF], [Issue("other", "other", ca=True)], _UNKNOWN),
    Case(
        "another root of the same name",
        [LEAF],
        [but(ROOT, key="other", signer="other")],
        _because("x509: ECDSA verification failure", "root"),
    ),
    Case(
        "subject of the CA, forged",
        [Issue("knative", "knative", names=[HOST], key="forger", signer="forger")],
        [Issue("knative", "knative", ca=True, key="authority", signer="authority")],
        _because("x509: ECDSA verification failure", "knative"),
    ),
    Case("missing intermediate", [BELOW], [ROOT], _UNKNOWN),
    Case(
        "expired",
        [but(LEAF, ends=-_DAY / 2)],
        [ROOT],
        f"{_EXPIRED}current time 2026-06-01T12:00:00Z is after 2026-06-01T00:00:00Z",
    ),
    Case(
        "not yet valid",
        [but(LEAF, begins=_DAY)],
        [ROOT],
        f"{_EXPIRED}current time 2026-06-01T12:00:00Z is before 2026-06-02T12:00:00Z",
    ),
    Case(
        "expired and trusted itself",
        [but(LEAF, ends=-_DAY / 2)],
        [0],
        f"{_EXPIRED}current time 2026-06-01T12:00:00Z is after 2026-06-01T00:00:00Z",
    ),
    Case(
        "expired root",
        [LEAF],
        [but(ROOT, ends=-_DAY / 2)],
        f"{_EXPIRED}current time 2026-06-01T12:00:00Z is after 2026-06-01T00:00:00Z",
    ),
    Case(
        "expired intermediate",
        [BELOW, but(MIDDLE, ends=-_DAY / 2)],
        [ROOT],
        f"{_EXPIRED}current time 2026-06-01T12:00:00Z is after 2026-06-01T00:00:00Z",
    ),
    Case(
        "wrong name",
        [but(LEAF, names=["a.svc", "b.svc"])],
        [ROOT],
        f"x509: certificate is valid for a.svc, b.svc, not {HOST}",
    ),
    Case(
        "wrong name, trusted itself",
        [but(LEAF, names=["a.svc"])],
        [0],
        f"x509: certificate is valid for a.svc, not {HOST}",
    ),
    Case(
        "wildcard for more than a label",
        [but(LEAF, names=["*.svc"])],
        [ROOT],
        f"x509: certificate is valid for *.svc, not {HOST}",
    ),
    Case(
        "part of a label as wildcard",
        [but(LEAF, names=["ho*.default.svc"])],
        [ROOT],
        f"x509: certificate is valid for ho*.default.svc, not {HOST}",
    ),
    Case(
        "no names",
        [but(LEAF, names=[])],
        [ROOT],
        f"x509: certificate is not valid for any names, but wanted to match {HOST}",
    ),
    Case(
        "the name is the common name",
        [Issue(HOST)],
        [ROOT],
        "x509: certificate relies on legacy Common Name field, use SANs instead",
    ),
    Case(
        "many names",
        [but(LEAF, names=[f"{i}.svc" for i in range(100)])],
        [ROOT],
        f"x509: certificate is valid for 100 names, but none matched {HOST}",
    ),
    Case(
        "an address without addresses",
        [LEAF],
        [ROOT],
        "x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs",
        host="127.0.0.1",
    ),
    Case(
        "an address as a name",
        [but(LEAF, extra=[], names=["10.0.0.1"])],
        [ROOT],
        "x509: certificate is valid for 10.0.0.1, not 127.0.0.1",
        host="127.0.0.1",
    ),
    Case("client usage", [but(LEAF, usages=[CLIENT])], [ROOT], _USAGE),
    Case("client usage, trusted itself", [but(LEAF, usages=[CLIENT])], [0], _USAGE),
    Case("a root for clients", [LEAF], [but(ROOT, usages=[CLIENT])], _USAGE),
    Case("an intermediate for clients", [BELOW, but(MIDDLE, usages=[CLIENT])], [ROOT], _USAGE),
    Case("signer is no CA", [BELOW, but(MIDDLE, ca=False)], [ROOT], _because(_CANNOT, "middle")),
    Case("signer without basic constraints", [BELOW, but(MIDDLE, ca=None)], [ROOT], _because(_CANNOT, "middle")),
    Case("signer may not sign", [BELOW, but(MIDDLE, may_sign=False)], [ROOT], _because(_CANNOT, "middle")),
    Case(
        "trusted signer without basic constraints",
        [LEAF],
        [but(ROOT, ca=None, may_sign=True)],
        _because(_CANNOT, "root"),
    ),
    Case(
        "signature with SHA-224",
        [but(LEAF, hash=hashes.SHA224())],
        [ROOT],
        _because("x509: cannot verify signature: algorithm unimplemented", "root"),
    ),
    Case("trusted signer is no CA", [BELOW], [but(MIDDLE, ca=False)], _because(_CANNOT, "middle")),
    Case("trusted leaf signs another", [Issue("other", "leaf", names=[HOST])], [LEAF], _because(_CANNOT, "leaf")),
    Case(
        "path length exceeded",
        [BELOW, MIDDLE],
        [but(ROOT, path_length=0)],
        "x509: too many intermediates for path length constraint",
    ),
    Case(
        "path length of an intermediate exceeded",
        [Issue("leaf", "low", names=[HOST]), Issue("low", "middle", ca=True), but(MIDDLE, path_length=0)],
        [ROOT],
        "x509: too many intermediates for path length constraint",
    ),
    Case(
        "outside of permitted names",
        [LEAF],
        [but(ROOT, permitted=["example.com"])],
        f'{_NAME}DNS name "{HOST}" is not permitted by any constraint',
    ),
    Case(
        "within excluded names",
        [LEAF],
        [but(ROOT, excluded=["default.svc"])],
        f'{_NAME}DNS name "{HOST}" is excluded by constraint "default.svc"',
    ),
    Case(
        "a wildcard that covers an excluded name",
        [but(LEAF, names=[HOST, "*.default.svc"])],
        [but(ROOT, excluded=["secret.default.svc"])],
        f'{_NAME}DNS name "*.default.svc" is excluded by constraint "secret.default.svc"',
    ),
    Case(
        "another of its names is outside",
        [but(LEAF, names=[HOST, "example.com"])],
        [but(ROOT, permitted=["svc"])],
        f'{_NAME}DNS name "example.com" is not permitted by any constraint',
    ),
    Case(
        "constraint for names below only",
        [but(LEAF, names=["svc"])],
        [but(ROOT, permitted=[".svc"])],
        f'{_NAME}DNS name "svc" is not permitted by any constraint',
        host="svc",
    ),
    Case(
        "outside of permitted addresses",
        [but(LEAF, names=[HOST, "192.0.2.1"])],
        [but(ROOT, permitted=["10.0.0.0/8"])],
        f'{_NAME}IP address "192.0.2.1" is not permitted by any constraint',
    ),
    Case(
        "within excluded addresses",
        [but(LEAF, names=[HOST, "10.1.2.3"])],
        [but(ROOT, excluded=["10.0.0.0/8"])],
        f'{_NAME}IP address "10.1.2.3" is excluded by constraint "10.0.0.0/8"',
    ),
    Case(
        "outside of permitted URIs",
        [but(LEAF, names=[HOST, "spiffe://other/x"])],
        [but(ROOT, permitted=["uri:cluster"])],
        f'{_NAME}URI "spiffe://other/x" is not permitted by any constraint',
    ),
    Case(
        "excluded email address",
        [but(LEAF, names=[HOST, "joe@example.com"])],
        [but(ROOT, excluded=["mail:example.com"])],
        f'{_NAME}email address "joe@example.com" is excluded by constraint "example.com"',
    ),
    Case(
        "constraints of an intermediate",
        [BELOW, but(MIDDLE, permitted=["example.com"])],
        [ROOT],
        f'{_NAME}DNS name "{HOST}" is not permitted by any constraint',
    ),
    Case(
        "unknown critical extension",
        [but(LEAF, extra=[(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00"), True)])],
        [ROOT],
        "x509: unhandled critical extension",
    ),
    Case(
        "unknown critical extension of the root",
        [LEAF],
        [but(ROOT, extra=[(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00"), True)])],
        "x509: unhandled critical extension",
    ),
    Case(
        "critical constraint of a kind that is not supported",
        [LEAF],
        [but(ROOT, extra=[(x509.NameConstraints([x509.DirectoryName(name("x"))], None), True)])],
        "x509: unhandled critical extension",
    ),
    Case("intermediate trusted, another one sent", [BELOW, MIDDLE], [Issue("low", "middle", ca=True)], _UNKNOWN),
)
