"""The kubeconfigs in a data directory: one for the administrator and one for each component that may run separately."""

from __future__ import annotations

import base64
import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from setpoint.cluster.certificates import (
    LIFETIME,
    RENEW_BEFORE,
    CertificateFiles,
    issue_client_certificate,
)
from setpoint.cluster.private_files import write_private
from setpoint.kinds.bootstrap.cluster_roles import FLEET
from setpoint.meta.clock import Clock

_ADMIN = "admin"
ADMIN_KUBECONFIG = f"{_ADMIN}.kubeconfig"
"""The name of the administrator's file in a data directory."""
_USERS = {
    _ADMIN: ("kubernetes-admin", ("system:masters",)),
    "controller-manager": ("system:kube-controller-manager", ()),
    "scheduler": ("system:kube-scheduler", ()),
    "node-fleet": (FLEET, ()),
}
"""User and groups of each kubeconfig, by the name of the file."""
_FORMER_NAME = "setpoint"
"""The name that all clusters had in former versions; it is replaced."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
"""Characters that would have to be quoted on a command line."""


def _write_kubeconfig(
    path: Path,
    *,
    name: str,
    server: str,
    ca: bytes | None,
    certificate: bytes | None,
    key: bytes | None,
    token: str = "",
    user: str,
) -> None:
    """Write a file with one context, called `name`, that only its owner can read.

    The format is JSON, which is valid YAML, so that a start needs no YAML library."""
    cluster: dict[str, str] = {"server": server}
    if ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    credentials: dict[str, str] = {}
    if certificate is not None and key is not None:
        credentials["client-certificate-data"] = base64.b64encode(certificate).decode()
        credentials["client-key-data"] = base64.b64encode(key).decode()
    if token:
        credentials["token"] = token
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
        "preferences": {},
    }
    write_private(path, json.dumps(config, indent=2).encode() + b"\n")


def write_kubeconfigs(
    directory: Path, name: str, url: str, files: CertificateFiles | None, clock: Clock, token: str
) -> Path:
    """Write the files, in which the cluster has this name, and return that of the administrator.

    A file that is still valid is not rewritten: new keys at every start would be slow and would invalidate copies."""
    admin = directory / ADMIN_KUBECONFIG
    name = name or cluster_name(directory)
    if files is None:
        _write_kubeconfig(admin, name=name, server=url, ca=None, certificate=None, key=None, token=token, user=name)
        return admin
    ca, now = files.ca.read_bytes(), clock.now()
    for component, (user, groups) in _USERS.items():
        path = directory / f"{component}.kubeconfig"
        if not _is_current(path, name, url, ca, now):
            certificate, key = issue_client_certificate(files, user, groups, now)
            # User names contain the cluster's, so that several files can be merged.
            user_name = name if component == _ADMIN else f"{name}-{component}"
            _write_kubeconfig(path, name=name, server=url, ca=ca, certificate=certificate, key=key, user=user_name)
    return admin


def cluster_name(directory: Path) -> str:
    """Return the name of the cluster in a data directory; by default that of the directory."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        known = json.loads((directory / ADMIN_KUBECONFIG).read_bytes())["current-context"]
        if known != _FORMER_NAME:
            return str(known)
    whole = directory.resolve()
    folder = whole.parent.name if whole.name.startswith(".") else whole.name
    return _UNSAFE.sub("-", folder).strip("-.") or _FORMER_NAME


def _is_current(path: Path, name: str, url: str, ca: bytes, now: datetime) -> bool:
    try:
        found = json.loads(path.read_bytes())
        cluster = found["clusters"][0]["cluster"]
        same = cluster["server"] == url and base64.b64decode(cluster["certificate-authority-data"]) == ca
        same = same and found["current-context"] == name
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return bool(same and now - written < LIFETIME - RENEW_BEFORE)
