"""Warnings about pod specs that are valid, but hardly meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def pod_template_warnings(
    template: Mapping[str, Any] | None, path: str, old: Mapping[str, Any] | None = None
) -> list[str]:
    """`path` is the template's own, e.g. `spec.template`; `old` is what it replaces."""
    return []
