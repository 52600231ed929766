"""The settings of a node that the configuration of its Pods depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from setpoint.node.environment import ContainerConfigError
from setpoint.node.host.directories import DEFAULT_ROOT, NodeDirectories

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.node.cri.features import RuntimeFeatures

DEFAULT_SECCOMP_ROOT = DEFAULT_ROOT / "seccomp"


class UnsupportedByRuntime(ContainerConfigError):
    """The Pod needs a feature that the container runtime does not have."""


class PodFeatures(NamedTuple):
    """The optional features of the container runtime on which Pods depend. A runtime ignores the fields of features
    that it does not have, so Pods that need them are refused."""

    user_namespaces: bool = False
    supplemental_groups_policy: bool = False
    """Whether the policy `Strict` is enforced."""

    @classmethod
    def of(cls, runtime: RuntimeFeatures) -> PodFeatures:
        """Return the features of the default handler of a runtime."""
        return cls(runtime.handler().user_namespaces, runtime.supplemental_groups_policy)


class IdRange(NamedTuple):
    """The user and group ids of the host to which a Pod's user namespace maps its ids from 0 on."""

    first: int
    length: int = 65536


@dataclass(frozen=True, slots=True)
class PodConfigSettings:
    """The settings on which the configuration of all Pods of a node depends."""

    node_name: str
    memory_capacity: int
    """The memory of the machine in bytes."""
    cluster_domain: str = "cluster.local"
    cluster_dns: tuple[str, ...] = ()
    """The addresses of the cluster's DNS servers; empty means that Pods use the resolver of the host."""
    directories: NodeDirectories = field(default_factory=NodeDirectories)
    seccomp_root: Path = DEFAULT_SECCOMP_ROOT
    """The directory of the seccomp profiles that Pods select by the type Localhost."""
    seccomp_default: bool = False
    """Whether containers that select no seccomp profile get that of the runtime instead of none."""
    features: Callable[[], PodFeatures] = PodFeatures
    """Returns the features of the runtime, which may be known only after the agent has started."""
    cgroup_version: int = 2
    swap_controller: bool = False
    """Whether the kernel can limit the swap space of a cgroup."""
    huge_page_sizes: tuple[str, ...] = ()
    """The sizes of huge pages that the machine has, as `page_size_name` returns them."""
    thermal_throttle_paths: tuple[str, ...] = ()
    """The directories `/sys/devices/system/cpu/cpu<N>/thermal_throttle` that exist; containers cannot read them."""
    apparmor: bool = False
    """Whether AppArmor is enabled on the machine."""
    selinux: bool = False
    """Whether SELinux is enabled on the machine."""
    min_oom_score_adj: int | None = None
    """The lowest `oom_score_adj` that the runtime can set: that of the agent, if it lacks CAP_SYS_RESOURCE. None means
    that every value can be set."""


def describe_pod(pod: Pod) -> str:
    """Return the name by which the kubelet's messages identify a Pod: `name_namespace(uid)`."""
    meta = pod["metadata"]
    return f"{meta['name']}_{meta['namespace']}({meta['uid']})"
