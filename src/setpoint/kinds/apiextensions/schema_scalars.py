"""Checks of single values against a schema: type, range, pattern, format, enum. Compiled once per schema."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import date
from ipaddress import IPv4Address, IPv6Address
from typing import Any, NamedTuple

import orjson
import re2

from setpoint.kinds.apiextensions import Schema
from setpoint.kinds.apiextensions.correlation import Correlated
from setpoint.kinds.core.addresses import parse_sloppy
from setpoint.meta.caching import memoized
from setpoint.meta.field import FieldError, invalid, not_supported, too_long, type_invalid
from setpoint.meta.goformat import parse_integer, plain, quote
from setpoint.meta.names import dns1123_label, dns1123_subdomain
from setpoint.meta.regex_limits import OPTIONS, TOO_LARGE, is_too_large
from setpoint.meta.times import parse_duration

# Go's messages for the library's errors.
_GO_MESSAGES = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


@memoized(maxsize=4096)
def _compile_pattern(pattern: str) -> Any:
    """Return the compiled pattern. Raises re2.error."""
    return re2.compile(pattern, options=OPTIONS)


@memoized(maxsize=4096)
def pattern_error(pattern: str) -> str:
    """Return Go's error message for the pattern; empty if it is valid."""
    if is_too_large(pattern):
        return f"error parsing regexp: {TOO_LARGE}"
    try:
        _compile_pattern(pattern)
    except re2.error as error:
        text = error.args[0]
        message = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        what, _, where = message.partition(": ")
        what = _GO_MESSAGES.get(what, what)
        return f"error parsing regexp: {what}: `{where}`"
    return ""


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
_DURATION_WITH_UNIT_NAMES = re.compile(
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
        return _DURATION_WITH_UNIT_NAMES.search(text) is not None
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


class Problem(NamedTuple):
    """An error that has no path yet; `name` is None if it does not belong to a field."""

    name: str | None
    make: Callable[[str], FieldError]


Problems = list[Problem]
Old = Correlated | None
Check = Callable[[Any, str, Problems, Old], int]
_TYPES: dict[type, str] = {
    bool: "boolean",
    str: "string",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}


def value_problem(name: str, value: Any, text: str) -> Problem:
    return Problem(name, lambda path: invalid(path, value, text))


def general_problem(text: str) -> Problem:
    return Problem(None, lambda path: invalid(path, "", text))


def quick_test(schema: Schema) -> Callable[[Any], bool] | None:
    """Return a fast test that a value is certainly valid, for schemas of plain scalars; None otherwise."""
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        return None
    if kind == "boolean":
        return lambda value: value.__class__ is bool
    if kind == "string":
        least, most, pattern = schema.get("minLength") or 0, schema.get("maxLength"), schema.get("pattern")
        if most is None and not least and not pattern:
            return lambda value: value.__class__ is str
        longest = _NO_MAXIMUM if most is None else most
        search = _compile_pattern(pattern).search if pattern else _anything
        return lambda value: value.__class__ is str and least <= len(value) <= longest and bool(search(value))
    rare = ("multipleOf", "exclusiveMinimum", "exclusiveMaximum")
    if kind == "integer" and not any(schema.get(name) for name in rare):
        bound = _RANGES.get(schema.get("format", ""), 2**63)
        low, high = schema.get("minimum"), schema.get("maximum")
        lowest = -bound if low is None else max(-bound, low)
        highest = bound - 1 if high is None else min(bound - 1, high)
        return lambda value: value.__class__ is int and lowest <= value <= highest
    return None


_NO_MAXIMUM = 1 << 62


def _anything(value: str) -> bool:
    return True


def _types(schema: Schema, of_default: bool) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string") and not of_default:
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def compile_type_check(schema: Schema, of_default: bool) -> Check | None:
    types = _types(schema, of_default)
    if not types:
        return None
    nullable, shown = bool(schema.get("nullable")), ",".join(types)
    format_name = schema.get("format", "")
    known_format = bool(format_name) and is_recognized(format_name, schema.get("type", ""))
    lenient = known_format and not {"number", "integer"} & set(types)

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        if value is None:
            actual = "null"
            if nullable:
                return 1
        else:
            actual = _TYPES[value.__class__]
            if (
                actual in types
                or (actual == "integer" and "number" in types)
                or (actual == "number" and "integer" in types and value.is_integer())
                or (lenient and actual in ("string", "array"))
            ):
                return 1
        wanted, found = shown, actual
        if known_format and value is not None and actual not in ("string", "array"):
            wanted, found = format_name, _FORMATS.get(actual, "")
        text = f"{name} in body must be of type {wanted}: {quote(found)}"
        out.append(Problem(name, lambda path: type_invalid(path, found, text)))
        return 0

    return check


def compile_text_check(schema: Schema) -> Check | None:
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if longest is None and shortest is None and not pattern:
        return None
    compiled = _compile_pattern(pattern) if pattern else None

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        length = len(value)
        if longest is not None and length > longest:
            out.append(Problem(name, lambda path: too_long(path, longest)))
        elif shortest is not None and length < shortest:
            out.append(value_problem(name, value, f"{name} in body should be at least {shortest} chars long"))
        elif compiled is not None and not compiled.search(value):
            out.append(value_problem(name, value, f"{name} in body should match '{pattern}'"))
        return 0

    return check


def compile_format_check(schema: Schema) -> Check | None:
    name_of_format = schema.get("format", "")
    if not name_of_format or not is_recognized(name_of_format, schema.get("type", "")):
        return None
    test = format_test(name_of_format)
    if test is None:
        return None

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        if not test(value):
            text = f"{name} in body must be of type {name_of_format}: {quote(value)}"
            out.append(Problem(name, lambda path: type_invalid(path, value, text)))
        return 0

    return check


_FORMATS = {"integer": "int64", "number": "float64"}
"""Names of values in messages where the schema has a format."""
_RANGES = {"int32": 2**31, "int64": 2**63}


def compile_number_check(schema: Schema) -> Check:
    multiple, least, most = schema.get("multipleOf"), schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    is_integer = schema.get("type") == "integer" and not schema.get("x-kubernetes-int-or-string")
    format_name = schema.get("format", "") if is_integer else ""
    bound = _RANGES.get(format_name, 2**63) if is_integer else None

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        if bound is not None and (not -bound <= value < bound or value != int(value)):
            kind = f"with format {format_name}" if format_name in _RANGES else "(default format)"
            out.append(general_problem(f"Checked value must be of type integer {kind} in {name}"))
        whole = value.__class__ is int
        if multiple is not None and not _is_multiple(value, int(multiple) if whole else multiple):
            shown = plain(int(multiple) if whole else float(multiple))
            out.append(value_problem(name, value, f"{name} in body should be a multiple of {shown}"))
        if least is not None:
            limit = int(least) if whole else least
            if value < limit or (above and value == limit):
                than = "greater than" if above else "greater than or equal to"
                out.append(value_problem(name, value, f"{name} in body should be {than} {plain(limit)}"))
        if most is not None:
            limit = int(most) if whole else most
            if value > limit or (below and value == limit):
                than = "less than" if below else "less than or equal to"
                out.append(value_problem(name, value, f"{name} in body should be {than} {plain(limit)}"))
        return 1

    return check


def _is_multiple(value: float, factor: float) -> bool:
    if factor <= 0:
        return False
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    quotient = value / factor if factor >= 1 else 1 / factor * value
    return abs(quotient - round(quotient)) < 1e-9 * max(1.0, abs(quotient))


def _same(value: Any, choice: Any) -> bool:
    return value == choice and isinstance(value, bool) == isinstance(choice, bool)


def compile_enum_check(schema: Schema) -> Check | None:
    choices = schema.get("enum") or ()
    if not choices:
        return None
    shown = [choice if isinstance(choice, str) else orjson.dumps(choice).decode() for choice in choices]

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        if value is None or not any(_same(value, choice) for choice in choices):
            out.append(Problem(name, lambda path: not_supported(path, value, shown)))
        return 0

    return check
