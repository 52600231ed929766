"""Kubernetes' named formats: `format.dns1123Label().validate(name)`."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

from setpoint.meta import names
from setpoint.meta.cel import types as t
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.go_text import read_timestamp
from setpoint.meta.cel.libraries.urls import UrlError, parse_request_uri
from setpoint.meta.cel.values import NONE, Opaque, Optional

_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class FormatValue(Opaque):
    """A format by its name; `max_regex_size` determines the cost of validation."""

    __slots__ = ("max_regex_size", "name", "validate")
    TYPE = t.struct("kubernetes.NamedFormat")

    def __init__(self, name: str, max_regex_size: int, validate: Callable[[str], list[str]]) -> None:
        self.name = name
        self.max_regex_size = max_regex_size
        self.validate = validate

    def equals(self, other: Any) -> bool:
        return isinstance(other, FormatValue) and self.name == other.name


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return the check of a name prefix, which may end with a dash."""

    def validate(text: str) -> list[str]:
        return check(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)

    return validate


def _uri(text: str) -> list[str]:
    try:
        parse_request_uri(text)
    except UrlError as error:
        return [str(error)]
    return []


def _uuid(text: str) -> list[str]:
    return [] if _UUID.fullmatch(text) else ["does not match the UUID format"]


def _byte(text: str) -> list[str]:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return ["invalid base64"]
    return []


def _date(text: str) -> list[str]:
    return [] if _DATE.fullmatch(text) and read_timestamp(f"{text}T00:00:00Z") else ["invalid date"]


def _datetime(text: str) -> list[str]:
    return [] if read_timestamp(text.upper()) is not None else ["invalid datetime"]


_ALL = {
    "dns1123Label": FormatValue("DNS1123Label", 30, names.dns1123_label),
    "dns1123Subdomain": FormatValue("DNS1123Subdomain", 60, names.dns1123_subdomain),
    "dns1035Label": FormatValue("DNS1035Label", 30, names.dns1035_label),
    "qualifiedName": FormatValue("QualifiedName", 60, names.qualified_name),
    "dns1123LabelPrefix": FormatValue("DNS1123LabelPrefix", 30, _prefix(names.dns1123_label)),
    "dns1123SubdomainPrefix": FormatValue("DNS1123SubdomainPrefix", 60, _prefix(names.dns1123_subdomain)),
    "dns1035LabelPrefix": FormatValue("DNS1035LabelPrefix", 30, _prefix(names.dns1035_label)),
    "labelValue": FormatValue("LabelValue", 40, names.label_value),
    "uri": FormatValue("URI", 1103, _uri),
    "uuid": FormatValue("uuid", 70, _uuid),
    "byte": FormatValue("byte", 84, _byte),
    "date": FormatValue("date", 71, _date),
    "datetime": FormatValue("datetime", 71, _datetime),
}


def _validate(value: FormatValue, text: str) -> Optional:
    problems = value.validate(text)
    return Optional(problems) if problems else NONE


def _named(name: str) -> Optional:
    found = _ALL.get(name)
    return NONE if found is None else Optional(found)


def _constant(value: FormatValue) -> Callable[[], FormatValue]:
    return lambda: value


_F = "kubernetes.NamedFormat"
FORMAT = Library(
    "kubernetes.format",
    (
        ("format-validate", f"{_F}::validate(string) -> optional(list(string))", _validate),
        ("format-named", f"format.named(string) -> optional({_F})", _named),
        *((f"format.{name}", f"format.{name}() -> {_F}", _constant(value)) for name, value in _ALL.items()),
    ),
)
