"""String formats of schemas, as the reference tests them. A format that is not known is not tested."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import date
from ipaddress import IPv4Address, IPv6Address

from setpoint.kinds.core.addresses import parse_sloppy
from setpoint.meta.integers import parse_integer
from setpoint.meta.names import dns1123_label, dns1123_subdomain
from setpoint.meta.times import parse_duration

_HEX = "[0-9a-f]"


def _uuid(third: str, fourth: str) -> re.Pattern[str]:
    return re.compile(rf"{_HEX}{{8}}-?{_HEX}{{4}}-?{third}-?{fourth}-?{_HEX}{{12}}", re.IGNORECASE)


_UUIDS = {
    "uuid": _uuid(_HEX + "{4}", _HEX + "{4}"),
    "uuid3": _uuid("3" + _HEX + "{3}", _HEX + "{4}"),
    "uuid4": _uuid("4" + _HEX + "{3}", "[89ab]" + _HEX + "{3}"),
    "uuid5": _uuid("5" + _HEX + "{3}", "[89ab]" + _HEX + "{3}"),
}
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")
_HOST_LABEL = re.compile(r"[^\W_]([\w-]{0,61}[^\W_])?")
_EMAIL = re.compile(r"(?:.*<)?[^@\s<>(),;:\"\[\]]+@[^@\s<>(),;:\"]+>?")
_MAC = re.compile(
    r"([0-9a-fA-F]{2}([:-])([0-9a-fA-F]{2}\2){4,18}[0-9a-fA-F]{2})|(([0-9a-fA-F]{4}\.){2,9}[0-9a-fA-F]{4})"
)
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:[^\s\x00-\x1f]+|/[^\s\x00-\x1f]*)")
_COLOR = re.compile("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")
_RGB = re.compile(r"rgb\(\s*(\d{1,3}%?)\s*,\s*(\d{1,3}%?)\s*,\s*(\d{1,3}%?)\s*\)")
_SSN = re.compile(r"\d{3}[- ]?\d{2}[- ]?\d{4}")
_CARD = re.compile(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}"
)
_SPOKEN_DURATION = re.compile(
    r"(?<!\d)\d++\s*+((ns|us|µs|ms|s|m|h|hr|d|w|wk)(?![A-Za-zµ])|nano|micro|milli|sec|min|hour|day|week)", re.IGNORECASE
)


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    day, t, rest = text.lower().partition("t")
    if not t or not _is_date(day):
        return False
    match = _TIME.fullmatch(rest)
    return match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _is_byte(text: str) -> bool:
    try:
        b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except ValueError:
        return _SPOKEN_DURATION.search(text) is not None
    return True


def _is_hostname(text: str) -> bool:
    return len(text.encode()) <= 255 and all(_HOST_LABEL.fullmatch(label) for label in text.split("."))


def _is_cidr(text: str) -> bool:
    address, slash, bits = text.partition("/")
    parsed = parse_sloppy(address)
    return (
        bool(slash)
        and parsed is not None
        and bits.isascii()
        and bits.isdigit()
        and parse_integer(bits) <= parsed.max_prefixlen
    )


def _digits(text: str) -> str:
    return re.sub("[^0-9X]", "", text)


def _is_isbn10(text: str) -> bool:
    digits = _digits(text)
    if len(digits) != 10 or "X" in digits[:9]:
        return False
    return sum((10 - i) * (10 if char == "X" else int(char)) for i, char in enumerate(digits)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = _digits(text)
    if len(digits) != 13 or not digits.isdigit():
        return False
    return sum((1, 3)[i % 2] * int(char) for i, char in enumerate(digits)) % 10 == 0


def _is_card(text: str) -> bool:
    digits = re.sub("[^0-9]", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = [int(c) * (2 if i % 2 else 1) for i, c in enumerate(reversed(digits))]
    return sum(n - 9 if n > 9 else n for n in doubled) % 10 == 0


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


_TESTS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches(re.compile("[0-9a-fA-F]{24}")),
    "uri": _matches(_URI),
    "email": _matches(_EMAIL),
    "hostname": _is_hostname,
    "ipv4": lambda text: isinstance(parse_sloppy(text), IPv4Address),
    "ipv6": lambda text: isinstance(parse_sloppy(text), IPv6Address),
    "cidr": _is_cidr,
    "mac": _matches(_MAC),
    **{name: _matches(pattern) for name, pattern in _UUIDS.items()},
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": _is_card,
    "ssn": _matches(_SSN),
    "hexcolor": _matches(_COLOR),
    "rgbcolor": _matches(_RGB),
    "byte": _is_byte,
    "password": lambda text: True,
    "date": _is_date,
    "duration": _is_duration,
    "datetime": _is_datetime,
    "k8sshortname": lambda text: not dns1123_label(text),
    "k8slongname": lambda text: not dns1123_subdomain(text),
}
_NUMBER_FORMATS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def format_test(name: str) -> Callable[[str], bool] | None:
    return _TESTS.get(name.replace("-", ""))


def is_recognized(name: str, type: str) -> bool:
    if type in ("", "string"):
        return name.replace("-", "") in _TESTS
    return name in _NUMBER_FORMATS.get(type, ())
