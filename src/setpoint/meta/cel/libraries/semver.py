"""Semantic versions in expressions."""

from __future__ import annotations

import re
from typing import Any

from setpoint.meta.cel import types as t
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.values import CelError, Opaque
from setpoint.meta.goformat import quote

_WORD = re.compile(r"[0-9A-Za-z-]*", re.ASCII)
_DIGITS = re.compile(r"[0-9]*", re.ASCII)


class SemverValue(Opaque):
    __slots__ = ("build", "numbers", "pre")
    TYPE = t.struct("kubernetes.Semver")

    def __init__(self, numbers: tuple[int, int, int], pre: tuple[int | str, ...], build: tuple[str, ...]) -> None:
        self.numbers = numbers
        self.pre = pre
        self.build = build

    def equals(self, other: Any) -> bool:
        return isinstance(other, SemverValue) and _compare(self, other) == 0


def _parse(text: str) -> SemverValue:
    if not text:
        raise CelError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise CelError("No Major.Minor.Patch elements found")
    major = _number(parts[0], "Major")
    minor = _number(parts[1], "Minor")
    patch, plus, build_text = parts[2].partition("+")
    patch, dash, pre_text = patch.partition("-")
    last = _number(patch, "Patch")
    pre = tuple(_prerelease(part) for part in pre_text.split(".")) if dash else ()
    build = tuple(_build(part) for part in build_text.split(".")) if plus else ()
    return SemverValue((major, minor, last), pre, build)


def _number(text: str, name: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise CelError(f"Invalid character(s) found in {name.lower()} number {quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise CelError(f"{name} number must not contain leading zeroes {quote(text)}")
    if not text:
        raise CelError('strconv.ParseUint: parsing "": invalid syntax')
    if int(text[:30]) >= 1 << 64:
        raise CelError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return int(text)


def _prerelease(text: str) -> int | str:
    if not text:
        raise CelError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise CelError(f"Numeric PreRelease version must not contain leading zeroes {quote(text)}")
        return int(text[:30])
    if not _WORD.fullmatch(text):
        raise CelError(f"Invalid character(s) found in prerelease {quote(text)}")
    return text


def _build(text: str) -> str:
    if not text:
        raise CelError("Build meta data is empty")
    if not _WORD.fullmatch(text):
        raise CelError(f"Invalid character(s) found in build meta data {quote(text)}")
    return text


def _normalized(text: str) -> SemverValue:
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            part = part.lstrip("0")
            if not part or part[0] not in "0123456789":
                part = "0" + part
            parts[index] = part
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise CelError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return _parse(".".join(parts))


def _to_semver(text: str, normalize: bool = False) -> SemverValue:
    return _normalized(text) if normalize else _parse(text)


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _to_semver(text, normalize)
    except CelError:
        return False
    return True


def _compare(one: SemverValue, other: SemverValue) -> int:
    if one.numbers != other.numbers:
        return 1 if one.numbers > other.numbers else -1
    if not one.pre or not other.pre:
        return bool(other.pre) - bool(one.pre)
    for mine, theirs in zip(one.pre, other.pre):
        if mine == theirs:
            continue
        if isinstance(mine, int) and isinstance(theirs, int):
            return 1 if mine > theirs else -1
        if isinstance(mine, str) and isinstance(theirs, str):
            return 1 if mine > theirs else -1
        return -1 if isinstance(mine, int) else 1
    return (len(one.pre) > len(other.pre)) - (len(one.pre) < len(other.pre))


_S = "kubernetes.Semver"
SEMVER = Library(
    "kubernetes.Semver",
    (
        ("string_to_semver", f"semver(string) -> {_S}", _to_semver),
        ("string_bool_to_semver", f"semver(string, bool) -> {_S}", _to_semver),
        ("is_semver_string", "isSemver(string) -> bool", _is_semver),
        ("is_semver_string_bool", "isSemver(string, bool) -> bool", _is_semver),
        ("semver_is_greater_than", f"{_S}::isGreaterThan({_S}) -> bool", lambda a, b: _compare(a, b) > 0),
        ("semver_is_less_than", f"{_S}::isLessThan({_S}) -> bool", lambda a, b: _compare(a, b) < 0),
        ("semver_compare_to", f"{_S}::compareTo({_S}) -> int", _compare),
        ("semver_major", f"{_S}::major() -> int", lambda value: value.numbers[0]),
        ("semver_minor", f"{_S}::minor() -> int", lambda value: value.numbers[1]),
        ("semver_patch", f"{_S}::patch() -> int", lambda value: value.numbers[2]),
    ),
)
