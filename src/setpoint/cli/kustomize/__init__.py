"""Kustomizations: a directory with a kustomization.yaml, made into objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from setpoint.cli.failures import Failed


def build(directory: Path) -> Iterator[dict[str, Any]]:
    """The objects, in order. Raises Failed."""
    raise Failed(f"{directory}: kustomizations cannot be built yet")
