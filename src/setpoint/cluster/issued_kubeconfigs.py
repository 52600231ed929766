"""The kubeconfigs in a data directory: one for the administrator, and one for each part that may run by itself."""

from __future__ import annotations

import base64
import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from setpoint.apiserver.http.certificates import LIFETIME, RENEW_BEFORE, CertificateFiles, issue_client_certificate
from setpoint.cluster.kubeconfig_file import write_kubeconfig
from setpoint.kinds.bootstrap.own_identities import FLEET
from setpoint.meta.clock import Clock

_ADMIN = "admin"
_ISSUED = {
    _ADMIN: ("kubernetes-admin", ("system:masters",)),
    "controller-manager": ("system:kube-controller-manager", ()),
    "scheduler": ("system:kube-scheduler", ()),
    "node-fleet": (FLEET, ()),
}
"""Who each of them is, and in which groups."""
_FORMER_NAME = "setpoint"
"""What every cluster was called once."""
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")
"""What would have to be quoted on a command line."""


def write_kubeconfigs(
    directory: Path, name: str, url: str, files: CertificateFiles | None, clock: Clock, token: str
) -> Path:
    """Write the files, in which the cluster has this name, and return the administrator's.

    A file that is still valid is not rewritten: new keys at every start would be slow and would break copies of it."""
    admin = directory / f"{_ADMIN}.kubeconfig"
    name = name or cluster_name(directory)
    if files is None:
        write_kubeconfig(admin, name=name, server=url, ca=None, certificate=None, key=None, token=token, user=name)
        return admin
    ca, now = files.ca.read_bytes(), clock.now()
    for part, (user, groups) in _ISSUED.items():
        path = directory / f"{part}.kubeconfig"
        if not _fits(path, name, url, ca, now):
            certificate, key = issue_client_certificate(files, user, groups, now)
            # Users are named after the cluster too: several such files may be read as one.
            called = name if part == _ADMIN else f"{name}-{part}"
            write_kubeconfig(path, name=name, server=url, ca=ca, certificate=certificate, key=key, user=called)
    return admin


def cluster_name(directory: Path) -> str:
    """Return the name that the cluster in a data directory has, or would get: that of its directory."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        known = json.loads((directory / f"{_ADMIN}.kubeconfig").read_bytes())["current-context"]
        if known != _FORMER_NAME:
            return str(known)
    whole = directory.resolve()
    folder = whole.parent.name if whole.name.startswith(".") else whole.name
    return _UNUSUAL.sub("-", folder).strip("-.") or _FORMER_NAME


def _fits(path: Path, name: str, url: str, ca: bytes, now: datetime) -> bool:
    try:
        found = json.loads(path.read_bytes())
        cluster = found["clusters"][0]["cluster"]
        same = cluster["server"] == url and base64.b64decode(cluster["certificate-authority-data"]) == ca
        same = same and found["current-context"] == name
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return bool(same and now - written < LIFETIME - RENEW_BEFORE)
