"""The kubeconfigs in a data directory: one for the administrator, and one for each part that may run by itself."""

from __future__ import annotations

import base64
import json
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


def write_kubeconfigs(directory: Path, url: str, files: CertificateFiles | None, clock: Clock, token: str) -> Path:
    """Each is kept as it is while it fits: new keys at every start would be slow and would annoy whoever copied it. The
    result is the administrator's."""
    admin = directory / f"{_ADMIN}.kubeconfig"
    if files is None:
        write_kubeconfig(admin, server=url, ca=None, certificate=None, key=None, token=token)
        return admin
    ca, now = files.ca.read_bytes(), clock.now()
    for name, (user, groups) in _ISSUED.items():
        path = directory / f"{name}.kubeconfig"
        if not _fits(path, url, ca, now):
            certificate, key = issue_client_certificate(files, user, groups, now)
            write_kubeconfig(path, server=url, ca=ca, certificate=certificate, key=key, user=name)
    return admin


def _fits(path: Path, url: str, ca: bytes, now: datetime) -> bool:
    try:
        cluster = json.loads(path.read_bytes())["clusters"][0]["cluster"]
        same = cluster["server"] == url and base64.b64decode(cluster["certificate-authority-data"]) == ca
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return bool(same and now - written < LIFETIME - RENEW_BEFORE)
