"""A certificate chain that was issued to a pod: it must be for the requested key, and valid as the status says."""

from __future__ import annotations

import re
from base64 import b64decode
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from setpoint.kinds.certificates.pod_keys import REQUEST_PATH
from setpoint.kinds.certificates.requests import parse_certificate, parse_request
from setpoint.meta.field import OMIT, Errors, invalid, required, too_long
from setpoint.meta.times import format_time, parse_time
from setpoint.meta.x509.pem import blocks

_CHAIN, _REFRESH = "status.certificateChain", "status.beginRefreshAt"
_LIMIT = 100 * 1024
_EMAIL = re.compile(r"[^@\s<>]+@[^@\s<>]+")
_MARGIN = timedelta(minutes=10)


def validate_issued(status: dict[str, Any], spec: dict[str, Any], now: datetime, errs: Errors) -> None:
    """Validate the chain, up to the first error: further ones would only repeat it."""
    chain = status.get("certificateChain", "")
    raw = chain.encode()
    if len(raw) > _LIMIT:
        errs.append(too_long(_CHAIN, _LIMIT))
        return
    found = list(blocks(raw))
    if not found:
        errs.append(invalid(_CHAIN, chain, "issued certificate chain must contain at least one certificate"))
        return
    if found[0].type != "CERTIFICATE":
        text = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"
        errs.append(invalid(_CHAIN, chain, text))
        return
    leaf = parse_certificate(found[0].data)
    if leaf is None:
        errs.append(invalid(_CHAIN, chain, "leaf certificate does not parse as valid X.509"))
        return
    _validate_names(leaf, errs)
    if not _issued_to_key(leaf, chain, spec, errs) or not _validate_times(leaf, status, spec, now, errs):
        return
    for block in found[1:]:
        if block.type != "CERTIFICATE":
            text = "issued certificate chain must consist entirely of CERTFICATE PEM blocks"
            errs.append(invalid(_CHAIN, chain, text))
            return
        if parse_certificate(block.data) is None:
            errs.append(invalid(_CHAIN, chain, "intermediate certificate does not parse as valid X.509"))
            return


def _validate_names(leaf: x509.Certificate, errs: Errors) -> None:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return
    for name in names.get_values_for_type(x509.DNSName):
        if not name:
            errs.append(invalid(_CHAIN, name, "leaf certificate should not contain empty DNSName"))
        if ".." in name:
            errs.append(invalid(_CHAIN, name, "leaf certificate's DNSName should not contain '..'"))
        if name.startswith(".") or name.endswith("."):
            errs.append(invalid(_CHAIN, name, "leaf certificate's DNSName should not start or end with '.'"))
    for address in names.get_values_for_type(x509.RFC822Name):
        if not _EMAIL.fullmatch(address):
            errs.append(invalid(_CHAIN, address, "leaf certificate should not contain invalid EmailAddress"))


def _issued_to_key(leaf: x509.Certificate, chain: str, spec: dict[str, Any], errs: Errors) -> bool:
    request = parse_request(b64decode(spec["stubPKCS10Request"]))
    if request is None:
        errs.append(invalid(REQUEST_PATH, OMIT, "must be a valid PKCS#10 CSR"))
        return False
    key = request.public_key()
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_bytes(*form) != leaf.public_key().public_bytes(*form):
        errs.append(invalid(_CHAIN, chain, "leaf certificate was not issued to the requested public key"))
        return False
    return True


def _validate_times(
    leaf: x509.Certificate, status: dict[str, Any], spec: dict[str, Any], now: datetime, errs: Errors
) -> bool:
    consistent = "must be present and consistent with the issued certificate"
    refresh_text = "must be present and in the range [notbefore+10min, notafter-10min]"
    before = len(errs)
    for name, text in (("notBefore", consistent), ("notAfter", consistent), ("beginRefreshAt", refresh_text)):
        if not status.get(name):
            errs.append(required(f"status.{name}", text))
    if len(errs) > before:
        return False
    start, end, refresh = (parse_time(status[name]) for name in ("notBefore", "notAfter", "beginRefreshAt"))
    lifetime = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    longest = spec["maxExpirationSeconds"]
    rules: tuple[tuple[bool, str, Any, str], ...] = (
        (start == leaf.not_valid_before_utc, "status.notBefore", format_time(start),
         "must be set to the NotBefore time encoded in the leaf certificate"),
        (abs(start - now) < timedelta(minutes=5), "status.notBefore", format_time(start),
         "must be set to within 5 minutes of kube-apiserver's current time"),
        (end == leaf.not_valid_after_utc, "status.notAfter", format_time(end),
         "must be set to the NotAfter time encoded in the leaf certificate"),
        (lifetime >= timedelta(hours=1), _CHAIN, _nanoseconds(lifetime),
         "leaf certificate lifetime must be >= 1 hour"),
        (lifetime <= timedelta(seconds=longest), _CHAIN, _nanoseconds(lifetime),
         f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest})"),
        (refresh >= start + _MARGIN, _REFRESH, format_time(refresh),
         "must be at least 10 minutes after status.notBefore"),
        (refresh <= end - _MARGIN, _REFRESH, format_time(refresh),
         "must be at least 10 minutes before status.notAfter"),
    )  # fmt: skip
    for holds, path, value, text in rules:
        if not holds:
            errs.append(invalid(path, value, text))
            return False
    return True


def _nanoseconds(duration: timedelta) -> int:
    return int(duration.total_seconds()) * 10**9
