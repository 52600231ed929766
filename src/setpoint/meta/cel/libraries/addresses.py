"""IP addresses and networks in expressions. Parsing is as strict as Go's netip: no leading zeros, no zones."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from setpoint.meta.cel import types as t
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.values import CelError, Opaque
from setpoint.meta.goformat import quote

_BITS = re.compile(r"[0-9]+", re.ASCII)


def _address_error(text: str) -> str:
    shown = f"ParseAddr({quote(text)}): "
    for character in text:
        if character == ".":
            return shown + _v4(text)
        if character == ":":
            return shown + _v6(text)
        if character == "%":
            return shown + "missing IPv6 address"
    return shown + "unable to parse IP"


def _v4(text: str) -> str:
    value, position, digits = 0, 0, 0
    for index, character in enumerate(text):
        if "0" <= character <= "9":
            if digits == 1 and value == 0:
                return "IPv4 field has octet with leading zero"
            value = value * 10 + int(character)
            digits += 1
            if value > 255:
                return "IPv4 field has value >255"
        elif character == ".":
            if index == 0 or index == len(text) - 1 or text[index - 1] == ".":
                return f"IPv4 field must have at least one digit (at {quote(text[index:])})"
            if position == 3:
                return "IPv4 address too long"
            position += 1
            value = digits = 0
        else:
            return f"unexpected character (at {quote(text[index:])})"
    return "IPv4 address too short"


def _v6(text: str) -> str:
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        return "zone must be a non-empty string"
    at = 2 if rest.startswith("::") else 0
    if at and at == len(rest):
        return "unable to parse IP"
    ellipsis = at == 2
    groups = 0
    while groups < 8:
        end = at
        while end < len(rest) and rest[end] in "0123456789abcdefABCDEF":
            end += 1
            if end - at > 4:
                return f"each group must have 4 or less digits (at {quote(rest[at:])})"
        if end == at:
            return f"each colon-separated field must have at least one digit (at {quote(rest[at:])})"
        if end < len(rest) and rest[end] == ".":
            if not ellipsis and groups != 6:
                return f"embedded IPv4 address must replace the final 2 fields of the address (at {quote(rest[at:])})"
            return _v4(rest[at:])
        groups += 1
        at = end
        if at == len(rest):
            break
        if rest[at] != ":":
            return f"unexpected character, want colon (at {quote(rest[at:])})"
        if at + 1 == len(rest):
            return f"colon must be followed by more characters (at {quote(rest[at:])})"
        at += 1
        if rest[at] == ":":
            if ellipsis:
                return f"multiple :: in address (at {quote(rest[at:])})"
            ellipsis = True
            at += 1
            if at == len(rest):
                break
    if at < len(rest):
        return f"trailing garbage after address (at {quote(rest[at:])})"
    if groups < 8 and not ellipsis:
        return "address string too short"
    return "the :: must expand to at least one field of zeros"


def _prefix_error(text: str) -> str | None:
    """Return the error for a text, or None if it is a valid network."""
    shown = f"netip.ParsePrefix({quote(text)}): "
    head, slash, bits = text.rpartition("/")
    if not slash:
        return shown + "no '/'"
    try:
        address = ip_address(head)
    except ValueError:
        return shown + _address_error(head)
    if address.version == 6 and "%" in head:
        return shown + "IPv6 zones cannot be present in a prefix"
    if (len(bits) > 1 and (bits[0] < "1" or bits[0] > "9")) or not _BITS.fullmatch(bits):
        return shown + f"bad bits after slash: {quote(bits)}"
    if int(bits[:9]) > address.max_prefixlen:
        return shown + "prefix length out of range"
    return None


_Address = IPv4Address | IPv6Address


class IpValue(Opaque):
    __slots__ = ("address",)
    TYPE = t.opaque("net.IP")

    def __init__(self, address: _Address) -> None:
        self.address = address

    def equals(self, other: Any) -> bool:
        if not isinstance(other, IpValue):
            raise CelError("no such overload")
        return self.address == other.address

    def size(self) -> int:
        return self.address.max_prefixlen // 8

    def __str__(self) -> str:
        return _shown(self.address)


class CidrValue(Opaque):
    __slots__ = ("address", "bits")
    TYPE = t.opaque("net.CIDR")

    def __init__(self, address: _Address, bits: int) -> None:
        self.address = address
        self.bits = bits

    def equals(self, other: Any) -> bool:
        if not isinstance(other, CidrValue):
            raise CelError("no such overload")
        return self.address == other.address and self.bits == other.bits

    def size(self) -> int:
        return -(-self.bits // 8)

    def masked(self) -> CidrValue:
        width = self.address.max_prefixlen
        prefix = int(self.address) >> (width - self.bits) << (width - self.bits)
        return CidrValue(type(self.address)(prefix), self.bits)

    def contains(self, address: _Address) -> bool:
        if address.version != self.address.version:
            return False
        shift = self.address.max_prefixlen - self.bits
        return int(address) >> shift == int(self.address) >> shift

    def __str__(self) -> str:
        return f"{_shown(self.address)}/{self.bits}"


def _shown(address: _Address) -> str:
    return address.compressed


def _strict(text: str) -> _Address | None:
    """Return an address as netip takes it, zone or not."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def _address(text: str) -> _Address:
    address = _strict(text)
    if address is None:
        error = _address_error(text)
        raise CelError(f"IP Address {quote(text)} parse error during conversion from string: {error}")
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            raise CelError(f"IP address {quote(text)} with zone value is not allowed")
        if address.ipv4_mapped is not None:
            raise CelError(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return address


def _cidr(text: str) -> CidrValue:
    twice = "network address parse error during conversion from string: "
    error = _prefix_error(text)
    head, _, bits = text.rpartition("/")
    address = _strict(head) if error is None else None
    if address is None or error is not None:
        raise CelError(f"{twice}{twice}{error}")
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise CelError(f"{twice}IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return CidrValue(address, int(bits))


def _to_ip(text: str) -> IpValue:
    return IpValue(_address(text))


def _accepts(read: Any) -> Any:
    def accepts(text: str) -> bool:
        try:
            read(text)
        except CelError:
            return False
        return True

    return accepts


def _contains_ip(network: CidrValue, other: Any) -> bool:
    return network.contains(other.address if isinstance(other, IpValue) else _address(other))


def _contains_cidr(network: CidrValue, other: Any) -> bool:
    inner = other if isinstance(other, CidrValue) else _cidr(other)
    return network.bits <= inner.bits and network.contains(inner.address)


def _is_global_unicast(value: IpValue) -> bool:
    address = value.address
    if isinstance(address, IPv4Address) and address == IPv4Address("255.255.255.255"):
        return False
    return not (
        address.is_unspecified or address.is_loopback or address.is_multicast or _is_link_local_unicast(address)
    )


def _is_link_local_unicast(address: _Address) -> bool:
    if isinstance(address, IPv4Address):
        return address.packed[:2] == b"\xa9\xfe"
    return address.packed[0] == 0xFE and address.packed[1] & 0xC0 == 0x80


def _is_link_local_multicast(value: IpValue) -> bool:
    address = value.address
    if isinstance(address, IPv4Address):
        return address.packed[:3] == b"\xe0\x00\x00"
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


IP = Library(
    "kubernetes.net.ip",
    (
        ("string_to_ip", "ip(string) -> net.IP", _to_ip),
        ("ip_family", "net.IP::family() -> int", lambda value: value.address.version),
        ("ip_is_canonical", "ip.isCanonical(string) -> bool", lambda text: _shown(_address(text)) == text),
        ("ip_is_unspecified", "net.IP::isUnspecified() -> bool", lambda value: value.address.is_unspecified),
        ("ip_is_loopback", "net.IP::isLoopback() -> bool", lambda value: value.address.is_loopback),
        ("ip_is_link_local_multicast", "net.IP::isLinkLocalMulticast() -> bool", _is_link_local_multicast),
        (
            "ip_is_link_local_unicast",
            "net.IP::isLinkLocalUnicast() -> bool",
            lambda value: _is_link_local_unicast(value.address),
        ),
        ("ip_is_global_unicast", "net.IP::isGlobalUnicast() -> bool", _is_global_unicast),
        ("is_ip", "isIP(string) -> bool", _accepts(_address)),
        ("ip_to_string", "string(net.IP) -> string", str),
    ),
    types={"net.IP": IpValue.TYPE},
)
CIDR = Library(
    "kubernetes.net.cidr",
    (
        ("string_to_cidr", "cidr(string) -> net.CIDR", _cidr),
        ("cidr_contains_ip_string", "net.CIDR::containsIP(string) -> bool", _contains_ip),
        ("cidr_contains_ip_ip", "net.CIDR::containsIP(net.IP) -> bool", _contains_ip),
        ("cidr_contains_cidr_string", "net.CIDR::containsCIDR(string) -> bool", _contains_cidr),
        ("cidr_contains_cidr", "net.CIDR::containsCIDR(net.CIDR) -> bool", _contains_cidr),
        ("cidr_ip", "net.CIDR::ip() -> net.IP", lambda value: IpValue(value.address)),
        ("cidr_prefix_length", "net.CIDR::prefixLength() -> int", lambda value: value.bits),
        ("cidr_masked", "net.CIDR::masked() -> net.CIDR", CidrValue.masked),
        ("is_cidr", "isCIDR(string) -> bool", _accepts(_cidr)),
        ("cidr_to_string", "string(net.CIDR) -> string", str),
    ),
    types={"net.CIDR": CidrValue.TYPE},
)
