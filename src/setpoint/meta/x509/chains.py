"""Certificate chains from a peer to a trusted certificate: search, signatures and name constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from setpoint.meta.goformat import quote
from setpoint.meta.x509.certificate import (
    CANNOT_SIGN,
    INCOMPATIBLE_USAGE,
    NOT_AUTHORIZED_TO_SIGN,
    SIGNATURE_LIMIT,
    TOO_MANY_INTERMEDIATES,
    UNHANDLED_CRITICAL,
    UNIMPLEMENTED,
    Certificate,
    NameConstraints,
    X509Error,
    as_address,
    encoded_subject,
    expired,
    is_domain,
    not_authorized_for_name,
    parse,
    unknown_authority,
    verify_host_name,
)
from setpoint.meta.x509.pem import blocks

if TYPE_CHECKING:
    from setpoint.meta.x509.certificate import Certificate


MIN_RSA_BITS: Final = 1024
_RSA = "1.2.840.113549.1.1"
_ECDSA = "1.2.840.10045.4"
_PSS = f"{_RSA}.10"
_RSA_FAMILY, _ECDSA_FAMILY, _ED25519_FAMILY = "RSA", "ECDSA", "Ed25519"
_ALGORITHMS = {
    **{f"{_RSA}.{number}": _RSA_FAMILY for number in (10, 11, 12, 13)},
    **{f"{_ECDSA}.3.{number}": _ECDSA_FAMILY for number in (2, 3, 4)},
    "1.3.101.112": _ED25519_FAMILY,
}
"""Key type that each accepted algorithm requires."""
_INSECURE = {
    f"{_RSA}.2": "MD2-RSA",
    f"{_RSA}.4": "MD5-RSA",
    f"{_RSA}.5": "SHA1-RSA",
    "1.3.14.3.2.29": "SHA1-RSA",
    f"{_ECDSA}.1": "ECDSA-SHA1",
    "1.2.840.10040.4.3": "DSA-SHA1",
}


def _signature_problem(certificate: Certificate, issuer: Certificate) -> str:
    """Return why `issuer` has not signed `certificate`, or was not allowed to; empty if it has."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    if issuer.is_ca is False or (issuer.is_ca is None and issuer.is_version_3) or not issuer.may_sign:
        return CANNOT_SIGN
    algorithm = certificate.parsed.signature_algorithm_oid.dotted_string
    if algorithm in _INSECURE:
        return f"x509: cannot verify signature: insecure algorithm {_INSECURE[algorithm]}"
    wanted, (found, type_name) = _ALGORITHMS.get(algorithm), _key_of(issuer)
    if wanted is None or (algorithm == _PSS and not _is_usual_pss(certificate)):
        return UNIMPLEMENTED
    if wanted != found:
        return f"x509: signature algorithm specifies an {wanted} public key, but have public key of type {type_name}"
    if wanted == _RSA_FAMILY and issuer.key.key_size < MIN_RSA_BITS:
        return (
            f"crypto/rsa: {issuer.key.key_size}-bit keys are insecure "
            "(see https://go.dev/pkg/crypto/rsa#hdr-Minimum_key_size)"
        )
    try:
        certificate.parsed.verify_directly_issued_by(issuer.parsed)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return "crypto/rsa: verification error" if wanted == _RSA_FAMILY else f"x509: {wanted} verification failure"
    return ""


def _key_of(issuer: Certificate) -> tuple[str, str]:
    """Return the family of its key and Go's name of the type."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(issuer.key, rsa.RSAPublicKey):
        return _RSA_FAMILY, "*rsa.PublicKey"
    if isinstance(issuer.key, ec.EllipticCurvePublicKey):
        return _ECDSA_FAMILY, "*ecdsa.PublicKey"
    return _ED25519_FAMILY, "ed25519.PublicKey"


def _is_usual_pss(certificate: Certificate) -> bool:
    """Return whether hash, mask and salt are one of the three combinations of TLS 1.3."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    try:
        parameters, hash = (
            certificate.parsed.signature_algorithm_parameters,
            certificate.parsed.signature_hash_algorithm,
        )
    except (UnsupportedAlgorithm, ValueError):
        return False
    return (
        isinstance(parameters, padding.PSS)
        and isinstance(hash, hashes.SHA256 | hashes.SHA384 | hashes.SHA512)
        and parameters._salt_length == hash.digest_size
        and isinstance(parameters._mgf._algorithm, type(hash))
    )


