"""Objects that earlier versions stored wrongly, put right as they are read."""

from __future__ import annotations

EVENTS = "core/events/"
"""Where Events are kept."""

_WRONG = b',"apiVersion":"v1","involvedObject":'
_RIGHT = b',"involvedObject":'


def repaired_event(value: bytes) -> bytes:
    """An Event without the apiVersion that was stored with those written as events.k8s.io/v1: a list item that has an
    apiVersion and no kind is dropped by clients. Texts within the object escape their quotes and cannot match."""
    return value.replace(_WRONG, _RIGHT, 1) if _WRONG in value else value
