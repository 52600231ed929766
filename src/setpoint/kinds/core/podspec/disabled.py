"""Fields whose feature is off: dropped from new objects, kept where the stored object already has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def drop_disabled_template_fields(template: dict[str, Any] | None, old: Mapping[str, Any] | None = None) -> None:
    """For the `prepare_*` hooks of every kind with a pod template."""
