"""Paths in replacements and variables: `spec.containers.[name=web].image`, `spec.ports.0.port`, `metadata.labels.*`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from setpoint.cli.failures import Failed

Setter = Callable[[Any], None]


def split(path: str) -> list[str]:
    """Split at dots, except within brackets or after a backslash."""
    parts, part, depth, escaped = list[str](), "", 0, False
    for char in path:
        if escaped:
            part += char if char == "." else f"\\{char}"
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == "." and depth == 0:
            parts.append(part)
            part = ""
        else:
            depth += (char == "[") - (char == "]")
            part += char
    return [each for each in (*parts, part) if each]


def lookup(value: Any, parts: list[str]) -> Any:
    """Return the value at a path; None if there is none."""
    for part in parts:
        if isinstance(value, dict):
            value = value.get(_key(part))
        elif isinstance(value, list):
            found = [value[at] for at in _items(value, part)]
            value = found[0] if found else None
        else:
            return None
    return value


def places(value: Any, parts: list[str], create: Callable[[], Any] | None) -> Iterator[tuple[Any, Setter]]:
    """Yield every value of the path with a function that sets it. `create` creates missing values."""
    part, rest = parts[0], parts[1:]
    keys: list[Any]
    if isinstance(value, list):
        keys = _items(value, part)
        if not keys and create is not None and part.startswith("["):
            name, _, wanted = part[1:-1].partition("=")
            value.append({name: wanted} if name else wanted)
            keys = [len(value) - 1]
    elif isinstance(value, dict):
        keys = list(value) if part == "*" else [_key(part)]
        if keys and keys[0] not in value and part != "*":
            if create is None:
                return
            value[keys[0]] = ([] if _is_item(rest[0]) else {}) if rest else create()
    else:
        return
    for key in keys:
        if rest:
            yield from places(value[key], rest, create)
        else:
            yield value[key], lambda new, key=key: value.__setitem__(key, new)  # type: ignore[misc]


def _is_item(part: str) -> bool:
    return part.startswith("[") or part.isdigit()


def _key(part: str) -> str:
    return part[1:-1] if part.startswith("[") and part.endswith("]") and "=" not in part else part


def _items(value: list[Any], part: str) -> list[int]:
    if part == "*":
        return list(range(len(value)))
    if part == "-":
        return [len(value) - 1] if value else []
    if part.isdigit():
        if int(part) >= len(value):
            raise Failed(f"index {part} specified but only {len(value)} elements found")
        return [int(part)]
    if part.startswith("[") and "=" in part:
        name, _, wanted = part[1:-1].partition("=")
        return [
            at
            for at, item in enumerate(value)
            if str(item.get(name) if name and isinstance(item, dict) else item) == wanted
        ]
    return []
