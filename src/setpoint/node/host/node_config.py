"""The options of a real node, with the names, defaults and meanings of the kubelet's.

`setpoint node join` stores them as JSON, and `setpoint node run` reads them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from setpoint.meta.names import dns1123_subdomain
from setpoint.meta.quantity import QuantityError, parse
from setpoint.node.host.cgroups import DEFAULT_CGROUP_ROOT
from setpoint.node.host.containerd_config import ContainerdConfigError, parse_mirrors
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.eviction_signals import DEFAULT_HARD, ThresholdError, parse_thresholds

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
_MAX_MAX_PODS = 100_000
_MAX_PORT = 65535
_ROUTE_MODES = ("auto", "host-gw", "vxlan")


class NodeConfigError(ValueError):
    """An option is invalid. The message is one sentence, which names the flag."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    name: str
    directories: NodeDirectories = field(default_factory=NodeDirectories)
    node_ip: str = ""
    """The address of the node, or one of each family, separated by a comma; empty means that of the default route."""
    cgroup_root: str = DEFAULT_CGROUP_ROOT
    """The cgroup below which the cgroups of Pods are made, and nothing else: it is removed when the node leaves."""
    container_runtime_endpoint: str = ""
    """The socket of an existing container runtime; empty means that the agent runs containerd itself."""
    pod_infra_container_image: str = ""
    """The image of sandboxes; empty means one that the agent makes."""
    registry_mirrors: tuple[str, ...] = ()
    """HOST=URL of each mirror of a registry; `*` stands for all registries."""
    cluster_dns: tuple[str, ...] = ()
    """The addresses of the DNS servers in Pods; empty means those of the Service `kube-dns`."""
    cluster_domain: str = "cluster.local"
    max_pods: int = 110
    pod_pids_limit: int = -1
    """The maximum number of processes of a Pod; -1 means no limit."""
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    eviction_hard: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_HARD))
    eviction_soft: Mapping[str, str] = field(default_factory=dict)
    eviction_soft_grace_period: Mapping[str, str] = field(default_factory=dict)
    eviction_pressure_transition_period: float = 300.0
    eviction_max_pod_grace_period: int = 0
    image_gc_high_threshold: int = 85
    image_gc_low_threshold: int = 80
    minimum_image_ttl_duration: float = 120.0
    container_log_max_size: str = "10Mi"
    container_log_max_files: int = 5
    node_labels: Mapping[str, str] = field(default_factory=dict)
    register_with_taints: tuple[Mapping[str, str], ...] = ()
    address: str = "0.0.0.0"
    """The address at which the kubelet API listens."""
    port: int = 10250
    healthz_port: int = 10248
    """The port of the health check on loopback; 0 disables it."""
    pod_manifest_path: str = ""
    """The directory or file of static Pods; empty means none."""
    cni_bin_dir: str = ""
    """The directory of the CNI plugins; empty means the usual ones of distributions."""
    cni_conf_dir: str = ""
    """The directory of an existing CNI configuration; empty means that the agent writes one."""
    route_mode: str = "auto"
    """The way to the Pods of other nodes: routes (`host-gw`), VXLAN (`vxlan`), or routes to nodes in the same network
    and VXLAN to others (`auto`)."""
    pod_cidr: str = ""
    """The range of the addresses of Pods; empty means that of the Node object."""
    containerd: str = "containerd"
    """The program that the agent runs as the container runtime."""
    shutdown_grace_period: float = 0.0
    """Seconds that Pods have to end when the machine shuts down; 0 means that a shutdown is not delayed."""
    shutdown_grace_period_critical_pods: float = 0.0

    def check(self) -> None:
        """Raises NodeConfigError."""
        if problems := dns1123_subdomain(self.name):
            raise NodeConfigError(f"--node-name {self.name!r}: {problems[0]}")
        for text in self.node_ips:
            _check_node_ip(text)
        if len({ip_address(text).version for text in self.node_ips}) != len(self.node_ips) or len(self.node_ips) > 2:
            raise NodeConfigError("--node-ip: one address, or one IPv4 and one IPv6 address")
        for text in self.cluster_dns:
            _check_address(text, "--cluster-dns")
        for name, amounts in (("kube", self.kube_reserved), ("system", self.system_reserved)):
            _check_reserved(amounts, f"--{name}-reserved")
        for flag, statements in (("hard", self.eviction_hard), ("soft", self.eviction_soft)):
            try:
                parse_thresholds(statements)
            except ThresholdError as error:
                raise NodeConfigError(f"--eviction-{flag}: {error}") from None
        for taint in self.register_with_taints:
            if not taint.get("key") or taint.get("effect") not in _EFFECTS:
                raise NodeConfigError(f"--register-with-taints: the effect must be one of {', '.join(_EFFECTS)}")
        try:
            parse_mirrors(self.registry_mirrors)
        except ContainerdConfigError as error:
            raise NodeConfigError(f"--registry-mirror: {error}") from None
        low, high = self.image_gc_low_threshold, self.image_gc_high_threshold
        if not 0 <= low < high <= 100:
            raise NodeConfigError(
                "--image-gc-low-threshold must be less than --image-gc-high-threshold, and both between 0 and 100"
            )
        if not 0 < self.max_pods <= _MAX_MAX_PODS:
            raise NodeConfigError(f"--max-pods must be between 1 and {_MAX_MAX_PODS}")
        if not 0 < self.port <= _MAX_PORT or not 0 <= self.healthz_port <= _MAX_PORT or self.port == self.healthz_port:
            raise NodeConfigError("--kubelet-port and --healthz-port must be two different ports")
        if self.container_log_max_files < 2:
            raise NodeConfigError("--container-log-max-files must be at least 2")
        if self.shutdown_grace_period_critical_pods > self.shutdown_grace_period:
            raise NodeConfigError(
                "--shutdown-grace-period-critical-pods must not be longer than --shutdown-grace-period"
            )
        if self.route_mode not in _ROUTE_MODES:
            raise NodeConfigError(f"--route-mode must be one of {', '.join(_ROUTE_MODES)}")
        if self.pod_cidr:
            _check_ranges(self.pod_cidr)
        _check_paths(self.directories)

    @property
    def node_ips(self) -> tuple[str, ...]:
        """Return the given addresses of the node; empty means that of the default route."""
        return tuple(part.strip() for part in self.node_ip.split(",") if part.strip())

    @property
    def pod_cidrs(self) -> list[str]:
        """Return the given ranges of the addresses of Pods, which are used if the Node object has none."""
        return [part.strip() for part in self.pod_cidr.split(",") if part.strip()]

    def as_json(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        found: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            default = each.default_factory() if each.default_factory is not MISSING else each.default
            if value == default:
                continue
            if isinstance(value, NodeDirectories):
                value = {name: str(getattr(value, name)) for name in ("root", "logs", "run")}
            elif isinstance(value, tuple):
                value = [dict(one) if isinstance(one, Mapping) else one for one in value]
            elif isinstance(value, Mapping):
                value = dict(value)
            found[each.name] = value
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> NodeConfig:
        """Return the options of `as_json`; unknown ones, of a later version, are ignored. Raises NodeConfigError."""
        try:
            known = {each.name for each in fields(cls)}
            values = {name: value for name, value in found.items() if name in known}
            for name, value in values.items():
                if name == "directories":
                    values[name] = NodeDirectories(**{key: Path(path) for key, path in value.items()})
                elif isinstance(value, list):
                    values[name] = tuple(value)
            return cls(**values)
        except (TypeError, AttributeError) as error:
            raise NodeConfigError(f"the stored options of the node are damaged: {error}") from None


def _check_address(text: str, flag: str) -> None:
    try:
        ip_address(text)
    except ValueError:
        raise NodeConfigError(f"{flag} {text}: must be an IP address") from None


def _check_node_ip(text: str) -> None:
    _check_address(text, "--node-ip")
    address = ip_address(text)
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        raise NodeConfigError(f"--node-ip {text}: must be an address at which the API server reaches this machine")


def _check_reserved(amounts: Mapping[str, str], flag: str) -> None:
    for name, amount in amounts.items():
        if name not in _RESERVABLE:
            raise NodeConfigError(f"{flag} {name}: must be one of {', '.join(_RESERVABLE)}")
        try:
            parse(amount)
        except QuantityError:
            raise NodeConfigError(f"{flag} {name}={amount}: is not a quantity such as 500m or 1Gi") from None


def _check_ranges(text: str) -> None:
    for part in text.split(","):
        try:
            ip_network(part.strip())
        except ValueError as error:
            raise NodeConfigError(f"--pod-cidr {part.strip()}: {error}") from None


def _check_paths(directories: NodeDirectories) -> None:
    for flag, path in (("root", directories.root), ("logs", directories.logs), ("run", directories.run)):
        if not path.is_absolute() or path == Path("/"):
            raise NodeConfigError(f"--{flag}-dir {path}: must be an absolute path, and not /")
