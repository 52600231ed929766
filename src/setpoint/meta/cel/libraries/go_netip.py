"""Parse errors of addresses and networks with the messages of Go's netip package."""

from __future__ import annotations

import re
from ipaddress import ip_address

from setpoint.meta.cel.libraries.quoting import quote

_BITS = re.compile(r"[0-9]+", re.ASCII)


def address_error(text: str) -> str:
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


def prefix_error(text: str) -> str | None:
    """Return the error for a text, or None if it is a valid network."""
    shown = f"netip.ParsePrefix({quote(text)}): "
    head, slash, bits = text.rpartition("/")
    if not slash:
        return shown + "no '/'"
    try:
        address = ip_address(head)
    except ValueError:
        return shown + address_error(head)
    if address.version == 6 and "%" in head:
        return shown + "IPv6 zones cannot be present in a prefix"
    if (len(bits) > 1 and (bits[0] < "1" or bits[0] > "9")) or not _BITS.fullmatch(bits):
        return shown + f"bad bits after slash: {quote(bits)}"
    if int(bits[:9]) > address.max_prefixlen:
        return shown + "prefix length out of range"
    return None
