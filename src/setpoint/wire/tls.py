"""TLS of servers and clients. No other module opens TLS connections to servers.

Servers are verified by Go's rules (`setpoint.meta.x509`) after the handshake, which has proven that the server holds
the key of its certificate, and before the first byte is sent. OpenSSL's own verification refuses chains that every
client written in Go accepts: leaves with the subject of their authority, for example.
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from setpoint.meta.clock import Clock
from setpoint.meta.x509.pem import blocks, peer_chain

if TYPE_CHECKING:
    import asyncio
    import socket

    from setpoint.meta.x509.chains import CertificatePool

# `asyncio` is imported where it is needed, because most commands of the command line do without an event loop.

P = TypeVar("P", bound="asyncio.BaseProtocol")
T = TypeVar("T")
TlsState = ssl.SSLObject | ssl.SSLSocket
Dialled = tuple[T, TlsState, Callable[[], None]]
"""A connection after the handshake, its TLS state, and the function that closes it at once."""

_MAX_RSA_BITS: Final = 8192
_MAX_SENT = 32
"""The maximum number of certificates a server may send."""
_WEAK_IN_OPENSSL = tuple(
    bytes.fromhex(identifier)
    for identifier in ("0603551d1e", "0603551d21", "0603551d24", "2a8648ce3d040301", "2a864886f70d01010e")
)
"""Encoded identifiers of what OpenSSL takes less seriously than Go: name constraints (a wildcard may cover an excluded
name), policy mappings and constraints (ignored), signatures with SHA-224 (accepted)."""
_BASIC_CONSTRAINTS = bytes.fromhex("0603551d13")
"""The same of an extension without which OpenSSL, but not Go, lets a root sign others."""


_OPEN_FILES: Final = "/proc/self/fd"
_SERVER_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Cipher suites of TLS 1.2: those of Go's default with authenticated encryption, so none with CBC."""


def server_tls_context(client_ca: Path | None = None) -> ssl.SSLContext:
    """Return a context for servers, still without a certificate: TLS 1.2 and later, HTTP/1.1 only.

    With `client_ca`, clients may send a certificate, which must then be signed by one of these authorities.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_SERVER_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    # Common clients never resume a session: tickets would only cost every connection time and memory.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
        # As in Go, an authority is trusted even if the one that signed it is not known.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context


def load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Use a certificate and key, both PEM, for new connections. Raise ssl.SSLError or OSError if they are invalid."""
    # `ssl` accepts only files.
    with _short_lived_file(certificate.rstrip() + b"\n" + key) as name:
        context.load_cert_chain(name)


