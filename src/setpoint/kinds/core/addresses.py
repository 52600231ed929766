"""IP addresses and CIDRs in the older API fields: strict since 1.36, with warnings for odd spellings."""

from __future__ import annotations

import re
from collections.abc import Container
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from setpoint.meta.caching import memoized
from setpoint.meta.field import Errors, internal, invalid
from setpoint.meta.goformat import quote
from setpoint.meta.names import CIDR_TEXT, IP_TEXT, parse_ip

Address = IPv4Address | IPv6Address
_OCTETS = re.compile(r"[0-9]+(\.[0-9]+){3}")
_PREFIX = re.compile(r"[0-9]+")


@memoized(maxsize=16384)
def parse_sloppy(value: str) -> Address | None:
    """Parse any spelling that was ever accepted: IPv4 octets may have leading zeros. IPv4-mapped addresses become
    IPv4."""
    parsed = parse_ip(value)
    if parsed is None:
        head, colon, tail = value.rpartition(":")
        if not _OCTETS.fullmatch(tail) or "%" in value:
            return None
        parsed = parse_ip(head + colon + ".".join(octet.lstrip("0") or "0" for octet in tail.split(".")))
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped
    return parsed


def _parse_cidr_sloppy(value: str) -> tuple[Address, IPv4Network | IPv6Network] | None:
    address, slash, prefix = value.partition("/")
    parsed = parse_sloppy(address)
    if parsed is None or not slash or not _PREFIX.fullmatch(prefix):
        return None
    bits = int(prefix) if len(prefix) < 9 else 1000
    if ":" in address and parsed.version == 4:
        # An IPv4-mapped address has an IPv6 prefix.
        if bits > 128:
            return None
        bits = max(bits - 96, 0)
    if bits > parsed.max_prefixlen:
        return None
    return parsed, ip_network(f"{parsed}/{bits}", strict=False)


def is_ipv6(value: str) -> bool:
    parsed = parse_sloppy(value)
    return parsed is not None and parsed.version == 6


def validate_dual_stack_cidrs(values: list[str], path: str, errs: Errors) -> None:
    """Validate that there is at most one CIDR of each family."""
    families: set[int] = set()
    for i, value in enumerate(values):
        parsed = _parse_cidr_sloppy(value)
        if parsed is None:
            problem = f"invalid CIDR[{i}]: <nil> (invalid CIDR address: {value})"
            errs.append(internal(path, f"invalid PodCIDRs. failed to check with dual stack with error:{problem}"))
            families.clear()
            break
        families.add(parsed[0].version)
    if len(families) != 2 or len(values) > 2:
        errs.append(invalid(path, values, "may specify no more than one CIDR for each IP family"))


def validate_ip(value: str, path: str, errs: Errors, old: Container[str] = ()) -> None:
    """Validate an address; values in `old` were stored before and may stay."""
    problem = _ip_problem(value)
    if problem and value not in old:
        errs.append(invalid(path, value, problem))


# Services, Endpoints and EndpointSlices repeat the same addresses.
@memoized(maxsize=16384)
def _ip_problem(value: str) -> str:
    if parse_sloppy(value) is None:
        return IP_TEXT
    parsed = parse_ip(value)
    if parsed is None:
        return "must not have leading 0s"
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return "must not be an IPv4-mapped IPv6 address"
    return ""


def validate_cidr(value: str, path: str, errs: Errors, old: Container[str] = ()) -> None:
    if value in old:
        return
    sloppy = _parse_cidr_sloppy(value)
    if sloppy is None:
        errs.append(invalid(path, value, CIDR_TEXT))
        return
    address, _, prefix = value.partition("/")
    parsed = parse_ip(address)
    if parsed is None or (len(prefix) > 1 and prefix[0] == "0"):
        errs.append(invalid(path, value, "must not have leading 0s in IP or prefix length"))
    elif isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        errs.append(invalid(path, value, "must not have an IPv4-mapped IPv6 address"))
    elif sloppy[0] != sloppy[1].network_address:
        errs.append(invalid(path, value, "must not have bits set beyond the prefix length"))


def validate_endpoint_ip(value: str, path: str, errs: Errors) -> None:
    """Validate that traffic can be sent to an address."""
    for problem in _endpoint_problems(value):
        errs.append(invalid(path, value, problem))


@memoized(maxsize=16384)
def _endpoint_problems(value: str) -> tuple[str, ...]:
    parsed = parse_sloppy(value)
    if parsed is None:
        return ("must be a valid IP address",)
    problems = []
    if parsed.is_unspecified:
        problems.append(f"may not be unspecified ({value})")
    if parsed.is_loopback:
        problems.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if parsed in _LINK_LOCAL[parsed.version]:
        problems.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if _is_link_local_multicast(parsed):
        problems.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return tuple(problems)


_LINK_LOCAL = {4: ip_network("169.254.0.0/16"), 6: ip_network("fe80::/10")}


def _is_link_local_multicast(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return address.packed[:3] == b"\xe0\x00\x00"
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


def ip_warnings(value: str, path: str) -> list[str]:
    warning = _ip_warning(value)
    return [f"{path}: {warning}"] if warning else []


@memoized(maxsize=16384)
def _ip_warning(value: str) -> str:
    sloppy = parse_sloppy(value)
    if sloppy is None:
        return ""
    parsed = parse_ip(value)
    if parsed is None or parsed.version != sloppy.version:
        return f"non-standard IP address {quote(value)} is invalid: use {quote(str(sloppy))}"
    if parsed.version == 6 and str(parsed) != value:
        return f"IPv6 address {quote(value)} should be in RFC 5952 canonical format ({quote(str(parsed))})"
    return ""


def cidr_warnings(value: str, path: str) -> list[str]:
    sloppy = _parse_cidr_sloppy(value)
    if sloppy is None:
        return []
    address, network = sloppy
    warnings = []
    if address != network.network_address:
        single = quote(f"{address}/{address.max_prefixlen}")
        warnings.append(
            f"{path}: CIDR value {quote(value)} is ambiguous in this context "
            f"(should be {quote(str(network))} or {single}?)"
        )
    text, _, prefix = value.partition("/")
    parsed = parse_ip(text)
    if parsed is None or parsed.version != address.version or (len(prefix) > 1 and prefix[0] == "0"):
        warnings.append(f"{path}: non-standard CIDR value {quote(value)} is invalid: use {quote(str(network))}")
    if not warnings and address.version == 6 and str(network) != value:
        shown = quote(str(network))
        warnings.append(f"{path}: IPv6 CIDR value {quote(value)} should be in RFC 5952 canonical format ({shown})")
    return warnings
