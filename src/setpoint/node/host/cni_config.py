"""Writes the network configuration (CNI) of a node: each Pod has a routed pair of interfaces, with addresses of the
node's Pod CIDRs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path

from setpoint.meta.objects import Obj
from setpoint.node.host.directories import NodeDirectories

CNI_NETWORK = "setpoint"
_FILE = "10-setpoint.conflist"
_DEFAULT_ROUTES = {4: "0.0.0.0/0", 6: "::/0"}


class CniConfigError(ValueError):
    """The Pod CIDRs of the node are invalid."""


def address_directory(directories: NodeDirectories) -> Path:
    """Return the directory in which the host-local plugin records the addresses in use."""
    return directories.root / "addresses"


def cni_config(pod_cidrs: Sequence[str], addresses: Path, mtu: int | None = None) -> Obj:
    """Return the list of plugins for CNI. `pod_cidrs` has one or two families, `addresses` is a directory that records
    which addresses are in use. Raise CniConfigError."""
    try:
        networks = [ip_network(each) for each in pod_cidrs]
    except ValueError as error:
        raise CniConfigError(f"invalid Pod CIDR: {error}") from None
    versions = [network.version for network in networks]
    if not networks or len(versions) != len(set(versions)):
        raise CniConfigError(f"a node has one Pod CIDR of each address family, not {', '.join(pod_cidrs) or 'none'}")
    pair: Obj = {
        "type": "ptp",
        "ipam": {
            "type": "host-local",
            "dataDir": str(addresses),
            "ranges": [[{"subnet": str(network)}] for network in networks],
            "routes": [{"dst": _DEFAULT_ROUTES[version]} for version in versions],
        },
    }
    if mtu is not None:
        pair["mtu"] = mtu
    # Host ports are rules of the node's own table: the portmap plugin would leave rules of iptables behind.
    return {"cniVersion": "1.0.0", "name": CNI_NETWORK, "plugins": [pair]}


def write_cni_config(directories: NodeDirectories, pod_cidrs: Sequence[str], mtu: int | None = None) -> bool:
    """Write the configuration where containerd looks for it. Return whether it changed. Blocks. Raise CniConfigError or
    OSError."""
    text = json.dumps(cni_config(pod_cidrs, address_directory(directories), mtu), indent=2) + "\n"
    path = directories.cni / _FILE
    if path.exists() and path.read_text() == text:
        return False
    directories.cni.mkdir(parents=True, exist_ok=True)
    # Containerd watches the directory: it must never read half of a file. It ignores files with other suffixes.
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return True


def remove_cni_config(directories: NodeDirectories) -> None:
    """Remove the configuration; files of others remain. Blocks."""
    (directories.cni / _FILE).unlink(missing_ok=True)
