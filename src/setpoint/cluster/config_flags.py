"""A server's configuration as the flags that say it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from setpoint.cluster.config import ApiServerConfig
from setpoint.meta.times import format_duration

_OTHER_NAMES = {"compaction-interval": "etcd-compaction-interval"}
_UNNAMED = "access"
"""The part whose flags do not begin with its name."""


def flags_of(config: ApiServerConfig) -> dict[str, str]:
    """Values by name, without the dashes; empty where nothing was said."""
    found: dict[str, str] = {}
    _add(found, config, "")
    return found


def _add(found: dict[str, str], part: Any, prefix: str) -> None:
    for field in fields(part):
        value = getattr(part, field.name)
        name = prefix + field.name.replace("_", "-")
        if is_dataclass(value):
            _add(found, value, prefix if field.name == _UNNAMED else f"{name}-")
        else:
            found[_OTHER_NAMES.get(name, name)] = _shown(value)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return format_duration(round(value * 1_000_000_000))  # the only such numbers are durations
    return f"[{','.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)
