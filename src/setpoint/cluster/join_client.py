"""A new control plane machine fetches the cluster's keys from a running one."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

from setpoint.client.https import connect
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.client.transport import Unreachable
from setpoint.cluster.config import ConfigError
from setpoint.cluster.join_bundle import Bundle, JoinToken, bundle_name, check_join_url, fingerprint, sealed_bundle
from setpoint.kinds.core.secret import NAMESPACE
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.x509.pem import peer_chain
from setpoint.wire.tls import TlsClient

_TIMEOUT = 15.0
_DEFAULT_PORT = 443
_EXPIRED = "it has expired or was deleted; `setpoint token create` on a running machine prints a new one"


async def fetch_bundle(url: str, text: str, clock: Clock) -> Bundle:
    """Return the bundle of the cluster at `url`. Nothing is sent before the server is known to belong to the cluster of
    the token. Raises ConfigError."""
    token = JoinToken.parse(text)
    authority = await _authority(check_join_url(url), token)
    client = connect(Access(url, ca=authority, token=token.bearer), clock, timeout=_TIMEOUT)
    try:
        secret = await client.get(builtin("secrets"), bundle_name(token), NAMESPACE)
    except Unreachable as error:
        raise ConfigError(f"--join: {error}") from None
    except ApiError as error:
        why = _EXPIRED if error.code in (401, 404) else error.message
        raise ConfigError(f"the server at {url} refuses the token: {why}") from None
    finally:
        await client.close()
    return Bundle.open(sealed_bundle(secret), token)


async def _authority(url: str, token: JoinToken) -> bytes:
    """Return the certificate, as PEM, of the authority that the token names, as the server sends it in the handshake.
    Whether the server's own certificate is signed by it, the client verifies. Raises ConfigError."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
    try:
        async with asyncio.timeout(_TIMEOUT):
            transport, _ = await TlsClient(None).connect(asyncio.Protocol, host, port)
    except TimeoutError:
        raise ConfigError(f"--join: the server at {url} did not answer within {_TIMEOUT:g} s") from None
    except OSError as error:  # includes ssl.SSLError
        raise ConfigError(f"--join: the server at {url} cannot be reached: {error.strerror or error}") from None
    try:
        chain = peer_chain(transport.get_extra_info("ssl_object"))
    finally:
        transport.abort()
    for certificate in chain:
        if fingerprint(certificate) == token.authority:
            return ssl.DER_cert_to_PEM_cert(certificate).encode()
    raise ConfigError(
        f"the server at {url} does not belong to the cluster of the token: it does not present the authority that the "
        "token names. Check the URL; a proxy in between, or --tls-cert-file, has the same effect"
    )