N = TypeVar("N")
C = TypeVar("C")

_MAX_COMPARISONS = 250_000
"""Maximum number of names times constraints of one chain; a chain with more is rejected."""


def _verify_names(chain: Sequence[Certificate]) -> None:
    """Raise X509Error unless every certificate's names lie within the constraints of all that stand above it.

    The leaf stands first. Constraints apply to all names of a certificate, not only to the requested one."""
    constrained = [(at, one) for at, one in enumerate(chain) if one.permitted is not None]
    if not constrained:
        return
    comparisons = 0
    for at, certificate in enumerate(chain):
        above = [one for place, one in constrained if place > at]
        if not certificate.has_names or not above:
            continue
        comparisons += _count_names(certificate) * sum(map(_count_constraints, above))
        if comparisons > _MAX_COMPARISONS:
            raise X509Error("x509: unknown error")
        domains = [(uri, _host_of(uri)) for uri in certificate.uris]
        mailboxes = [(email, _mailbox(email)) for email in certificate.emails]
        for authority in above:
            _verify(certificate, authority, domains, mailboxes)


def _verify(
    certificate: Certificate,
    authority: Certificate,
    domains: list[tuple[str, str]],
    mailboxes: list[tuple[str, tuple[str, str]]],
) -> None:
    permitted, excluded = authority.permitted, authority.excluded
    assert permitted is not None
    assert excluded is not None
    for address in certificate.addresses:
        _check("IP address", str(address), address, permitted.addresses, excluded.addresses, lambda net, a: a in net)
    for name in certificate.dns_names:
        if not is_domain(name):
            raise X509Error(not_authorized_for_name(f"x509: cannot parse dnsName {quote(name)}"))
        _check("DNS name", name, name, permitted.dns, (), _is_within)
        _check("DNS name", name, name, (), excluded.dns, _may_be_within)
    for uri, domain in domains:
        _check("URI", uri, domain, permitted.uris, (), _is_within)
        _check("URI", uri, domain, (), excluded.uris, _may_be_within)
    for email, mailbox in mailboxes:
        _check("email address", email, mailbox, permitted.emails, excluded.emails, _is_mail_of)


def _check(
    type: str, shown: str, name: N, permitted: Sequence[C], excluded: Iterable[C], matches: Callable[[C, N], bool]
) -> None:
    if permitted and not any(matches(constraint, name) for constraint in permitted):
        raise X509Error(not_authorized_for_name(f"{type} {quote(shown)} is not permitted by any constraint"))
    for constraint in excluded:
        if matches(constraint, name):
            text = f"{type} {quote(shown)} is excluded by constraint {quote(str(constraint))}"
            raise X509Error(not_authorized_for_name(text))


def _is_within(constraint: str, name: str) -> bool:
    """Return whether a domain is in the subtree: `a.b` contains itself and all below it, `.a.b` only those below."""
    constraint, name = constraint.lower(), name.lower()
    if not constraint or constraint == name:
        return True
    return name.endswith(constraint if constraint.startswith(".") else "." + constraint)


def _may_be_within(constraint: str, name: str) -> bool:
    """Return whether a domain, or one for which its wildcard stands, is in the subtree."""
    if _is_within(constraint, name):
        return True
    return name.startswith("*") and "." in constraint and _above(constraint.lower()) == _above(name.lower())


def _above(name: str) -> str:
    return name[name.find(".") :] if "." in name else ""


