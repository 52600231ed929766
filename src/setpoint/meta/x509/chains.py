"""Certificate chains: from what a peer has sent to a certificate that is trusted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from setpoint.meta.x509 import errors
from setpoint.meta.x509.certificate import Certificate, encoded_subject, parse
from setpoint.meta.x509.dns_names import verify_host_name
from setpoint.meta.x509.errors import X509Error
from setpoint.meta.x509.name_constraints import verify_names
from setpoint.meta.x509.pem import blocks
from setpoint.meta.x509.signatures import signature_problem

SERVER_AUTH: Final = "1.3.6.1.5.5.7.3.1"
CLIENT_AUTH: Final = "1.3.6.1.5.5.7.3.2"
_ANY_USAGE = "2.5.29.37.0"
_MAX_SIGNATURES = 100
"""Maximum number of signatures that one verification checks, whatever the peer sends."""

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
        """Read all certificates of PEM bundles; what is no certificate is passed over."""
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
        """Return those with the issuer's name, the likeliest by their key identifiers first."""
        wanted = certificate.authority_key_id

        def unlikeliness(candidate: Certificate) -> int:
            if candidate.key_id == wanted:
                return 0
            return 2 if candidate.key_id and wanted else 1

        return sorted(self._with_subject(certificate.issuer), key=unlikeliness)


def verify(
    sent: Sequence[Certificate], roots: CertificatePool, now: datetime, *, usage: str = SERVER_AUTH, host: str = ""
) -> None:
    """Raise X509Error unless the first certificate of `sent` is good for `usage` at `now`, and for `host` if given.

    The others may stand in any order between it and one of `roots`; those that are not needed do not matter."""
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
                verify_names(chain)
                return
            except X509Error as error:
                constraint = constraint or error
    if constraint is not None:
        raise constraint
    if not wrong_policies:
        raise X509Error(errors.INCOMPATIBLE_USAGE)
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
                    return found, errors.SIGNATURE_LIMIT
                if candidate.key is None or _is_in(candidate, chain):
                    continue
                rejection = signature_problem(chain[-1], candidate)
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
                    if problem == errors.SIGNATURE_LIMIT:
                        return found, problem
        return found, problem or errors.unknown_authority(hint, candidate_name)


def _is_in(candidate: Certificate, chain: _Chain) -> bool:
    """Return whether the same entity stands in the chain already: a loop of authorities that signed each other."""
    return any(
        one.subject == candidate.subject and one.key_der == candidate.key_der and one.names_der == candidate.names_der
        for one in chain
    )


def _problem_of(certificate: Certificate, below: _Chain, now: datetime, *, is_root: bool = False) -> str:
    """Return why a certificate may not stand above these in a chain; empty if it may."""
    if certificate.has_unknown_critical:
        return errors.UNHANDLED_CRITICAL
    if now < certificate.not_before:
        return errors.expired(now, certificate.not_before)
    if now > certificate.not_after:
        return errors.expired(now, certificate.not_after)
    if below and not is_root and not certificate.is_ca:
        return errors.NOT_AUTHORIZED_TO_SIGN
    if certificate.max_path_length is not None and len(below) - 1 > certificate.max_path_length:
        return errors.TOO_MANY_INTERMEDIATES
    return ""
