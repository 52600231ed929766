"""Resolves the port of a probe or a hook, which may be the name of a port of the container."""

from __future__ import annotations

from typing import Any

from setpoint.meta.objects import ObjView


def resolve_port(container: ObjView, wanted: Any) -> int:
    """Return the number of a port. A name that no port of the container has is read as a number, or is 80."""
    if isinstance(wanted, int):
        return wanted
    ports = container.get("ports") or ()
    named = next((each["containerPort"] for each in ports if each.get("name") == wanted), None)
    if named is not None:
        return int(named)
    return int(wanted) if str(wanted).isdigit() else 80