def _host_of(uri: str) -> str:
    try:
        host = urlsplit(uri).hostname or ""
    except ValueError:
        host = ""
    if not host:
        text = f"URI with empty host ({quote(uri)}) cannot be matched against constraints"
    elif as_address(host) is not None:
        text = f"URI with IP ({quote(uri)}) cannot be matched against constraints"
    elif not is_domain(host):
        text = f"x509: internal error: URI SAN {quote(uri)} failed to parse"
    else:
        return host
    raise X509Error(not_authorized_for_name(text))


def _mailbox(email: str) -> tuple[str, str]:
    """Return the local part and the domain. Quoted and escaped local parts are refused."""
    local, at, domain = email.rpartition("@")
    if not at or not local or not domain or not is_domain(domain) or set(local) & set('"\\@ ') or ".." in f".{local}.":
        raise X509Error(not_authorized_for_name(f"cannot parse rfc822Name {quote(email)}"))
    return local, domain.lower()


def _is_mail_of(constraint: str, mailbox: tuple[str, str]) -> bool:
    local, at, domain = constraint.rpartition("@")
    if at:
        return (local, domain.lower()) == mailbox
    return _is_within(constraint, mailbox[1])


def _count_names(certificate: Certificate) -> int:
    names = len(certificate.dns_names) + len(certificate.emails) + len(certificate.uris)
    return names + len(certificate.addresses)


def _count_constraints(authority: Certificate) -> int:
    sides = [side for side in (authority.permitted, authority.excluded) if isinstance(side, NameConstraints)]
    return sum(len(side.dns) + len(side.emails) + len(side.uris) + len(side.addresses) for side in sides)


SERVER_AUTH: Final = "1.3.6.1.5.5.7.3.1"
CLIENT_AUTH: Final = "1.3.6.1.5.5.7.3.2"
_ANY_USAGE = "2.5.29.37.0"
_MAX_SIGNATURES = 100
"""Maximum number of signatures that one verification checks, regardless of what the peer sends."""

_Chain = list[Certificate]


class CertificatePool:
    """Certificates by subject. They are parsed on demand, because systems trust hundreds."""

    def __init__(self, certificates: Iterable[Certificate] = ()) -> None:
        self._parsed: dict[bytes, Certificate | None] = {}
        """Members by encoding; None if not parsed yet."""
        self._by_subject: dict[bytes, list[bytes]] = {}
        for certificate in certificates:
            self._add(certificate.der, certificate.subject)
            self._parsed[certificate.der] = certificate

    @classmethod
    def from_pem(cls, *bundles: bytes) -> CertificatePool:
        """Read all certificates of PEM bundles; other content is ignored."""
        pool = cls()
        for block in (block for bundle in bundles for block in blocks(bundle)):
            if block.type == "CERTIFICATE" and not block.headers and block.data not in pool._parsed:
                with suppress(X509Error):
                    pool._add(block.data, encoded_subject(block.data))
        return pool

    def _add(self, der: bytes, subject: bytes) -> None:
        if der not in self._parsed:
            self._parsed[der] = None
            self._by_subject.setdefault(subject, []).append(der)

    def __len__(self) -> int:
        return len(self._parsed)

    def __contains__(self, certificate: Certificate) -> bool:
        return certificate.der in self._parsed

    def _with_subject(self, subject: bytes) -> Iterator[Certificate]:
        for der in self._by_subject.get(subject, ()):
            certificate = self._parsed[der]
            if certificate is None:
                with suppress(X509Error):
                    certificate = self._parsed[der] = parse(der)
            if certificate is not None:
                yield certificate

    def issuers_of(self, certificate: Certificate) -> list[Certificate]:
        """Return the certificates with the issuer's name, the most likely by their key identifiers first."""
        wanted = certificate.authority_key_id

        def unlikeliness(candidate: Certificate) -> int:
            if candidate.key_id == wanted:
                return 0
            return 2 if candidate.key_id and wanted else 1

        return sorted(self._with_subject(certificate.issuer), key=unlikeliness)


