"""Base64 in expressions. Kubernetes does not have it; environments of other uses may."""

from __future__ import annotations

import base64
import binascii

from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.values import CelError


def _decode(text: str) -> bytes:
    """Padding may be left out."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4) if "=" not in text else text, validate=True)
    except (binascii.Error, ValueError):
        raise CelError("illegal base64 data at input byte 0") from None


ENCODERS = Library(
    "cel.lib.ext.encoders",
    (
        ("base64_decode_string", "base64.decode(string) -> bytes", _decode),
        ("base64_encode_bytes", "base64.encode(bytes) -> string", lambda value: base64.b64encode(value).decode()),
    ),
)
