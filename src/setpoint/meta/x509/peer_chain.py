"""The certificates that the peer of a TLS connection has sent."""

from __future__ import annotations

from base64 import b64decode
from typing import Any


def peer_chain(connection: Any) -> list[bytes]:
    """Return them as DER, the peer's own first; `connection` is an `ssl.SSLObject` after its handshake.

    Python has a public method for this only since 3.13."""
    ask = getattr(getattr(connection, "_sslobj", None), "get_unverified_chain", None)
    chain = (ask() if ask is not None else None) or ()
    return [b64decode(certificate.public_bytes().split("-----")[2]) for certificate in chain]
