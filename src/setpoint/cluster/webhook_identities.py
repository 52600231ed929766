"""Who we are to admission webhooks, as the users of a kubeconfig say it: their names are hosts."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

from setpoint.apiserver.config_files import FileProblem
from setpoint.apiserver.webhook_endpoint import token_in
from setpoint.apiserver.webhook_identities import Identity, NoIdentity, WebhookIdentities
from setpoint.client.authentication import basic
from setpoint.client.impersonation import Impersonation
from setpoint.client.kubeconfig import Kubeconfig, KubeconfigError
from setpoint.cluster.config import unopened
from setpoint.meta.clock import Clock


def webhook_identities(clock: Clock, path: str) -> WebhookIdentities:
    """Raises FileProblem. What is wrong with single users is found when they are needed, and told in upstream's
    words."""
    try:
        Path(path).stat()
        found = Kubeconfig.load([Path(path)], must_exist=True)
    except OSError as error:
        raise FileProblem(f"stat {path}: {(error.strerror or '').lower()}") from None
    except KubeconfigError as error:
        raise FileProblem(str(error)) from None
    current: Any = found.contexts.get(found.current_context, {}).get("user") or ""
    users = found.users
    return WebhookIdentities(users, current if current in users else "", lambda name: _identity(users[name]), clock)


def _identity(user: dict[str, Any]) -> Identity:
    try:
        token = user.get("token") or ""
        if not token and user.get("tokenFile"):
            token = token_in(Path(user["tokenFile"]))
        certificate, key = (_content(user, f"client-{kind}") for kind in ("certificate", "key"))
    except OSError as error:
        raise NoIdentity(unopened(error)) from None
    except ValueError as error:
        raise NoIdentity(str(error)) from None
    name, password = user.get("username") or "", user.get("password") or ""
    if user.get("exec"):
        raise NoIdentity("a program that gives out credentials (exec) is not run for a webhook")
    if user.get("auth-provider"):
        raise NoIdentity("auth provider not supported")
    if token and (name or password):
        raise NoIdentity("username/password or bearer token may be set, but not both")
    headers = []
    if token:
        headers.append(("authorization", f"Bearer {token}"))
    elif name or password:
        headers.append(("authorization", basic(name, password)))
    return Identity((*headers, *_acting(user)), _pair(certificate, key))


def _content(user: dict[str, Any], key: str) -> bytes:
    """Inline data goes before a file. Raises OSError, ValueError."""
    if user.get(f"{key}-data"):
        return b64decode(user[f"{key}-data"], validate=True)
    return Path(user[key]).read_bytes() if user.get(key) else b""


def _pair(certificate: bytes, key: bytes) -> tuple[bytes, bytes] | None:
    """One without the other is none at all."""
    if not (certificate and key):
        return None
    for what, data in (("certificate", certificate), ("key", key)):
        if b"-----BEGIN " not in data:
            raise NoIdentity(f"tls: failed to find any PEM data in {what} input")
    return certificate, key


def _acting(user: dict[str, Any]) -> list[tuple[str, str]]:
    if not user.get("as"):
        return []
    extra = {key: tuple(values) for key, values in (user.get("as-user-extra") or {}).items()}
    return Impersonation(user["as"], user.get("as-uid") or "", tuple(user.get("as-groups") or ()), extra).headers()
