"""The flags of a real node, with the kubelet's names where it has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag, Values, about, array, duration, number, text, texts

if TYPE_CHECKING:
    from setpoint.node.host.directories import NodeDirectories
    from setpoint.node.host.node_config import NodeConfig

DIRECTORY_FLAGS: tuple[Flag, ...] = about(
    "Directories",
    text(
        "root-dir",
        default="/var/lib/setpoint/node",
        help="Directory of Pods, volumes, images and certificates.",
        common=True,
    ),
    text("logs-dir", default="/var/log/pods", help="Directory of the logs of containers."),
    text("run-dir", default="/run/setpoint/node", help="Directory of sockets and locks."),
)
NODE_NAME = text("node-name", help="Name of the node; by default the host name.", alias=("hostname-override",))
NODE_FLAGS: tuple[Flag, ...] = (
    *DIRECTORY_FLAGS,
    *about(
        "Node",
        text(
            "node-ip",
            help="Address of the node, or one of each family; by default that of the default route.",
            common=True,
        ),
        texts("node-labels", help="Labels of the Node, key=value, separated by commas.", common=True),
        array("register-with-taints", help="A taint of a new Node, key=value:Effect; repeat for several."),
        number("max-pods", default=110, least=1, help="Maximum number of Pods."),
        number("pod-max-pids", default=-1, help="Maximum number of processes of a Pod; -1 is no limit."),
        texts("kube-reserved", help="Resources that Pods do not get: cpu=100m,memory=256Mi."),
        texts("system-reserved", help="The same for the processes of the system."),
        text("pod-manifest-path", help="Directory of the manifests of static Pods, or one such file."),
        duration("shutdown-grace-period", help="How long a shutdown of the machine waits for Pods to end."),
        duration("shutdown-grace-period-critical-pods", help="The part of it that is left for critical Pods."),
    ),
    *about(
        "Container runtime",
        text(
            "container-runtime-endpoint",
            help="Socket of an existing runtime; by default containerd is started.",
            common=True,
        ),
        text("containerd", default="containerd", help="The containerd program to start."),
        text("pod-infra-container-image", help="Image of sandboxes; by default one that is made on this machine."),
        array(
            "registry-mirror", help="HOST=URL of a mirror for a registry, * for all; repeat for several.", common=True
        ),
        text("cgroup-root", default="/setpoint", help="Cgroup of all Pods of this node; used by nothing else."),
    ),
    *about(
        "Network",
        texts("cluster-dns", help="Addresses of the DNS servers in Pods; by default those of the Service kube-dns."),
        text("cluster-domain", default="cluster.local", help="Domain of the names of Services."),
        text("pod-cidr", help="Addresses of Pods; by default those that the cluster assigns to the node."),
        text(
            "route-mode",
            default="auto",
            help="Way to the Pods of other nodes: auto, host-gw (routes) or vxlan.",
        ),
        text("cni-conf-dir", help="Directory of an existing CNI configuration; by default one is made."),
        text("cni-bin-dir", help="Directory of the CNI plugins; by default the usual ones."),
        text("kubelet-address", default="0.0.0.0", help="Address that the kubelet API listens on.", alias=("address",)),
        number("kubelet-port", default=10250, least=1, most=65535, help="Port of the kubelet API.", alias=("port",)),
        number("healthz-port", default=10248, least=0, most=65535, help="Port of /healthz on loopback; 0 disables it."),
    ),
    *about(
        "Eviction and garbage collection",
        texts("eviction-hard", help="Thresholds such as memory.available<100Mi, at which Pods end at once."),
        texts("eviction-soft", help="Thresholds at which Pods end gracefully, after a time."),
        texts("eviction-soft-grace-period", help="How long each may be exceeded: memory.available=1m30s."),
        duration("eviction-pressure-transition-period", default=300.0, help="How long a pressure condition stays."),
        number("eviction-max-pod-grace-period", help="Seconds that Pods have to end at a soft threshold."),
        number("image-gc-high-threshold", default=85, help="Percent of disk usage at which unused images are removed."),
        number("image-gc-low-threshold", default=80, help="Percent down to which they are removed."),
        duration("minimum-image-ttl-duration", default=120.0, help="How old an unused image must be."),
        text("container-log-max-size", default="10Mi", help="Size at which the log of a container is rotated."),
        number("container-log-max-files", default=5, least=2, help="Log files that are kept for a container."),
    ),
)
NODE_FLAGS_OF_UP: tuple[Flag, ...] = tuple(
    flag._replace(group=f"Real node: {flag.group.lower()}" if flag.group else "Real node", alias=(), common=False)
    for flag in (NODE_NAME, *NODE_FLAGS)
)
"""The same flags for `setpoint up`, which has an --address and a --port of its own."""
_RENAMED = {
    "kubelet_address": "address",
    "kubelet_port": "port",
    "pod_max_pids": "pod_pids_limit",
    "registry_mirror": "registry_mirrors",
}
_DIRECTORIES = {"root_dir": "root", "logs_dir": "logs", "run_dir": "run"}


def directories_of(flags: Values) -> NodeDirectories:
    """Return the directories of the flags, or the default ones."""
    from setpoint.node.host.directories import NodeDirectories

    return NodeDirectories(*(Path(getattr(flags, key)).absolute() for key in _DIRECTORIES))


def node_config(flags: Values, name: str, stored: NodeConfig | None = None) -> NodeConfig:
    """Return the options of a node: those of the flags that were given, otherwise those that are `stored`, otherwise
    the defaults. Raise Failed."""
    from setpoint.node.host.node_config import NodeConfig

    named = {field: getattr(directories_of(flags), field) for key, field in _DIRECTORIES.items() if _given(flags, key)}
    known = stored.directories if stored is not None else directories_of(flags)
    found: dict[str, Any] = {"directories": replace(known, **named)}
    for flag in NODE_FLAGS:
        if flag.key in _DIRECTORIES or not flags.given(flag.name):
            continue
        read = _READERS.get(flag.name, _as_is)
        found[_RENAMED.get(flag.key, flag.key)] = read(getattr(flags, flag.key), f"--{flag.name}")
    return replace(stored or NodeConfig(name), name=name, **found)


def _given(flags: Values, key: str) -> bool:
    return flags.given(key.replace("_", "-"))


def _as_is(value: Any, _: str) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _path(value: str, _: str) -> str:
    """Return an absolute path: the agent may run in another directory."""
    return str(Path(value).absolute()) if value else ""


def _pairs(entries: list[str], flag: str, separator: str = "=") -> Mapping[str, str]:
    found: dict[str, str] = {}
    for entry in entries:
        key, middle, value = entry.partition(separator)
        if not key or not middle:
            raise Failed(f"{flag} {entry}: expected key{separator}value")
        found[key.strip()] = value.strip()
    return found


def _labels(entries: list[str], flag: str) -> Mapping[str, str]:
    return {key: value for entry in entries for key, _, value in [entry.partition("=")]}


def _thresholds(entries: list[str], flag: str) -> Mapping[str, str]:
    return _pairs(entries, flag, "<")


def _taints(entries: list[str], flag: str) -> tuple[Mapping[str, str], ...]:
    found: list[Mapping[str, str]] = []
    for entry in entries:
        before, colon, effect = entry.rpartition(":")
        if not colon or not before:
            raise Failed(f"{flag} {entry}: expected key=value:Effect")
        key, _, value = before.partition("=")
        found.append({"key": key, "value": value, "effect": effect} if value else {"key": key, "effect": effect})
    return tuple(found)


_READERS: Mapping[str, Callable[[Any, str], Any]] = {
    "node-labels": _labels,
    "pod-manifest-path": _path,
    "register-with-taints": _taints,
    "kube-reserved": _pairs,
    "system-reserved": _pairs,
    "eviction-hard": _thresholds,
    "eviction-soft": _thresholds,
    "eviction-soft-grace-period": _pairs,
}
