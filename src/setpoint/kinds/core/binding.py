"""Binding: the order to run a Pod on a node. It is never stored."""

from __future__ import annotations

from setpoint.kinds.strategy import Obj
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.names import dns1123_subdomain


def validate_binding(binding: Obj, errs: Errors) -> None:
    """Upstream reports these errors as they are, not as Invalid."""
    target = binding.get("target") or {}
    kind, name = target.get("kind", ""), target.get("name", "")
    if kind not in ("", "Node"):
        errs.append(not_supported("target.kind", kind, ("Node", "<empty>")))
    if not name:
        errs.append(required("target.name"))
    elif kind in ("", "Node"):
        for text in dns1123_subdomain(name):
            errs.append(invalid("target.name", name, text))
