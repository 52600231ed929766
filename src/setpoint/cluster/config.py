"""The configuration of an API server: flags with upstream's names and meanings, checked before anything starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from setpoint.meta import quantity
from setpoint.meta.goformat import aggregate
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_duration

_MAX_TOKEN_SECONDS = 2.0**32
_ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512")
_WEBHOOK_VERSIONS = ("v1", "v1beta1")
_AUDIT_MODES = ("batch", "blocking", "blocking-strict")
_AUDIT_FORMATS = ("legacy", "json")
_AUDIT_VERSION = "audit.k8s.io/v1"
NO_DATA_DIR = Path("/dev/null")
"""The data directory of a server that stores nothing on disk."""
MAX_WORKERS = 64
MEMBER_RECORD = "etcd-member.json"
"""The file in a data directory that says that this machine runs a member of etcd."""
SERVERS_RECORD = "etcd-servers"
"""The file in a data directory whose cluster is in an external etcd: the URLs of that."""
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_FLAG_NAMES = {"compaction-interval": "etcd-compaction-interval"}
_MIN_BACKUP_INTERVAL = 1.0
_SECRET_FLAGS = ("token",)
_WITHOUT_PREFIX = "access"
"""The nested configuration whose flags have no common prefix."""


@dataclass(slots=True, eq=False, repr=False, match_args=False)
class AccessConfig:
    """The flags of authentication, authorization and service account tokens."""

    enable_bootstrap_token_auth: bool = False
    authentication_config: str = ""
    oidc_issuer_url: str = ""
    oidc_client_id: str = ""
    oidc_ca_file: str = ""
    oidc_username_claim: str = "sub"
    oidc_username_prefix: str = ""
    oidc_groups_claim: str = ""
    oidc_groups_prefix: str = ""
    oidc_signing_algs: list[str] = field(default_factory=lambda: ["RS256"])
    oidc_required_claim: list[str] = field(default_factory=list)
    authentication_token_webhook_config_file: str = ""
    authentication_token_webhook_version: str = "v1beta1"
    authentication_token_webhook_cache_ttl: float = 120.0
    authorization_config: str = ""
    authorization_webhook_config_file: str = ""
    authorization_webhook_version: str = "v1beta1"
    authorization_webhook_cache_authorized_ttl: float = 300.0
    authorization_webhook_cache_unauthorized_ttl: float = 30.0
    requestheader_client_ca_file: str = ""
    requestheader_allowed_names: list[str] = field(default_factory=list)
    requestheader_username_headers: list[str] = field(default_factory=list)
    requestheader_uid_headers: list[str] = field(default_factory=list)
    requestheader_group_headers: list[str] = field(default_factory=list)
    requestheader_extra_headers_prefix: list[str] = field(default_factory=list)
    service_account_key_file: list[str] = field(default_factory=list)
    service_account_signing_key_file: str = ""
    service_account_jwks_uri: str = ""
    service_account_max_token_expiration: float = 0.0
    service_account_extend_token_expiration: bool = True

    def problems(self, modes: Sequence[str]) -> list[str]:
        """Return what is wrong with the flags, one message each. `modes` are those of --authorization-mode."""
        found = [*self._oidc_problems(), *self._header_problems(), *self._webhook_problems(modes)]
        expiration, uri = self.service_account_max_token_expiration, self.service_account_jwks_uri
        if expiration and not 3600 <= expiration <= _MAX_TOKEN_SECONDS:
            found.append("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds")
        if uri and not uri.startswith("https://"):
            found.append(f"service-account-jwks-uri requires https scheme, parsed as: {uri}")
        return found

    def _oidc_problems(self) -> Iterator[str]:
        default = AccessConfig()
        used = any(getattr(self, name) != getattr(default, name) for name in self.__slots__ if name.startswith("oidc_"))
        if used and self.authentication_config:
            yield "authentication-config file and oidc-* flags are mutually exclusive"
        elif used and not (self.oidc_issuer_url and self.oidc_client_id):
            yield "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
        for algorithm in self.oidc_signing_algs:
            if algorithm not in _ALGORITHMS:
                yield f'oidc: unsupported signing alg: "{algorithm}"'
        for claim in self.oidc_required_claim:
            if "=" not in claim:
                yield f"--oidc-required-claim: malformed pair, expect string=string: {claim}"

    def _header_problems(self) -> Iterator[str]:
        for flag in ("username-headers", "group-headers", "extra-headers-prefix", "allowed-names", "uid-headers"):
            values: list[str] = getattr(self, f"requestheader_{flag.replace('-', '_')}")
            if any(not value.strip() for value in values):
                yield f'empty value in "requestheader-{flag}"'
        uids = [header.lower() for header in self.requestheader_uid_headers]
        if uids and "x-remote-uid" not in uids:
            yield (
                "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - "
                "API aggregation will not work"
            )

    def _webhook_problems(self, modes: Sequence[str]) -> Iterator[str]:
        known = 'supported versions are "v1", "v1beta1"'
        version = self.authentication_token_webhook_version
        if self.authentication_token_webhook_config_file and version not in _WEBHOOK_VERSIONS:
            yield f'unsupported authentication webhook version "{version}", {known}'
        version = self.authorization_webhook_version
        if "Webhook" in modes and version not in _WEBHOOK_VERSIONS:
            yield f'unsupported webhook authorizer version "{version}", {known}'
        if "Webhook" in modes and not self.authorization_webhook_config_file:
            yield "authorization-mode Webhook's authorization config file not passed"
        if self.authorization_config and (modes or self.authorization_webhook_config_file):
            yield (
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* "
                "flags are defined"
            )
        elif self.authorization_webhook_config_file and "Webhook" not in modes:
            yield "cannot specify --authorization-webhook-config-file without mode Webhook"

    def flag_authenticator(self) -> Obj | None:
        """Return the issuer of the --oidc-* flags in the form of the configuration file; None without these flags.
        Raises OSError or ValueError if --oidc-ca-file cannot be read."""
        if not self.oidc_issuer_url:
            return None
        prefix = self.oidc_username_prefix
        if not prefix and self.oidc_username_claim != "email":
            prefix = f"{self.oidc_issuer_url}#"
        issuer: Obj = {"url": self.oidc_issuer_url, "audiences": [self.oidc_client_id]}
        if self.oidc_ca_file:
            with open(self.oidc_ca_file, encoding="utf-8") as file:
                issuer["certificateAuthority"] = file.read()
        username = {"claim": self.oidc_username_claim, "prefix": "" if prefix == "-" else prefix}
        mappings: Obj = {"username": username}
        if self.oidc_groups_claim:
            mappings["groups"] = {"claim": self.oidc_groups_claim, "prefix": self.oidc_groups_prefix}
        rules = [
            {"claim": claim, "requiredValue": value}
            for claim, value in (pair.split("=", 1) for pair in self.oidc_required_claim)
        ]
        return {"issuer": issuer, "claimMappings": mappings, "claimValidationRules": rules}


@dataclass(slots=True, eq=False, repr=False, match_args=False)
class BackendConfig:
    """The flags that both audit backends have."""

    mode: str = "blocking"
    buffer_size: int = 10_000
    max_size: int = 1
    max_wait: float = 0.0
    throttle_enable: bool = False
    throttle_qps: float = 0.0
    throttle_burst: int = 0
    truncate_enabled: bool = False
    truncate_max_batch_size: int = 10 * 1024 * 1024
    truncate_max_event_size: int = 100 * 1024
    version: str = _AUDIT_VERSION

    def problems(self, name: str) -> list[str]:
        """Return what is wrong with the flags of the backend `name`, one message each."""
        found = []
        if self.mode not in _AUDIT_MODES:
            found.append(f'invalid audit {name} mode {self.mode}, allowed modes are "{",".join(_AUDIT_MODES)}"')
        elif self.mode == "batch":
            checks: list[tuple[str, float]] = [("buffer size", self.buffer_size), ("max batch size", self.max_size)]
            if self.throttle_enable:
                checks += [("throttle QPS", self.throttle_qps), ("throttle burst", self.throttle_burst)]
            wrong = next(((what, value) for what, value in checks if value <= 0), None)
            if wrong is not None:
                found.append(f"invalid audit batch {name} {wrong[0]} {wrong[1]:g}, must be a positive number")
        event_size = self.truncate_max_event_size
        if event_size <= 0:
            found.append(f"invalid audit truncate {name} max event size {event_size}, must be a positive number")
        elif self.truncate_max_batch_size < event_size:
            found.append(
                f"invalid audit truncate {name} max batch size {self.truncate_max_batch_size}, "
                f"must be greater than max event size ({event_size})"
            )
        if self.version != _AUDIT_VERSION:
            found.append(f'invalid group version, allowed versions are ["{_AUDIT_VERSION}"]')
        return found


def _webhook_backend() -> BackendConfig:
    return BackendConfig(
        "batch", max_size=400, max_wait=30.0, throttle_enable=True, throttle_qps=10.0, throttle_burst=15
    )


@dataclass(slots=True, eq=False, repr=False, match_args=False)
class AuditConfig:
    """The flags of the audit log."""

    policy_file: str = ""
    log_path: str = ""
    """The path of the log file; `-` is the standard output, empty means no log backend."""
    log_maxage: int = 366
    log_maxbackup: int = 100
    log_maxsize: int = 100
    log_format: str = "json"
    log_compress: bool = False
    log: BackendConfig = field(default_factory=BackendConfig)
    webhook_config_file: str = ""
    webhook_initial_backoff: float = 10.0
    webhook: BackendConfig = field(default_factory=_webhook_backend)

    @property
    def enabled(self) -> bool:
        """Return whether events are recorded: there are a policy and a backend."""
        return bool(self.policy_file and (self.log_path or self.webhook_config_file))

    @property
    def is_configured(self) -> bool:
        """Return whether any of the flags is set, even if they do not enable the log."""
        return bool(self.policy_file or self.log_path or self.webhook_config_file)

    def problems(self) -> list[str]:
        """Return what is wrong with the flags of the backends in use, one message each."""
        found: list[str] = []
        if self.log_path:
            found += self.log.problems("log")
            if self.log_format not in _AUDIT_FORMATS:
                allowed = ",".join(_AUDIT_FORMATS)
                found.append(f'invalid audit log format {self.log_format}, allowed formats are "{allowed}"')
            for name in ("maxage", "maxbackup", "maxsize"):
                value = getattr(self, f"log_{name}")
                if value < 0:
                    found.append(f"--audit-log-{name} {value} can't be a negative number")
        if self.webhook_config_file:
            found += self.webhook.problems("webhook")
        return found


class ConfigError(Exception):
    """A setting is invalid. The message is one sentence for the user who set it."""


@dataclass(slots=True, eq=False, repr=False, match_args=False)
class ApiServerConfig:
    """The configuration of an API server. Attributes are named after upstream's flags."""

    data_dir: Path
    name: str = ""
    """The name of the cluster in kubeconfigs; empty keeps the former name, at first that of the data directory."""
    port: int = 6443
    bind_address: str = "127.0.0.1"
    advertise_address: str = ""
    """The address that other members of the cluster use; empty means the address of the machine's default route."""
    store: str = "sqlite"
    etcd: str = ""
    """`embedded` if this process runs a member of etcd; empty if it does not."""
    etcd_servers: list[str] = field(default_factory=list)
    """The URLs of etcd's members; used if `store` is etcd."""
    etcd_cafile: str = ""
    etcd_certfile: str = ""
    etcd_keyfile: str = ""
    etcd_prefix: str = "/registry"
    etcd_client_port: int = 2379
    etcd_peer_port: int = 2380
    join: str = ""
    """The URL of a machine of the cluster to join; empty means a cluster of its own."""
    token: str = ""
    """The token to join with."""
    accept_data_loss: bool = False
    """Whether to start with a database that has lost acknowledged writes."""
    backup_interval: float = 0.0
    """Seconds between scheduled backups; 0 means none."""
    backup_keep: int = 24
    """The number of scheduled backups that are kept."""
    backup_dir: str = ""
    """The directory of scheduled backups; empty means `backups` in the data directory."""
    history_retention: float = 0.0
    """Seconds for which compacted changes are kept in `history.db`; 0 means that they are not."""
    history_max_size: str = "512Mi"
    """The size of that file, as a quantity of bytes."""
    history_exclude: list[str] = field(default_factory=lambda: ["leases.coordination.k8s.io"])
    """Resources, as RESOURCE or RESOURCE.GROUP, whose changes are not kept."""
    token_auth_file: str = ""
    client_ca_file: str = ""
    cert_dir: Path | None = None
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    apiserver_cert_extra_sans: list[str] = field(default_factory=list)
    """Names and addresses in the generated serving certificate, in addition to the server's own."""
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
    """Issuers of service account tokens: new tokens name the first one, and all are accepted."""
    api_audiences: list[str] = field(default_factory=list)
    compaction_interval: float = 300.0
    event_ttl: float = 3600.0
    shutdown_delay_duration: float = 0.0
    """Seconds for which a server that stops still answers while `/readyz` fails."""
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
    tracing_config_file: str = ""
    workers: int = 0
    """The number of processes that serve requests; 0 means that the process with the store does."""

    @property
    def pki(self) -> Path:
        """Return the directory of the certificates."""
        return self.cert_dir or self.data_dir / "pki"

    @property
    def service_cidrs(self) -> list[str]:
        """Return one range, or one of each IP family; the first is the default."""
        return [part.strip() for part in self.service_cluster_ip_range.split(",")]

    @property
    def etcd_key_prefix(self) -> str:
        """Return the prefix of all keys in etcd, with a slash at both ends."""
        return f"/{self.etcd_prefix.strip('/')}/"

    def check(self) -> None:
        """Raises ConfigError if a setting is invalid."""
        if self.name and not _CLUSTER_NAME.fullmatch(self.name):
            raise ConfigError(f"--name {self.name!r} must be at most 63 letters, digits, dots, _ and -")
        if self.store not in ("sqlite", "memory", "etcd"):
            raise ConfigError(f"--store must be sqlite, memory or etcd, not {self.store!r}")
        if problem := self._etcd_problem():
            raise ConfigError(problem)
        if problem := self._workers_problem():
            raise ConfigError(problem)
        if self.backup_interval and (self.backup_interval < _MIN_BACKUP_INTERVAL or self.backup_keep < 1):
            raise ConfigError("--backup-interval must be at least 1s, and --backup-keep at least 1")
        if self.history_retention < 0:
            raise ConfigError("--history-retention must not be negative")
        try:
            positive = quantity.value(self.history_max_size) > 0
        except ValueError:
            positive = False
        if not positive:
            raise ConfigError(f"--history-max-size {self.history_max_size} must be a size such as 512Mi")
        if self.insecure_http and self.bind_address not in ("127.0.0.1", "::1", "localhost"):
            raise ConfigError("--insecure-http is for tests and needs a loopback --bind-address")
        if self.shutdown_delay_duration < 0:
            raise ConfigError("--shutdown-delay-duration can not be negative value")
        if self.advertise_address and not _is_address(self.advertise_address):
            raise ConfigError(f"--advertise-address {self.advertise_address}: must be an IP address")
        _check_service_ranges(self.service_cidrs)
        low, dash, high = self.service_node_port_range.partition("-")
        if not (dash and low.isdigit() and high.isdigit() and 0 < int(low) <= int(high) < 65536):
            raise ConfigError("--service-node-port-range must look like 30000-32767")
        known = {"AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"}
        for mode in self.authorization_mode:
            if mode not in known:
                raise ConfigError(f"--authorization-mode: {mode!r} is not one of {', '.join(sorted(known))}")
        if self.enable_priority_and_fairness and not (self.max_requests_inflight + self.max_mutating_requests_inflight):
            raise ConfigError(
                "--max-requests-inflight and --max-mutating-requests-inflight must not both be 0, "
                "unless --enable-priority-and-fairness=false"
            )
        if not self.authorization_mode and not self.access.authorization_config:
            raise ConfigError("at least one authorization-mode must be passed")
        if len(set(self.authorization_mode)) != len(self.authorization_mode):
            shown = " ".join(f'"{mode}"' for mode in self.authorization_mode)
            raise ConfigError(f"authorization-mode [{shown}] has mode specified more than once")
        if bool(self.kubelet_client_certificate) != bool(self.kubelet_client_key):
            raise ConfigError("--kubelet-client-certificate and --kubelet-client-key must be set together")
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise ConfigError("--tls-cert-file and --tls-private-key-file must be set together")
        if self.encryption_provider_config_automatic_reload and not self.encryption_provider_config:
            raise ConfigError(
                "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
            )
        for problems in (self._issuer_problems(), self.access.problems(self.authorization_mode), self.audit.problems()):
            if problems:
                raise ConfigError(aggregate(problems))

    def _etcd_problem(self) -> str:
        if self.etcd not in ("", "embedded"):
            return f"--etcd must be embedded, not {self.etcd!r}"
        if bool(self.join) != bool(self.token) and not (self.data_dir / MEMBER_RECORD).exists():
            return "--join needs --token, which `setpoint token create` prints" if self.join else "--token needs --join"
        if self.store != "etcd":
            given = {"etcd embedded": self.etcd, "etcd-servers": self.etcd_servers, "join": self.join}
            wrong = next((name for name, value in given.items() if value), "")
            if wrong:
                return f"--{wrong} needs --store etcd, not {self.store}"
            files = {"cafile": self.etcd_cafile, "certfile": self.etcd_certfile, "keyfile": self.etcd_keyfile}
            alone = next((name for name, path in files.items() if path), "")
            return f"--etcd-{alone} needs --etcd-servers" if alone else ""
        if self.etcd:
            outside = self.etcd_servers or self.etcd_cafile or self.etcd_certfile or self.etcd_keyfile
            if self.insecure_http:
                return "--etcd embedded cannot be combined with --insecure-http"
            if self.cert_dir is not None:
                return "--etcd embedded cannot be combined with --cert-dir: each machine has certificates of its own"
            if outside:
                return "--etcd embedded cannot be combined with --etcd-servers and the certificates of an external etcd"
            return ""
        if not self.etcd_servers:
            return "--store etcd needs --etcd-servers, or --etcd embedded"
        if bool(self.etcd_certfile) != bool(self.etcd_keyfile):
            return "--etcd-certfile and --etcd-keyfile must be set together"
        schemes = {urlsplit(server).scheme for server in self.etcd_servers}
        if not schemes <= {"http", "https"} or len(schemes) != 1:
            return "--etcd-servers must be URLs that all begin with https://, or all with http://"
        return ""

    def _workers_problem(self) -> str:
        if not 0 <= self.workers <= MAX_WORKERS:
            return f"--workers must be between 0 and {MAX_WORKERS}"
        if self.workers and self.store == "etcd":
            return "--workers needs --store sqlite or memory; on etcd, run several API servers instead"
        if self.workers and self.history_retention:
            return "--workers cannot be combined with --history-retention"
        return ""

    def _issuer_problems(self) -> list[str]:
        issuers = self.service_account_issuer
        if not issuers:
            return ["service-account-issuer is a required flag"]
        found = ["service-account-issuer should not be an empty string"] if "" in issuers else []
        repeated = dict.fromkeys(one for at, one in enumerate(issuers) if one and one in issuers[:at])
        return found + [f'service-account-issuer "{one}" is already specified' for one in repeated]


def open_error(error: OSError) -> str:
    """Return Go's text of an error to open a file."""
    return f"open {error.filename}: {(error.strerror or str(error)).lower()}"


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_service_ranges(cidrs: list[str]) -> None:
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


def flags_of(config: ApiServerConfig) -> dict[str, str]:
    """Return the values of all flags by name, without the dashes and without secrets; empty if a flag has no value."""
    found: dict[str, str] = {}
    _add_flags(found, config, "")
    return found


def _add_flags(found: dict[str, str], part: Any, prefix: str) -> None:
    for each in fields(part):
        if each.name in _SECRET_FLAGS:
            continue
        value = getattr(part, each.name)
        name = prefix + each.name.replace("_", "-")
        if is_dataclass(value):
            _add_flags(found, value, prefix if each.name == _WITHOUT_PREFIX else f"{name}-")
        else:
            found[_FLAG_NAMES.get(name, name)] = _flag_value(value)


def _flag_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return format_duration(round(value * 1_000_000_000))  # the only such numbers are durations
    return f"[{','.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)
