"""What checks have in common: whom they look at and how they say what they found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Item = Mapping[str, Any]


class Finding(NamedTuple):
    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


def context(holder: Item) -> Item:
    """The security context of a Pod's spec or of a container."""
    return holder.get("securityContext") or {}


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"


def named(names: list[str]) -> str:
    """`container "a"` or `containers "a", "b"`"""
    return f"{plural('container', len(names))} {quoted(names)}"


def setters(pod: bool, names: list[str]) -> str:
    """Who set something: the Pod, containers, both."""
    return " and ".join(part for part in ("pod" if pod else "", named(names) if names else "") if part)
