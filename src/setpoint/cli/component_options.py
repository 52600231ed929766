"""The flags that all component processes share, with upstream's names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setpoint.cli.flags import Flag, Values, about, decimal, duration, number, switch, text, texts

if TYPE_CHECKING:
    from setpoint.cluster.component_server import ServingOptions
    from setpoint.cluster.remote import RemoteConfig
    from setpoint.controllers.options import ControllerOptions

SERVER_CHOICE: tuple[Flag, ...] = (
    text("kubeconfig", help="Kubeconfig of the server; by default $KUBECONFIG, or the cluster of this directory."),
    switch(
        "balance-servers", default=True, help="Use all API servers of the cluster, not only that of the kubeconfig."
    ),
)
REMOTE_FLAGS: tuple[Flag, ...] = (
    *SERVER_CHOICE,
    *about(
        "Leader election",
        switch("leader-elect", default=True, help="Run only while holding the Lease."),
        duration("leader-elect-lease-duration", default=15.0, help="How long other replicas wait after a renewal."),
        duration("leader-elect-renew-deadline", default=10.0, help="How long the leader retries a renewal."),
        duration("leader-elect-retry-period", default=2.0, help="The time between two attempts."),
        text("leader-elect-resource-namespace", default="kube-system", help="Namespace of the Lease."),
    ),
)


def _read_pool(value: str) -> str:
    from setpoint.controllers.service_load_balancer import AddressPool  # most commands do not need it

    AddressPool(value)
    return value


LOAD_BALANCER_POOL = text(
    "load-balancer-pool",
    help="Addresses for Services of type LoadBalancer: CIDRs or ranges such as 10.0.0.5-10.0.0.9, with commas between.",
)._replace(read=_read_pool)


def endpoint_flags(port: int) -> tuple[Flag, ...]:
    """Return the flags of the component's metrics and health endpoints; `port` is upstream's default."""
    return about(
        "Serving",
        text("bind-address", default="0.0.0.0", help="Address of the health and metrics endpoints."),
        number("secure-port", default=port, least=0, most=65535, help="The port; 0 disables the endpoints."),
        text("tls-cert-file", help="The serving certificate; by default one is generated."),
        text("tls-private-key-file", help="The key of --tls-cert-file."),
        text("client-ca-file", help="CA of client certificates; by default that of the kubeconfig."),
        texts(
            "authorization-always-allow-paths",
            default=("/healthz", "/readyz", "/livez"),
            help="Paths that need no authorization.",
        ),
    )


def endpoint_config(flags: Values) -> ServingOptions:
    from setpoint.cluster.component_server import ServingOptions

    return ServingOptions(
        flags.bind_address,
        flags.secure_port,
        flags.tls_cert_file,
        flags.tls_private_key_file,
        flags.client_ca_file,
        tuple(flags.authorization_always_allow_paths),
    )


def remote_config(flags: Values, part: str) -> RemoteConfig:
    from setpoint.cluster.remote import RemoteConfig
    from setpoint.reconcile import ElectionTimes

    times = ElectionTimes(
        flags.leader_elect_lease_duration, flags.leader_elect_renew_deadline, flags.leader_elect_retry_period
    )
    return RemoteConfig(
        flags.kubeconfig,
        part,
        flags.leader_elect,
        times,
        flags.leader_elect_resource_namespace,
        getattr(flags, "use_service_account_credentials", False),
        flags.balance_servers,
    )


_FROM_FILES = {
    "root_ca": ("root-ca-file", "The certificate by which Pods know the server: goes into every namespace."),
    "service_account_private_key": ("service-account-private-key-file", "What tokens in Secrets are signed with."),
    "cluster_signing_cert": ("cluster-signing-cert-file", "What certificate requests are signed with."),
    "cluster_signing_key": ("cluster-signing-key-file", "The key of --cluster-signing-cert-file."),
}
"""Settings that are contents here and files on the command line."""
_ABOUT = {
    "Cluster": {
        "service_cluster_ip_range": "Addresses of Services, which no node gets.",
        "allocate_node_cidrs": "Give each node a range of addresses for its Pods.",
        "cluster_cidr": "Where those are taken from: one range, or one of each family.",
        "node_cidr_mask_size_ipv4": "How large the range of a node is.",
        "node_cidr_mask_size_ipv6": "The same for IPv6.",
        "load_balancer_pool": "",
        "pvclaimbinder_sync_period": "How often volumes and claims are looked at without need.",
        "terminated_pod_gc_threshold": "Pods that have ended and may stay; 0 keeps all.",
    },
    "Signing": {
        "root_ca": "",
        "service_account_private_key": "",
        "cluster_signing_cert": "",
        "cluster_signing_key": "",
        "cluster_signing_duration": "The longest life of a certificate that is signed.",
        "legacy_service_account_token_clean_up_period": "For how long a made token in a Secret may be unused.",
    },
    "Node lifecycle": {
        "node_monitor_period": "How often nodes are looked at.",
        "node_monitor_grace_period": "How long a node may be silent.",
        "node_startup_grace_period": "How long a new one may be.",
        "node_eviction_rate": "Nodes per second that are emptied in a zone.",
        "secondary_node_eviction_rate": "The same in a zone of which much is not well.",
        "unhealthy_zone_threshold": "The part of a zone's nodes that makes it such a zone.",
        "large_cluster_size_threshold": "In zones with no more nodes than this, nothing is emptied then.",
    },
    "Autoscaling": {
        "concurrent_horizontal_pod_autoscaler_syncs": "Autoscalers that are worked on at once.",
        "horizontal_pod_autoscaler_sync_period": "How often each is looked at.",
        "horizontal_pod_autoscaler_tolerance": "How far usage may be from what is wanted.",
        "horizontal_pod_autoscaler_downscale_stabilization": "How far back to look before there are fewer Pods.",
        "horizontal_pod_autoscaler_cpu_initialization_period": "How long a new Pod's CPU may mislead.",
        "horizontal_pod_autoscaler_initial_readiness_delay": "How long a Pod may take to be ready first.",
    },
    "Endpoints": {
        "concurrent_service_endpoint_syncs": "Services that are worked on at once.",
        "max_endpoints_per_slice": "Addresses in an EndpointSlice.",
        "endpoint_updates_batch_period": "How long changes of Endpoints may gather.",
        "endpointslice_updates_batch_period": "How long changes of EndpointSlices may gather.",
        "mirroring_concurrent_service_endpoint_syncs": "Endpoints that are mirrored at once.",
        "mirroring_max_endpoints_per_subset": "Addresses of a subset that are mirrored.",
        "mirroring_endpointslice_updates_batch_period": "How long changes of mirrors may gather.",
    },
    "Other controllers'": {
        "concurrent_job_syncs": "Jobs that are worked on at once.",
        "concurrent_cron_job_syncs": "CronJobs that are worked on at once.",
        "concurrent_ttl_after_finished_syncs": "Finished Jobs that are looked at at once.",
        "concurrent_disruption_syncs": "Disruption budgets that are worked on at once.",
        "concurrent_resource_quota_syncs": "Quotas that are worked on at once.",
        "resource_quota_sync_period": "How often the usage of a quota is counted without need.",
        "concurrent_resourceclaim_syncs": "Resource claims that are worked on at once.",
    },
}
"""The help text of each setting by section; those in `_FROM_FILES` and of --load-balancer-pool have theirs
there."""
_NO_DURATIONS = ("rate", "threshold", "tolerance")


def controller_flags() -> Iterator[Flag]:
    """Yield one flag for each setting of the controllers."""
    from setpoint.controllers.options import ControllerOptions

    defaults = {field.name: field.default for field in fields(ControllerOptions)}
    for group, settings in _ABOUT.items():
        yield from about(group, *(_flag(name, defaults.pop(name), help_text) for name, help_text in settings.items()))
    assert not defaults, f"the help says nothing of {', '.join(defaults)}"


def controller_settings(flags: Values) -> ControllerOptions:
    """Return the settings of the flags. Raise ConfigError for a file that cannot be read."""
    from setpoint.cluster.config import ConfigError
    from setpoint.controllers.options import ControllerOptions

    settings: dict[str, Any] = {}
    for field in fields(ControllerOptions):
        if field.name not in _FROM_FILES:
            settings[field.name] = getattr(flags, field.name)
            continue
        name = _FROM_FILES[field.name][0]
        path = getattr(flags, name.replace("-", "_"))
        try:
            settings[field.name] = Path(path).read_text(encoding="utf-8") if path else ""
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read --{name} {path}: {error}") from None
    return ControllerOptions(**settings)


def _flag(field: str, default: Any, help_text: str) -> Flag:
    if field in _FROM_FILES:
        name, help_text = _FROM_FILES[field]
        return text(name, help=help_text)
    name = field.replace("_", "-")
    if name == LOAD_BALANCER_POOL.name:
        return LOAD_BALANCER_POOL
    if isinstance(default, bool):
        return switch(name, default=default, help=help_text)
    if isinstance(default, float):
        kind = decimal if field.endswith(_NO_DURATIONS) else duration
        return kind(name, default=default, help=help_text)
    if isinstance(default, int):
        return number(name, default=default, help=help_text)
    return text(name, default=default, help=help_text)
