"""Host names: which of them a certificate is valid for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

from setpoint.meta.x509.errors import X509Error

if TYPE_CHECKING:
    from setpoint.meta.x509.certificate import Certificate

_DOMAIN = re.compile(r"[!-\-/-~]+(?:\.[!-\-/-~]+)*")
_HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_][A-Za-z0-9_-]*)*")
_LEGACY = "x509: certificate relies on legacy Common Name field, use SANs instead"
_MAX_NAMES_SHOWN = 100


def is_domain(text: str) -> bool:
    """Return whether `text` can be compared with domains: labels of printable ASCII, none of them empty. The empty text
    stands for the root of all domains."""
    return not text or _DOMAIN.fullmatch(text) is not None


def verify_host_name(certificate: Certificate, host: str) -> None:
    """Raise X509Error unless the certificate's subjectAltName contains `host`, a name or an address."""
    address = as_address(host)
    if address is not None:
        if address not in certificate.addresses:
            raise X509Error(_mismatch(certificate, str(address)))
        return
    lowered = _lower(host)
    is_host_name = _HOST_NAME.fullmatch(lowered.removesuffix(".")) is not None
    parts = lowered.removesuffix(".").split(".")
    for pattern in certificate.dns_names:
        if is_host_name and _is_pattern(pattern):
            if _matches(pattern, parts):
                return
        elif _lower(pattern) == lowered and lowered not in ("", "."):
            return
    raise X509Error(_mismatch(certificate, host))


def as_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that `host` is, without its zone; None if it is a name. IPv4 within IPv6 becomes IPv4."""
    if len(host) >= 3 and host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        address = ip_address(host.partition("%")[0] if ":" in host else host)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _mismatch(certificate: Certificate, host: str) -> str:
    if not certificate.has_names and _matches(certificate.common_name, _lower(host).removesuffix(".").split(".")):
        return _LEGACY
    names: Sequence[object] = certificate.dns_names
    counted = "names"
    if as_address(host) is not None:
        names, counted = certificate.addresses, "IP SANs"
        if not names:
            return f"x509: cannot validate certificate for {host} because it doesn't contain any IP SANs"
    if len(names) >= _MAX_NAMES_SHOWN:
        return f"x509: certificate is valid for {len(names)} {counted}, but none matched {host}"
    shown = ", ".join(map(str, names))
    if not shown:
        return f"x509: certificate is not valid for any names, but wanted to match {host}"
    return f"x509: certificate is valid for {shown}, not {host}"


def _is_pattern(text: str) -> bool:
    """Return whether wildcard rules apply: a host name, whose first label may be `*`."""
    return _HOST_NAME.fullmatch(text.removeprefix("*.") if text != "*" else text) is not None


def _matches(pattern: str, parts: list[str]) -> bool:
    labels = _lower(pattern).split(".")
    if not pattern or len(labels) != len(parts):
        return False
    return labels[1:] == parts[1:] and labels[0] in ("*", parts[0])


def _lower(text: str) -> str:
    """Return `text` with its ASCII letters in lower case, and no others changed."""
    return text.lower() if text.isascii() else "".join(char.lower() if char.isascii() else char for char in text)
