"""Credentials of requests: headers and client certificates, renewed when they expire."""

from __future__ import annotations

import ssl
from base64 import b64encode

from setpoint.client.access import Access
from setpoint.client.exec_plugin import Credential, obtain
from setpoint.client.kubeconfig import KubeconfigError
from setpoint.client.tls import TlsClient, Trust
from setpoint.meta.clock import Clock

_READ_TOKEN_EVERY = 60.0


def basic(username: str, password: str) -> str:
    """Return the value of a basic Authorization header."""
    return "Basic " + b64encode(f"{username}:{password}".encode()).decode()


class Authentication:
    def __init__(self, access: Access, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._tls: TlsClient | None = None
        self._token = access.token
        self._read_again = float("-inf")
        self._credential: Credential | None = None
        self._basic = basic(access.username, access.password) if access.username else ""

    @property
    def renewable(self) -> bool:
        """Whether a 401 may mean that renewable credentials have expired."""
        return self._gives_out or self._access.token_file is not None

    @property
    def _gives_out(self) -> bool:
        return self._access.source is not None or self._access.exec is not None

    def forget(self) -> None:
        self._credential = None
        self._read_again = float("-inf")

    async def headers(self) -> list[tuple[str, str]]:
        access = self._access
        if access.token_file is not None and self._clock.monotonic() >= self._read_again:
            self._read_token()
        token = self._token
        if self._gives_out:
            token = (await self._obtained()).token or token
        if token:
            return [("authorization", f"Bearer {token}")]
        return [("authorization", self._basic)] if self._basic else []

    async def tls(self) -> TlsClient:
        """Return the TLS client for new connections, with the current client certificate."""
        certificate, key = self._access.certificate, self._access.key
        if self._gives_out:
            credential = await self._obtained()
            if credential.certificate:
                certificate, key = credential.certificate, credential.key
        if self._tls is None:
            self._tls = _tls_client(self._access, certificate, key, self._clock)
        return self._tls

    def _read_token(self) -> None:
        path = self._access.token_file
        assert path is not None
        self._read_again = self._clock.monotonic() + _READ_TOKEN_EVERY
        try:
            self._token = path.read_text(encoding="utf-8").strip() or self._token
        except OSError as error:
            if not self._token:
                raise KubeconfigError(f"cannot read the token file {path}: {error.strerror}") from None

    async def _obtained(self) -> Credential:
        now = self._clock.now()
        if self._credential is None or (self._credential.expires is not None and self._credential.expires <= now):
            before = self._credential
            self._credential = await self._obtain()
            if before is None or before.certificate != self._credential.certificate:
                self._tls = None
        return self._credential

    async def _obtain(self) -> Credential:
        if self._access.source is not None:
            return await self._access.source()
        assert self._access.exec is not None
        return await obtain(self._access.exec)


def _tls_client(access: Access, certificate: bytes | None, key: bytes | None, clock: Clock) -> TlsClient:
    own = (certificate, key) if certificate and key else None
    try:
        return TlsClient(None if access.insecure else Trust(clock, access.ca or b""), own, openssl_first=True)
    except (ssl.SSLError, OSError) as error:
        raise KubeconfigError(f"the client certificate and key of the user cannot be used: {error}") from None
    except ValueError as error:
        raise KubeconfigError(f"the certificate authority of the cluster is not a certificate: {error}") from None
