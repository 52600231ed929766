"""Options of the controllers, with upstream's names and defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Options of all controllers; durations are in seconds."""

    root_ca: str = ""
    """The CA certificate of the API server as PEM, published in every namespace; empty means it is not published."""
    service_account_private_key: str | Callable[[], bytes] = field(default="", repr=False)
    """The key that signs tokens in Secrets, as PEM or as a function that loads it; empty means no tokens are signed."""

    concurrent_service_endpoint_syncs: int = 5
    max_endpoints_per_slice: int = 100
    endpoint_updates_batch_period: float = 0.0
    endpointslice_updates_batch_period: float = 0.0
    mirroring_concurrent_service_endpoint_syncs: int = 5
    mirroring_max_endpoints_per_subset: int = 1000
    mirroring_endpointslice_updates_batch_period: float = 0.0

    node_monitor_period: float = 5.0
    node_monitor_grace_period: float = 50.0
    node_startup_grace_period: float = 60.0
    node_eviction_rate: float = 0.1
    secondary_node_eviction_rate: float = 0.01
    large_cluster_size_threshold: int = 50
    unhealthy_zone_threshold: float = 0.55

    legacy_service_account_token_clean_up_period: float = 365 * 24 * 3600.0
    """Seconds that an auto-generated token in a Secret may be unused before it is cleaned up."""
    concurrent_resourceclaim_syncs: int = 50

    terminated_pod_gc_threshold: int = 12500

    allocate_node_cidrs: bool = False
    cluster_cidr: str = ""
    """A CIDR, or one of each address family separated by a comma."""
    service_cluster_ip_range: str = ""
    node_cidr_mask_size_ipv4: int = 24
    node_cidr_mask_size_ipv6: int = 64

    load_balancer_pool: str = ""
    """Addresses for Services of type LoadBalancer: CIDRs, or first and last address with a dash, separated by commas;
    empty means that no addresses are assigned."""

    pvclaimbinder_sync_period: float = 15.0

    concurrent_job_syncs: int = 5
    concurrent_cron_job_syncs: int = 5
    concurrent_ttl_after_finished_syncs: int = 5
    concurrent_disruption_syncs: int = 1
    concurrent_resource_quota_syncs: int = 5
    resource_quota_sync_period: float = 300.0
    concurrent_horizontal_pod_autoscaler_syncs: int = 5
    horizontal_pod_autoscaler_sync_period: float = 15.0
    horizontal_pod_autoscaler_tolerance: float = 0.1
    horizontal_pod_autoscaler_downscale_stabilization: float = 300.0
    horizontal_pod_autoscaler_cpu_initialization_period: float = 300.0
    horizontal_pod_autoscaler_initial_readiness_delay: float = 30.0

    cluster_signing_cert: str = ""
    """The CA certificate as PEM that signs certificate requests; empty means none are signed."""
    cluster_signing_key: str = field(default="", repr=False)
    """The private key of `cluster_signing_cert` as PEM."""
    cluster_signing_duration: float = 365 * 24 * 3600.0
    """The longest validity of a signed certificate in seconds."""
