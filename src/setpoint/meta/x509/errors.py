"""Reasons for which a certificate is refused."""

from __future__ import annotations

from datetime import datetime

from setpoint.meta.goformat import quote
from setpoint.meta.times import format_time

UNKNOWN_AUTHORITY = "x509: certificate signed by unknown authority"
CANNOT_SIGN = "x509: invalid signature: parent certificate cannot sign this kind of certificate"
UNIMPLEMENTED = "x509: cannot verify signature: algorithm unimplemented"
INCOMPATIBLE_USAGE = "x509: certificate specifies an incompatible key usage"
TOO_MANY_INTERMEDIATES = "x509: too many intermediates for path length constraint"
NOT_AUTHORIZED_TO_SIGN = "x509: certificate is not authorized to sign other certificates"
UNHANDLED_CRITICAL = "x509: unhandled critical extension"
SIGNATURE_LIMIT = "x509: signature check attempts limit reached while verifying certificate chain"


class X509Error(ValueError):
    """A certificate or a chain is rejected; the message is that of Go's `crypto/x509`."""


def unknown_authority(hint: str = "", candidate: str = "") -> str:
    """Return the text for a chain that does not end at a trusted certificate.

    `hint` says why the first `candidate` of the right name was not accepted as the issuer."""
    if not hint:
        return UNKNOWN_AUTHORITY
    because = f"possibly because of {quote(hint)} while trying to verify candidate authority certificate"
    return f"{UNKNOWN_AUTHORITY} ({because} {quote(candidate)})"


def expired(now: datetime, limit: datetime) -> str:
    relation = "before" if now < limit else "after"
    detail = f"current time {format_time(now)} is {relation} {format_time(limit)}"
    return f"x509: certificate has expired or is not yet valid: {detail}"


def not_authorized_for_name(detail: str) -> str:
    return f"x509: a root or intermediate certificate is not authorized to sign for this name: {detail}"
