"""Load certificates and keys from memory into `ssl`, which accepts only files."""

from __future__ import annotations

import ssl


def load_chain(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Use a certificate and key, both PEM, for new connections. Raise ssl.SSLError or OSError if they are invalid."""
    from tempfile import NamedTemporaryFile  # not needed without a client certificate

    # The file is readable only by its owner and is deleted at once.
    with NamedTemporaryFile() as file:
        file.write(certificate.rstrip() + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)
