"""Who is at the other end of a connection, as far as the wire can tell."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from functools import partial

from setpoint.apiserver.http.message import Peer
from setpoint.meta.x509.peer_chain import peer_chain


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    name = transport.get_extra_info("peername")
    peer = Peer(name[0], name[1]) if isinstance(name, tuple) and len(name) >= 2 else Peer()
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    # Without verification `getpeercert` would hand out whatever the peer claims.
    if tls is not None and tls.context.verify_mode is not ssl.CERT_NONE:
        peer.certificate = tls.getpeercert(binary_form=True)
        if peer.certificate is not None:
            peer.intermediates = partial(_intermediates, tls)
    return peer


def _intermediates(tls: ssl.SSLObject) -> Sequence[bytes]:
    """Return what the peer has sent besides its own certificate."""
    return peer_chain(tls)[1:]
