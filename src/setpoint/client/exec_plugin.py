"""Run credential plugins (client.authentication.k8s.io)."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from setpoint.client.access import ExecPlugin
from setpoint.client.kubeconfig import KubeconfigError

GROUP = "client.authentication.k8s.io"


@dataclass(frozen=True, slots=True)
class Credential:
    token: str = ""
    certificate: bytes = b""
    key: bytes = b""
    expires: datetime | None = None
    """Expiry of the credential; None means that it is valid for the life of this process or until the server rejects
    it."""


async def obtain(plugin: ExecPlugin) -> Credential:
    """Run the program and return its credential. Raise KubeconfigError."""
    interactive = plugin.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not interactive:
        raise KubeconfigError(f"the credential plugin {plugin.command!r} needs a terminal, and there is none")
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    exec_info = orjson.dumps({"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}).decode()
    environment = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": exec_info}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command, *plugin.args, env=environment, stdin=None if interactive else DEVNULL, stdout=PIPE
        )
    except OSError as error:
        hint = f" ({plugin.install_hint.strip()})" if plugin.install_hint else ""
        raise KubeconfigError(f"cannot run the credential plugin {plugin.command!r}: {error.strerror}{hint}") from None
    try:
        output, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise KubeconfigError(f"the credential plugin {plugin.command!r} failed with exit code {process.returncode}")
    return _read(plugin, output)


def _read(plugin: ExecPlugin, output: bytes) -> Credential:
    def wrong(why: str) -> KubeconfigError:
        return KubeconfigError(f"the credential plugin {plugin.command!r} {why}")

    try:
        answer = orjson.loads(output)
        status = answer["status"]
        token = status.get("token") or ""
        certificate = (status.get("clientCertificateData") or "").encode()
        key = (status.get("clientKeyData") or "").encode()
        until = status.get("expirationTimestamp")
        expires = datetime.fromisoformat(until.replace("Z", "+00:00")) if until else None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise wrong("did not print an ExecCredential with a status") from None
    if answer.get("kind") != "ExecCredential" or answer.get("apiVersion") != plugin.api_version:
        raise wrong(f"answered in version {answer.get('apiVersion')!r} where {plugin.api_version!r} was asked for")
    if bool(certificate) != bool(key):
        raise wrong("gave a certificate without a key, or a key without a certificate")
    if not token and not certificate:
        raise wrong("gave neither a token nor a certificate")
    if expires is not None and expires.tzinfo is None:
        raise wrong("gave an expiration time without a time zone")
    return Credential(token, certificate, key, expires)
