"""What a server is told: flags with upstream's names and meanings, checked before anything starts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path

from setpoint.cluster.access_config import AccessConfig
from setpoint.cluster.audit_config import AuditConfig
from setpoint.meta.goformat import aggregate

NOWHERE = Path("/dev/null")
"""The data directory of a server that keeps nothing on disk."""


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class ConfigError(Exception):
    """A setting that cannot work; the message is one sentence for the person who typed it."""


@dataclass(slots=True, eq=False, repr=False, match_args=False)
class ApiServerConfig:
    data_dir: Path
    name: str = ""
    """What contexts call the cluster; empty: as before, at first after its directory."""
    port: int = 6443
    bind_address: str = "127.0.0.1"
    advertise_address: str = ""
    """Where the other members of the cluster find this server; empty: as the machine's own route says."""
    store: str = "sqlite"
    accept_data_loss: bool = False
    """Start with what is left of a database that has lost acknowledged writes."""
    token_auth_file: str = ""
    client_ca_file: str = ""
    cert_dir: Path | None = None
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    authorization_mode: list[str] = field(default_factory=lambda: ["Node", "RBAC"])
    anonymous_auth: bool | None = None
    service_cluster_ip_range: str = "10.96.0.0/12"
    service_node_port_range: str = "30000-32767"
    enable_admission_plugins: list[str] = field(default_factory=list)
    disable_admission_plugins: list[str] = field(default_factory=list)
    admission_control_config_file: str = ""
    default_not_ready_toleration_seconds: int = 300
    default_unreachable_toleration_seconds: int = 300
    service_account_issuer: list[str] = field(default_factory=lambda: ["https://kubernetes.default.svc.cluster.local"])
    """The first signs tokens, all are good."""
    api_audiences: list[str] = field(default_factory=list)
    compaction_interval: float = 300.0
    event_ttl: float = 3600.0
    max_requests_inflight: int = 400
    max_mutating_requests_inflight: int = 200
    enable_priority_and_fairness: bool = True
    kubelet_certificate_authority: str = ""
    kubelet_client_certificate: str = ""
    kubelet_client_key: str = ""
    insecure_http: bool = False
    access: AccessConfig = field(default_factory=AccessConfig)
    allow_privileged: bool = True
    encryption_provider_config: str = ""
    encryption_provider_config_automatic_reload: bool = False
    audit: AuditConfig = field(default_factory=AuditConfig)

    @property
    def service_cidrs(self) -> list[str]:
        """One range, or one of each family; the first is the default."""
        return [part.strip() for part in self.service_cluster_ip_range.split(",")]

    def check(self) -> None:
        """Raises ConfigError."""
        if self.name and not _NAME.fullmatch(self.name):
            raise ConfigError(f"--name {self.name!r} is not made of up to 63 letters, digits, dots, _ and -")
        if self.store not in ("sqlite", "memory"):
            raise ConfigError(f"--store must be sqlite or memory, not {self.store!r}")
        if self.insecure_http and self.bind_address not in ("127.0.0.1", "::1", "localhost"):
            raise ConfigError("--insecure-http is for tests and only listens on the loopback address")
        _check_ranges(self.service_cidrs)
        low, dash, high = self.service_node_port_range.partition("-")
        if not (dash and low.isdigit() and high.isdigit() and 0 < int(low) <= int(high) < 65536):
            raise ConfigError("--service-node-port-range must look like 30000-32767")
        known = {"AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"}
        for mode in self.authorization_mode:
            if mode not in known:
                raise ConfigError(f"--authorization-mode: {mode!r} is not one of {', '.join(sorted(known))}")
        if self.enable_priority_and_fairness and not (self.max_requests_inflight + self.max_mutating_requests_inflight):
            raise ConfigError(
                "--max-requests-inflight and --max-mutating-requests-inflight must add up to something positive, "
                "unless --enable-priority-and-fairness=false"
            )
        if not self.authorization_mode and not self.access.authorization_config:
            raise ConfigError("at least one authorization-mode must be passed")
        if len(set(self.authorization_mode)) != len(self.authorization_mode):
            shown = " ".join(f'"{mode}"' for mode in self.authorization_mode)
            raise ConfigError(f"authorization-mode [{shown}] has mode specified more than once")
        if bool(self.kubelet_client_certificate) != bool(self.kubelet_client_key):
            raise ConfigError("--kubelet-client-certificate and --kubelet-client-key go together")
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise ConfigError("--tls-cert-file and --tls-private-key-file go together")
        if self.encryption_provider_config_automatic_reload and not self.encryption_provider_config:
            raise ConfigError(
                "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
            )
        for problems in (self._bad_issuers(), self.access.problems(self.authorization_mode), self.audit.problems()):
            if problems:
                raise ConfigError(aggregate(problems))

    def _bad_issuers(self) -> list[str]:
        issuers = self.service_account_issuer
        if not issuers:
            return ["service-account-issuer is a required flag"]
        found = ["service-account-issuer should not be an empty string"] if "" in issuers else []
        twice = dict.fromkeys(one for at, one in enumerate(issuers) if one and one in issuers[:at])
        return found + [f'service-account-issuer "{one}" is already specified' for one in twice]


def unopened(error: OSError) -> str:
    """In upstream's words."""
    return f"open {error.filename}: {(error.strerror or str(error)).lower()}"


def _check_ranges(cidrs: list[str]) -> None:
    try:
        networks = [ip_network(cidr) for cidr in cidrs]
    except ValueError as error:
        raise ConfigError(f"--service-cluster-ip-range: {error}") from None
    if len(networks) > 2 or len({network.version for network in networks}) != len(networks):
        raise ConfigError("--service-cluster-ip-range: one range, or two ranges of different families, IPv4 and IPv6")
    for network in networks:
        if network.num_addresses < 8:
            raise ConfigError(f"--service-cluster-ip-range: {network} is too small: it must hold at least 8 addresses")
        if network.version == 6 and network.prefixlen < 64:
            raise ConfigError(f"--service-cluster-ip-range: {network} is too large: an IPv6 range is /64 at most")
