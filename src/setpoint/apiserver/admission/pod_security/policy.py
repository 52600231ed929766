"""What a namespace's labels say: a level and a version for enforcing, for auditing and for warning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from setpoint.meta.field import FieldError, invalid

PRIVILEGED, BASELINE, RESTRICTED = "privileged", "baseline", "restricted"
LEVELS = (PRIVILEGED, BASELINE, RESTRICTED)
"""From lax to strict."""
LATEST = -1

_PREFIX = "pod-security.kubernetes.io/"
_LABELS = tuple(
    _PREFIX + name for name in ("enforce", "enforce-version", "audit", "audit-version", "warn", "warn-version")
)
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,17})")


class Standard(NamedTuple):
    level: str
    minor: int

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"


_LAX = Standard(PRIVILEGED, LATEST)


class Policy(NamedTuple):
    enforce: Standard = _LAX
    audit: Standard = _LAX
    warn: Standard = _LAX
    errors: tuple[FieldError, ...] = ()
    """Labels that could not be understood; what they say is taken to be strict where it is enforced."""

    @property
    def privileged(self) -> bool:
        return self.enforce.level == self.audit.level == self.warn.level == PRIVILEGED and not self.errors


DEFAULT = Policy()
BAD_LEVEL = f"must be one of {', '.join(LEVELS)}"
BAD_VERSION = 'must be "latest" or "v1.x"'


def policy_of(labels: Mapping[str, str] | None, defaults: Policy = DEFAULT) -> Policy:
    if not labels:
        return defaults
    get = labels.get
    return _parse(tuple([get(label) for label in _LABELS]), defaults)


@lru_cache(maxsize=4096)
def _parse(values: tuple[str | None, ...], defaults: Policy) -> Policy:
    errors: list[FieldError] = []
    enforce = _standard(values[0], values[1], defaults.enforce, 0, RESTRICTED, errors)
    audit = _standard(values[2], values[3], defaults.audit, 2, PRIVILEGED, errors)
    warn = _standard(values[4], values[5], defaults.warn, 4, PRIVILEGED, errors)
    if values[4] is None and values[0] in LEVELS and LEVELS.index(enforce.level) > LEVELS.index(warn.level):
        # Who enforces a level and says nothing of warnings is warned of it too.
        warn = Standard(enforce.level, enforce.minor if values[5] is None else warn.minor)
    return Policy(enforce, audit, warn, tuple(errors))


def _standard(
    level: str | None, version: str | None, default: Standard, at: int, bad: str, errors: list[FieldError]
) -> Standard:
    """`bad`: the level to take for one that makes no sense."""
    if level is None:
        level = default.level
    elif level not in LEVELS:
        errors.append(_error(at, level, BAD_LEVEL))
        level = bad
    minor: int | None = default.minor
    if version is not None:
        minor = minor_of(version)
        if minor is None:
            errors.append(_error(at + 1, version, BAD_VERSION))
    return Standard(level, LATEST if minor is None else minor)


def minor_of(version: str) -> int | None:
    """None: it is no version."""
    if version == "latest":
        return LATEST
    match = _VERSION.fullmatch(version)
    return int(match[1]) if match is not None else None


def _error(at: int, value: str, text: str) -> FieldError:
    return invalid(f"metadata.labels[{_LABELS[at]}]", value, text)
