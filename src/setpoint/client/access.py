"""How to reach a server and who to be there: what a kubeconfig comes down to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.client.impersonation import Impersonation

if TYPE_CHECKING:
    from setpoint.client.exec_plugin import Credential


@dataclass(slots=True)
class ExecPlugin:
    """A program that gives out credentials."""

    api_version: str
    command: str
    args: list[str] = field(default_factory=list)
    env: Mapping[str, str] = field(default_factory=dict)
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    cluster: Mapping[str, object] | None = None
    """Told to the program if it wants to know."""


@dataclass(slots=True)
class Access:
    server: str
    ca: bytes | None = None
    """PEM; None: the system's authorities."""
    insecure: bool = False
    tls_server_name: str = ""
    certificate: bytes | None = None
    key: bytes | None = None
    token: str = ""
    token_file: Path | None = None
    """Read again now and then; goes before `token`."""
    username: str = ""
    password: str = ""
    exec: ExecPlugin | None = None
    source: Callable[[], Awaitable[Credential]] | None = None
    """Gives out credentials in this process; goes before all others."""
    impersonate: Impersonation | None = None
    namespace: str = "default"
    in_cluster: bool = False
    """As the service account of the Pod that this runs in."""
