"""Pods, settings and container configurations for tests of the translation to CRI."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from setpoint.kinds.typed import Pod
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.pod_settings import PodConfigSettings
from setpoint.node.runtime.interface import ContainerConfig, EnvironmentProvider

UID = "11111111-2222-3333-4444-555555555555"
GI = 1 << 30


def make_pod(*containers: dict[str, Any], metadata: dict[str, Any] | None = None, **spec: Any) -> Pod:
    """Return a Pod; without containers it has one that is called `c`."""
    named: Any = {
        "metadata": {"name": "web", "namespace": "shop", "uid": UID, **(metadata or {})},
        "spec": {"containers": [{"name": "c", "image": "nginx:1", **each} for each in containers or ({},)], **spec},
    }
    return cast(Pod, named)


def make_settings(**changes: Any) -> PodConfigSettings:
    defaults: dict[str, Any] = {
        "node_name": "node-1",
        "memory_capacity": 8 * GI,
        "cluster_dns": ("10.96.0.10",),
        "directories": NodeDirectories(Path("/n"), Path("/l"), Path("/r")),
        "seccomp_root": Path("/s"),
        "cgroup_version": 1,
    }
    return PodConfigSettings(**{**defaults, **changes})


def make_config(pod: Pod, name: str = "", attempt: int = 0) -> ContainerConfig:
    """Return the configuration of a container; the first one of the Pod without a name."""
    spec: Any = pod["spec"]
    containers = [*spec["containers"], *spec.get("initContainers", ()), *spec.get("ephemeralContainers", ())]
    found = next(each for each in containers if name in ("", each["name"]))
    return ContainerConfig(
        name=found["name"],
        image=f"docker.io/library/{found['image']}",
        image_id="sha256:abc",
        attempt=attempt,
        spec=found,
        pod=pod,
        provider=cast(EnvironmentProvider, None),
    )
