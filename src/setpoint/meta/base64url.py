"""Base64 as it stands in URLs and tokens (RFC 7515): its own alphabet, without the signs that fill up the end."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode


def encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Decode base64url and ignore characters outside of the alphabet. Raises ValueError."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
