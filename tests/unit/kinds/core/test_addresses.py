from __future__ import annotations

import pytest

from setpoint.kinds.core.addresses import (
    cidr_warnings,
    ip_warnings,
    validate_cidr,
    validate_endpoint_ip,
    validate_ip,
)
from setpoint.meta.field import Errors


def details(rule: object, value: str, *more: object) -> list[str]:
    errs: Errors = []
    rule(value, "p", errs, *more)  # type: ignore[operator]
    return [error.detail for error in errs]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("10.0.0.1", []),
        ("2001:DB8::1", []),
        ("x", ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]),
        ("10.0.0.01", ["must not have leading 0s"]),
        ("::ffff:1.2.3.4", ["must not be an IPv4-mapped IPv6 address"]),
    ],
)
def test_addresses(value: str, expected: list[str]) -> None:
    assert details(validate_ip, value) == expected


def test_stored_invalid_values_stay_allowed() -> None:
    assert details(validate_ip, "010.0.0.1", ("010.0.0.1",)) == []
    assert details(validate_cidr, "10.0.0.1/8", ("10.0.0.1/8",)) == []


@pytest.mark.parametrize("value", ["10.0.0.0/33", "abc", "10.0.0.0", "10.0.0.0/x", "10.0.0.0/9999999999", "::/129"])
def test_invalid_cidrs(value: str) -> None:
    assert details(validate_cidr, value) == ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("169.254.3.4", "link-local range"),
        ("fe80::1", "link-local range"),
        ("224.0.0.9", "link-local multicast"),
        ("ff02::1", "link-local multicast"),
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("x", "must be a valid IP address"),
    ],
)
def test_unusable_endpoint_addresses(value: str, word: str) -> None:
    [detail] = details(validate_endpoint_ip, value)
    assert word in detail


def test_warnings() -> None:
    assert ip_warnings("10.0.0.1", "p") == [] == cidr_warnings("10.0.0.0/8", "p")
    assert ip_warnings("2001:DB8::1", "p") == [
        'p: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")'
    ]
    assert ip_warnings("010.0.0.1", "p") == ['p: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1"']
    assert cidr_warnings("10.1.2.3/8", "p") == [
        'p: CIDR value "10.1.2.3/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.1.2.3/32"?)'
    ]
    assert cidr_warnings("fd00:0::/64", "p") == [
        'p: IPv6 CIDR value "fd00:0::/64" should be in RFC 5952 canonical format ("fd00::/64")'
    ]