@contextmanager
def _short_lived_file(content: bytes) -> Iterator[str]:
    """Yield the name of a file with this content that only this user can read: in memory where the system has such
    files, which also saves short commands the import of `tempfile`."""
    if sys.platform == "linux" and os.access(_OPEN_FILES, os.X_OK):
        with open(os.memfd_create("certificate"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"{_OPEN_FILES}/{file.fileno()}"
        return
    from tempfile import NamedTemporaryFile  # slow to load, rarely needed

    with NamedTemporaryFile() as temporary:
        temporary.write(content)
        temporary.flush()
        yield temporary.name


class ServerCertificateError(OSError):
    """A server certificate is rejected; the message is that of Go's `crypto/tls`."""


class Trust:
    """The certificate authorities that are trusted.

    `setpoint.meta.x509` is imported when the first server is verified, because it imports `cryptography`, which is
    slow.
    """

    def __init__(self, clock: Clock, roots: bytes = b"") -> None:
        """`roots` are the trusted certificates, PEM; empty means those of the system.

        Raises ValueError if there is no certificate in `roots`."""
        if roots and not any(block.type == "CERTIFICATE" for block in blocks(roots)):
            raise ValueError("unable to load root certificates: unable to parse bytes as PEM block")
        self._clock = clock
        self._roots = roots

    def verify(self, connection: TlsState, name: str, alternative: str = "") -> None:
        """Raise ServerCertificateError unless the server at the other end has a certificate for `name`, or for
        `alternative` if there is one."""
        from setpoint.meta.x509.certificate import X509Error, parse
        from setpoint.meta.x509.chains import verify

        chain = peer_chain(connection)
        if not 0 < len(chain) <= _MAX_SENT:
            raise ServerCertificateError(f"tls: server sent {len(chain)} certificates")
        try:
            sent = [parse(der) for der in chain]
        except X509Error as error:
            raise ServerCertificateError(f"tls: failed to parse certificate from server: {error}") from None
        if any(getattr(certificate.key, "key_size", 0) > _MAX_RSA_BITS for certificate in sent):
            text = f"tls: server sent certificate containing RSA key larger than {_MAX_RSA_BITS} bits"
            raise ServerCertificateError(text)
        try:
            verify(sent, self._pool, self._clock.now(), host=name)
        except X509Error as error:
            with suppress(X509Error):
                if alternative:
                    verify(sent, self._pool, self._clock.now(), host=alternative)
                    return
            raise ServerCertificateError(f"tls: failed to verify certificate: {error}") from None

    def let_openssl_verify(self, context: ssl.SSLContext) -> bool:
        """Set up `context` so that OpenSSL accepts no server that `verify` would refuse, as far as it can: see
        `is_stricter_than_openssl`. Return False if it cannot read the authorities."""
        context.check_hostname, context.verify_mode = True, ssl.CERT_REQUIRED
        context.hostname_checks_common_name = False
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT
        if not self._roots:
            context.load_default_certs()
            return True
        try:
            context.load_verify_locations(cadata=self._roots.decode("ascii", "ignore"))
        except (ssl.SSLError, ValueError):
            return False
        return True

    def is_stricter_than_openssl(self, connection: TlsState) -> bool:
        """Return whether `verify` may refuse a server that OpenSSL has accepted."""
        return self._has_strict_roots or any(map(_is_weak_in_openssl, peer_chain(connection)))

    @cached_property
    def _has_strict_roots(self) -> bool:
        roots = [block.data for block in blocks(self._roots)]
        return any(_BASIC_CONSTRAINTS not in root or _is_weak_in_openssl(root) for root in roots)

    @cached_property
    def _pool(self) -> CertificatePool:
        from setpoint.meta.x509.chains import CertificatePool

        return CertificatePool.from_pem(self._roots) if self._roots else _system_roots()


def _is_weak_in_openssl(certificate: bytes) -> bool:
    return any(identifier in certificate for identifier in _WEAK_IN_OPENSSL)


class TlsClient:
    """Opens connections to servers that are verified in one way, with one client certificate."""

    def __init__(
        self,
        trust: Trust | None,
        certificate: Path | tuple[bytes, bytes] | None = None,
        *,
        openssl_first: bool = False,
        protocol: str = "http/1.1",
    ) -> None:
        """Any server is accepted if `trust` is None. `certificate` is the client's own: a file with certificate and
        key, or both as PEM. With `openssl_first` only servers that OpenSSL refuses are verified here, on a second
        connection; this saves programs that run for a moment the import of `cryptography`. `protocol` is offered to
        the server by ALPN.

        Raises ssl.SSLError or OSError if the certificate cannot be used."""
        self._trust = trust
        self._certificate = certificate
        self._protocol = protocol
        context = self._new_context()
        self._first: ssl.SSLContext | None = None
        """The context of first connections, in which OpenSSL verifies the server; None if there are none."""
        if trust is None or not openssl_first:
            self._context = context
        elif trust.let_openssl_verify(context):
            self._first = context

    @property
    def is_insecure(self) -> bool:
        return self._trust is None

    async def connect(
        self, factory: Callable[[], P], host: str, port: int, name: str = "", alternative: str = ""
    ) -> tuple[asyncio.Transport, P]:
        """Connect to `host`, whose certificate must be valid for `name`, by default the host, or for `alternative`.

        Raises ServerCertificateError, ssl.SSLError, OSError."""
        import asyncio

        loop = asyncio.get_running_loop()
        name = name or host

        async def dial(context: ssl.SSLContext) -> Dialled[tuple[asyncio.Transport, P]]:
            made = await loop.create_connection(factory, host, port, ssl=context, server_hostname=name)
            return made, made[0].get_extra_info("ssl_object"), made[0].abort

        return await self._establish(dial, name, alternative)

    async def connect_blocking(
        self, connect: Callable[[], socket.socket], handshake: Callable[[ssl.SSLSocket], None], name: str
    ) -> ssl.SSLSocket:
        """Do the same without an event loop, on a socket that `connect` returns; `handshake` calls `do_handshake`."""
        # As bytes, because Python loads the tables of IDNA for every text.
        server_name = name.encode("ascii") if name.isascii() else name

        async def dial(context: ssl.SSLContext) -> Dialled[ssl.SSLSocket]:
            with connect() as sock:  # which is detached when it is wrapped
                secured = context.wrap_socket(sock, server_hostname=server_name, do_handshake_on_connect=False)
            try:
                handshake(secured)
            except BaseException:
                secured.close()
                raise
            return secured, secured, secured.close

        return await self._establish(dial, name)

    async def _establish(
        self, dial: Callable[[ssl.SSLContext], Awaitable[Dialled[T]]], name: str, alternative: str = ""
    ) -> T:
        """Return a connection that `dial` makes with a context."""
        if self._first is not None:
            try:
                dialled = await dial(self._first)
            except ssl.SSLCertVerificationError:
                pass
            else:
                return self._verified(dialled, name, after_openssl=True)
        return self._verified(await dial(self._context), name, alternative)

    async def open(self, host: str, port: int, name: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Do the same as `connect`, with streams as of `asyncio.open_connection`."""
        import asyncio

        reader = asyncio.StreamReader()
        transport, protocol = await self.connect(lambda: asyncio.StreamReaderProtocol(reader), host, port, name)
        return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())

    def _verified(self, dialled: Dialled[T], name: str, alternative: str = "", *, after_openssl: bool = False) -> T:
        connection, state, abort = dialled
        if self._trust is None:
            return connection
        try:
            if not after_openssl or self._trust.is_stricter_than_openssl(state):
                self._trust.verify(state, name, alternative)
        except BaseException:
            abort()
            raise
        return connection

    @cached_property
    def _context(self) -> ssl.SSLContext:
        """The context in which OpenSSL verifies nothing. A program that runs for a moment needs no other than the
        first."""
        return self._new_context()

    def _new_context(self) -> ssl.SSLContext:
        """Return a context in which OpenSSL verifies nothing."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([self._protocol])
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        # The server that was verified after the first handshake must not become another one in a second.
        context.options |= ssl.OP_NO_RENEGOTIATION
        if isinstance(self._certificate, Path):
            context.load_cert_chain(self._certificate)
        elif self._certificate is not None:
            load_certificate(context, *self._certificate)
        return context


@cache
def _system_roots() -> CertificatePool:
    """Return the authorities that this machine trusts, as OpenSSL finds them (SSL_CERT_FILE and SSL_CERT_DIR count)."""
    from setpoint.meta.x509.chains import CertificatePool

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    bundles = [ssl.DER_cert_to_PEM_cert(der).encode() for der in context.get_ca_certs(binary_form=True)]
    return CertificatePool.from_pem(*bundles, *_files_of(ssl.get_default_verify_paths().capath))


def _files_of(directory: str | None) -> Iterator[bytes]:
    """Yield the files of a directory of authorities, which OpenSSL reads only when it looks for one of them."""
    if directory is None:
        return
    seen: set[Path] = set()
    for path in sorted(Path(directory).iterdir()):
        target = path.resolve()
        if target not in seen and target.is_file():
            seen.add(target)
            yield target.read_bytes()
