"""Certificates and keys that are in memory, given to a library that takes them from files alone."""

from __future__ import annotations

import ssl


def load_chain(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Both PEM; they are shown on connections from now on. Raises ssl.SSLError, OSError."""
    from tempfile import NamedTemporaryFile  # not for those who show no certificate

    # Readable by its owner alone, and gone at once.
    with NamedTemporaryFile() as file:
        file.write(certificate.rstrip() + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)