def verify(
    sent: Sequence[Certificate], roots: CertificatePool, now: datetime, *, usage: str = SERVER_AUTH, host: str = ""
) -> None:
    """Raise X509Error unless the first certificate of `sent` is valid for `usage` at `now`, and for `host` if given.

    The other certificates may be in any order; those that are not part of the chain to one of `roots` are ignored."""
    leaf = sent[0]
    problem = _problem_of(leaf, [], now)
    if problem:
        raise X509Error(problem)
    if host:
        verify_host_name(leaf, host)
    if leaf in roots:
        chains = [[leaf]]
    else:
        search = _Search(roots, CertificatePool(sent[1:]), now)
        chains, problem = search.above([leaf])
        if not chains:
            raise X509Error(problem)
    _verify_one_of(chains, usage)


def _verify_one_of(chains: list[_Chain], usage: str) -> None:
    """Raise X509Error unless one of the chains is within its constraints as a whole."""
    constraint: X509Error | None = None
    wrong_usage = wrong_policies = 0
    for chain in chains:
        # Policy constraints of the trust anchor are ignored: they apply to other certificates, and it was chosen
        # explicitly.
        if any(certificate.has_policy_rules for certificate in chain[:-1]):
            wrong_policies += 1
        elif not all(_is_good_for(certificate, usage) for certificate in chain):
            wrong_usage += 1
        else:
            try:
                _verify_names(chain)
                return
            except X509Error as error:
                constraint = constraint or error
    if constraint is not None:
        raise constraint
    if not wrong_policies:
        raise X509Error(INCOMPATIBLE_USAGE)
    details = [f"{wrong_usage} candidate chains with incompatible key usage"] if wrong_usage else []
    details.append(f"{wrong_policies} candidate chains with invalid policies")
    raise X509Error(f"x509: no valid chains built: {', '.join(details)}")


def _is_good_for(certificate: Certificate, usage: str) -> bool:
    usages = certificate.usages
    return not usages or usage in usages or _ANY_USAGE in usages


class _Search:
    """The search for chains, with a bound on its cost."""

    def __init__(self, roots: CertificatePool, intermediates: CertificatePool, now: datetime) -> None:
        self._roots = roots
        self._intermediates = intermediates
        self._now = now
        self._signatures = 0

    def above(self, chain: _Chain) -> tuple[list[_Chain], str]:
        """Return the chains to a root that begin with `chain`; if there are none, why."""
        found: list[_Chain] = []
        problem = hint = candidate_name = ""
        for pool, is_root in ((self._roots, True), (self._intermediates, False)):
            for candidate in pool.issuers_of(chain[-1]):
                self._signatures += 1
                if self._signatures > _MAX_SIGNATURES:
                    return found, SIGNATURE_LIMIT
                if candidate.key is None or _is_in(candidate, chain):
                    continue
                rejection = _signature_problem(chain[-1], candidate)
                if not rejection:
                    problem = rejection = _problem_of(candidate, chain, self._now, is_root=is_root)
                if rejection:
                    if not hint:
                        hint, candidate_name = rejection, candidate.display_name
                elif is_root:
                    found.append([*chain, candidate])
                else:
                    more, problem = self.above([*chain, candidate])
                    found += more
                    if problem == SIGNATURE_LIMIT:
                        return found, problem
        return found, problem or unknown_authority(hint, candidate_name)


def _is_in(candidate: Certificate, chain: _Chain) -> bool:
    """Return whether the same entity stands in the chain already: a loop of authorities that signed each other."""
    return any(
        one.subject == candidate.subject and one.key_der == candidate.key_der and one.names_der == candidate.names_der
        for one in chain
    )


def _problem_of(certificate: Certificate, below: _Chain, now: datetime, *, is_root: bool = False) -> str:
    """Return why a certificate may not stand above these in a chain; empty if it may."""
    if certificate.has_unknown_critical:
        return UNHANDLED_CRITICAL
    if now < certificate.not_before:
        return expired(now, certificate.not_before)
    if now > certificate.not_after:
        return expired(now, certificate.not_after)
    if below and not is_root and not certificate.is_ca:
        return NOT_AUTHORIZED_TO_SIGN
    if certificate.max_path_length is not None and len(below) - 1 > certificate.max_path_length:
        return TOO_MANY_INTERMEDIATES
    return ""
