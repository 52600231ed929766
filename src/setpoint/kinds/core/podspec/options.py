"""Rules that an update may break because the stored object already breaks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from setpoint.meta.objects import ObjView


class PodOptions(NamedTuple):
    """Relaxed rules for an update. All False means a new object, to which every rule applies."""

    is_pod: bool = False
    """Whether the spec is of a Pod, not of a template in a workload."""
    allow_invalid_deletion_cost: bool = False
    allow_invalid_selector_values: bool = False
    allow_indivisible_huge_pages: bool = False
    allow_invalid_spread_selector: bool = False
    allow_non_local_token_path: bool = False
    allow_host_sysctls: bool = False
    allow_invalid_node_affinity_values: bool = False
    allow_invalid_match_label_keys: bool = False
    allow_toleration_comparison: bool = False
    allow_user_namespace_host_network: bool = False
    allow_user_namespace_devices: bool = False
    allow_empty_image_reference: bool = False
    allow_restart_container_for_init: bool = False
    allow_sys_admin_without_escalation: bool = False


CREATE = PodOptions()
CREATE_POD = PodOptions(is_pod=True)


def all_containers(spec: ObjView) -> Iterator[ObjView]:
    for key in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(key) or ()
