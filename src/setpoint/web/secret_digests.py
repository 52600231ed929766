"""Digests of the secrets that browsers send: codes of links and of classes, and keys of sessions.

Secrets are compared only here, by their digests: how long a comparison takes says nothing about a secret.
`tests/architecture/test_secret_comparisons.py` enforces it.
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest


def digest_of(secret: str) -> bytes:
    """Return the SHA-256 of a secret."""
    return sha256(secret.encode("utf-8", "replace")).digest()


def same_digest(one: bytes, other: bytes) -> bool:
    """Return whether two digests are equal, in constant time."""
    return compare_digest(one, other)
