"""Derives the settings for Pods from this machine and its container runtime, and rejects Pods that it cannot run."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final

from setpoint.node.cri.features import RuntimeFeatures
from setpoint.node.host.machine import ROOT, MachineFacts
from setpoint.node.host.node_config import NodeConfig
from setpoint.node.host.pod_settings import PodConfigSettings, PodFeatures
from setpoint.node.host.resources import page_size_name
from setpoint.node.host.security import security_rejection
from setpoint.node.host.sysctls import FORBIDDEN_REASON, forbidden_sysctls, safe_sysctls

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_CAP_SYS_RESOURCE: Final = 24
_THERMAL_THROTTLE = "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle"


def read_pod_settings(
    config: NodeConfig, facts: MachineFacts, features: RuntimeFeatures, cgroup_version: int, root: Path = ROOT
) -> PodConfigSettings:
    """Return the settings for the configuration of Pods on this machine. Blocks."""
    throttles = sorted(root.glob(_THERMAL_THROTTLE))
    return PodConfigSettings(
        config.name,
        facts.memory_bytes,
        config.cluster_domain,
        config.cluster_dns,
        config.directories,
        seccomp_root=config.directories.root / "seccomp",
        features=lambda: PodFeatures.of(features),
        cgroup_version=cgroup_version,
        huge_page_sizes=tuple(page_size_name(size) for size in facts.huge_pages),
        thermal_throttle_paths=tuple(f"/{path.relative_to(root)}" for path in throttles),
        apparmor=_is_enabled(root / "sys/module/apparmor/parameters/enabled"),
        selinux=(root / "sys/fs/selinux/enforce").exists(),
        min_oom_score_adj=_min_oom_score_adj(root / "proc/self"),
    )


def _is_enabled(path: Path) -> bool:
    try:
        return path.read_text().strip() == "Y"
    except OSError:
        return False


def _min_oom_score_adj(process: Path) -> int | None:
    """Return the lowest `oom_score_adj` that this process may set: its own, unless it has CAP_SYS_RESOURCE."""
    if can_lower_oom_scores(process):
        return None
    return int((process / "oom_score_adj").read_text())


def can_lower_oom_scores(process: Path = ROOT / "proc/self") -> bool:
    """Return whether a process has CAP_SYS_RESOURCE, without which OOM scores can only be raised. Blocks."""
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
    return bool(int(status["CapEff"], 16) >> _CAP_SYS_RESOURCE & 1)


class HostAdmission:
    """Decides whether this node can run a Pod, beyond what the scheduler checks."""

    def __init__(self, settings: PodConfigSettings, kernel: str, allowed_sysctls: Collection[str] = ()) -> None:
        self._settings = settings
        self._allowed = [*safe_sysctls(kernel), *allowed_sysctls]

    def rejection(self, pod: Pod) -> tuple[str, str] | None:
        """Return the reason and the message of a rejection, or None."""
        forbidden = forbidden_sysctls(pod, self._allowed)
        if forbidden:
            return FORBIDDEN_REASON, forbidden
        found = security_rejection(pod, self._settings)
        return (found.reason, found.message) if found is not None else None
