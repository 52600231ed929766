"""Credentials of requests: headers, client certificates and credential plugins (client.authentication.k8s.io)."""

from __future__ import annotations

import os
import ssl
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from setpoint.client.kubeconfig import Access, ExecPlugin, KubeconfigError
from setpoint.meta.clock import Clock
from setpoint.meta.json_codec import decode_json, encode_json
from setpoint.wire.tls import TlsClient, Trust

GROUP = "client.authentication.k8s.io"

RunProgram = Callable[[Sequence[str], Mapping[str, str], bool], Awaitable[tuple[int, bytes]]]
"""Runs a program with an environment, which may read from the terminal if the last argument is true, and returns its
exit code and what it printed. It raises OSError if there is no such program."""


class Credential:
    def __init__(
        self, token: str = "", certificate: bytes = b"", key: bytes = b"", expires: datetime | None = None
    ) -> None:
        self.token = token
        self.certificate = certificate
        self.key = key
        self.expires = expires
        """Expiry of the credential; None means that it is valid for the life of this process or until the server
        rejects it."""


async def run_program(command: Sequence[str], environment: Mapping[str, str], interactive: bool) -> tuple[int, bytes]:
    """Run a program on the event loop: a RunProgram."""
    import asyncio  # most commands of the command line do without an event loop
    from asyncio.subprocess import DEVNULL, PIPE

    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=None if interactive else DEVNULL, stdout=PIPE
    )
    try:
        output, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, output


async def run_exec_plugin(plugin: ExecPlugin, run: RunProgram = run_program) -> Credential:
    """Run the program and return its credential. Raise KubeconfigError."""
    interactive = plugin.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not interactive:
        raise KubeconfigError(f"the credential plugin {plugin.command!r} needs a terminal, and there is none")
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    exec_info = encode_json({"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}).decode()
    environment = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": exec_info}
    try:
        code, output = await run((plugin.command, *plugin.args), environment, interactive)
    except OSError as error:
        hint = f" ({plugin.install_hint.strip()})" if plugin.install_hint else ""
        raise KubeconfigError(f"cannot run the credential plugin {plugin.command!r}: {error.strerror}{hint}") from None
    if code:
        raise KubeconfigError(f"the credential plugin {plugin.command!r} failed with exit code {code}")
    return _read_exec_credential(plugin, output)


def _read_exec_credential(plugin: ExecPlugin, output: bytes) -> Credential:
    def wrong(why: str) -> KubeconfigError:
        return KubeconfigError(f"the credential plugin {plugin.command!r} {why}")

    try:
        answer = decode_json(output)
        status = answer["status"]
        token = status.get("token") or ""
        certificate = (status.get("clientCertificateData") or "").encode()
        key = (status.get("clientKeyData") or "").encode()
        until = status.get("expirationTimestamp")
        expires = datetime.fromisoformat(until.replace("Z", "+00:00")) if until else None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise wrong("did not print an ExecCredential with a status") from None
    if answer.get("kind") != "ExecCredential" or answer.get("apiVersion") != plugin.api_version:
        raise wrong(f"returned the apiVersion {answer.get('apiVersion')!r} instead of {plugin.api_version!r}")
    if bool(certificate) != bool(key):
        raise wrong("gave a certificate without a key, or a key without a certificate")
    if not token and not certificate:
        raise wrong("gave neither a token nor a certificate")
    if expires is not None and expires.tzinfo is None:
        raise wrong("gave an expiration time without a time zone")
    return Credential(token, certificate, key, expires)


_READ_TOKEN_EVERY = 60.0


def basic(username: str, password: str) -> str:
    """Return the value of a basic Authorization header."""
    return "Basic " + b64encode(f"{username}:{password}".encode()).decode()


class Authentication:
    def __init__(self, access: Access, clock: Clock, run: RunProgram = run_program) -> None:
        """Credential plugins are run by `run`."""
        self._access = access
        self._clock = clock
        self._run = run
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
        return await run_exec_plugin(self._access.exec, self._run)


def _tls_client(access: Access, certificate: bytes | None, key: bytes | None, clock: Clock) -> TlsClient:
    own = (certificate, key) if certificate and key else None
    try:
        return TlsClient(None if access.insecure else Trust(clock, access.ca or b""), own, openssl_first=True)
    except (ssl.SSLError, OSError) as error:
        raise KubeconfigError(f"the client certificate and key of the user cannot be used: {error}") from None
    except ValueError as error:
        raise KubeconfigError(f"the certificate authority of the cluster is not a certificate: {error}") from None
