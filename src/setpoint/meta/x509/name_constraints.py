"""Name constraints: the subtrees of names for which an authority may sign."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from setpoint.meta.goformat import quote
from setpoint.meta.x509.certificate import Certificate, NameConstraints
from setpoint.meta.x509.dns_names import as_address, is_domain
from setpoint.meta.x509.errors import X509Error, not_authorized_for_name

N = TypeVar("N")
C = TypeVar("C")

_MAX_COMPARISONS = 250_000
"""Maximum number of names times constraints of one chain; a chain with more is rejected."""


def verify_names(chain: Sequence[Certificate]) -> None:
    """Raise X509Error unless every certificate's names lie within the constraints of all that stand above it.

    The leaf stands first. Constraints apply to all names of a certificate, not only to the one that is asked for."""
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
        _check("DNS name", name, name, permitted.dns, (), is_within)
        _check("DNS name", name, name, (), excluded.dns, _may_be_within)
    for uri, domain in domains:
        _check("URI", uri, domain, permitted.uris, (), is_within)
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


def is_within(constraint: str, name: str) -> bool:
    """Return whether a domain is in the subtree: `a.b` contains itself and all below it, `.a.b` only those below."""
    constraint, name = constraint.lower(), name.lower()
    if not constraint or constraint == name:
        return True
    return name.endswith(constraint if constraint.startswith(".") else "." + constraint)


def _may_be_within(constraint: str, name: str) -> bool:
    """Return whether a domain, or one for which its wildcard stands, is in the subtree."""
    if is_within(constraint, name):
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
    return is_within(constraint, mailbox[1])


def _count_names(certificate: Certificate) -> int:
    names = len(certificate.dns_names) + len(certificate.emails) + len(certificate.uris)
    return names + len(certificate.addresses)


def _count_constraints(authority: Certificate) -> int:
    sides = [side for side in (authority.permitted, authority.excluded) if isinstance(side, NameConstraints)]
    return sum(len(side.dns) + len(side.emails) + len(side.uris) + len(side.addresses) for side in sides)
