"""Writes kubeconfigs: of the cluster's administrator, and of those parts that may run as processes of their own."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from setpoint.cluster.private_files import write_private


def write_kubeconfig(
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
    """Write a file with one context, called `name`, which is readable by its owner alone.

    JSON is YAML, so no YAML library is needed to start a server."""
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
