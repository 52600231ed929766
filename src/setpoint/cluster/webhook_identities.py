"""Who we are to admission webhooks, as the users of a kubeconfig say it: their names are hosts."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

from setpoint.apiserver.config_files import FileProblem
from setpoint.apiserver.webhook_identities import Identity, NoIdentity, WebhookIdentities
from setpoint.client.kubeconfig import Kubeconfig, KubeconfigError
from setpoint.meta.clock import Clock


def webhook_identities(clock: Clock, path: str) -> WebhookIdentities:
    """Raises FileProblem. What is wrong with single users is found when they are needed."""
    try:
        Path(path).stat()
        found = Kubeconfig.load([Path(path)], must_exist=True)
    except OSError as error:
        raise FileProblem(f"stat {path}: {(error.strerror or '').lower()}") from None
    except KubeconfigError as error:
        raise FileProblem(str(error)) from None
    current: Any = found.contexts.get(found.current_context, {}).get("user") or ""
    return WebhookIdentities(
        found.users, current if current in found.users else "", lambda name: _identity(found, name), clock
    )


def _identity(kubeconfig: Kubeconfig, name: str) -> Identity:
    try:
        who = kubeconfig.identity(name)
        token = who.token
        if not token and who.token_file is not None:
            token = who.token_file.read_text(encoding="utf-8").strip()
    except KubeconfigError as error:
        raise NoIdentity(str(error)) from None
    except (OSError, ValueError) as error:
        raise NoIdentity(f"cannot read the token file {who.token_file}: {error}") from None
    if who.exec is not None:
        raise NoIdentity("a program that gives out credentials (exec) is not run for a webhook")
    headers = [("authorization", f"Bearer {token}")] if token else []
    if who.username and not token:
        shown = b64encode(f"{who.username}:{who.password}".encode()).decode()
        headers.append(("authorization", f"Basic {shown}"))
    if who.impersonate is not None:
        headers += who.impersonate.headers()
    return Identity(tuple(headers), (who.certificate, who.key or b"") if who.certificate else None)
