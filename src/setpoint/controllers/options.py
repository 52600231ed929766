"""What the controllers can be told, with upstream's names and defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Seconds where it is about time. Each controller takes from here what concerns it."""

    root_ca: str = ""
    """The certificate, as PEM, by which Pods know the API server: goes into every namespace. Empty: none does."""
    service_account_private_key: str | Callable[[], bytes] = field(default="", repr=False)
    """What tokens in Secrets are signed with, as PEM, or where to get it when it is needed. Empty: none are."""

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
    """For how long a token in a Secret that nobody asked for may be unused."""
    concurrent_resourceclaim_syncs: int = 50

    terminated_pod_gc_threshold: int = 12500

    allocate_node_cidrs: bool = False
    cluster_cidr: str = ""
    """One CIDR, or one of each family with a comma between them."""
    service_cluster_ip_range: str = ""
    node_cidr_mask_size_ipv4: int = 24
    node_cidr_mask_size_ipv6: int = 64

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
    """What certificate requests are signed with, as PEM, and its key. Empty: none are signed."""
    cluster_signing_key: str = field(default="", repr=False)
    cluster_signing_duration: float = 365 * 24 * 3600.0
    """The longest life of a certificate that is signed."""
