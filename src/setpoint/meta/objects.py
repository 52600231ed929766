"""The types of API objects as this code handles them: decoded JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Obj = dict[str, Any]
"""An API object, or a part of one, that its holder may change."""

ObjView = Mapping[str, Any]
"""An API object, or a part of one, that is shared and may only be read."""
