"""How to connect to a server and with which identity: the resolved content of a kubeconfig."""

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
    """A credential plugin: a program that returns credentials."""

    api_version: str
    command: str
    args: list[str] = field(default_factory=list)
    env: Mapping[str, str] = field(default_factory=dict)
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    cluster: Mapping[str, object] | None = None
    """The cluster information that is passed to the program on request; None if it is not requested."""


@dataclass(slots=True)
class Access:
    server: str
    ca: bytes | None = None
    """The trusted certificate authorities, as PEM; None means those of the system."""
    insecure: bool = False
    tls_server_name: str = ""
    certificate: bytes | None = None
    key: bytes | None = None
    token: str = ""
    token_file: Path | None = None
    """A file with a bearer token, which is read again at intervals and takes precedence over `token`; None if there is
    none."""
    username: str = ""
    password: str = ""
    exec: ExecPlugin | None = None
    source: Callable[[], Awaitable[Credential]] | None = None
    """Returns credentials from within this process, and takes precedence over all others; None if there is none."""
    impersonate: Impersonation | None = None
    namespace: str = "default"
    in_cluster: bool = False
    """Whether the identity is the service account of the Pod that this process runs in."""
