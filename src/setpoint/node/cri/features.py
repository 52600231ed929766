"""The abilities of a container runtime, as far as CRI reveals them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.cri.enums import CgroupDriver
from setpoint.wire.grpc import Code


@dataclass(frozen=True, slots=True)
class HandlerFeatures:
    """The abilities of a runtime handler, such as runc."""

    recursive_read_only_mounts: bool = False
    user_namespaces: bool = False


@dataclass(frozen=True, slots=True)
class RuntimeFeatures:
    """The name and the abilities of a runtime. A runtime that does not mention an ability does not have it: containerd
    1.6 ignores requests for user namespaces and recursive read-only mounts without an error."""

    name: str
    version: str
    api_version: str
    cgroup_driver: CgroupDriver | None = None
    """The cgroup driver that the runtime uses; None if it is not known."""
    supplemental_groups_policy: bool = False
    user_namespaces_host_network: bool = False
    mount_options: bool = False
    handlers: Mapping[str, HandlerFeatures] = field(default_factory=dict)
    """The runtime handlers by name; that of the empty name is the default. Empty if they are not known."""

    def handler(self, name: str = "") -> HandlerFeatures:
        """Return the features of a handler, none if it is not known."""
        return self.handlers.get(name) or HandlerFeatures()


async def detect_features(client: CriClient, timeout: float = 10.0) -> RuntimeFeatures:
    """Ask a runtime for its features. Raise CriError."""
    version = await client.call("Version", timeout=timeout)
    status = await client.call("Status", timeout=timeout)
    driver: CgroupDriver | None = None
    try:
        config = await client.call("RuntimeConfig", timeout=timeout)
        if config.HasField("linux"):
            driver = CgroupDriver(config.linux.cgroup_driver)
    except CriError as error:
        if error.code is not Code.UNIMPLEMENTED:
            raise
        # containerd before 2.0 shows its configuration instead.
        info = (await client.call("Status", {"verbose": True}, timeout=timeout)).info
        driver = _configured_driver(info.get("config", ""))
    except ValueError:  # a driver that is not known yet
        driver = None
    return RuntimeFeatures(
        name=version.runtime_name,
        version=version.runtime_version,
        api_version=version.runtime_api_version,
        cgroup_driver=driver,
        supplemental_groups_policy=status.features.supplemental_groups_policy,
        user_namespaces_host_network=status.features.user_namespaces_host_network,
        mount_options=status.features.mount_options,
        handlers={
            one.name: HandlerFeatures(one.features.recursive_read_only_mounts, one.features.user_namespaces)
            for one in status.runtime_handlers
        },
    )


def cgroup_driver_problem(features: RuntimeFeatures) -> str:
    """Return why the agent cannot use a runtime because of its cgroup driver; empty if it can, or if the driver is not
    known."""
    if features.cgroup_driver is not CgroupDriver.SYSTEMD:
        return ""
    return (
        f"{features.name or 'the container runtime'} uses the cgroup driver systemd, and the agent needs cgroupfs: "
        "set `SystemdCgroup = false` for its runtimes, and restart it"
    )


def _configured_driver(text: str) -> CgroupDriver | None:
    """Return the cgroup driver in the configuration that containerd reports; None if there is none."""
    try:
        config: Any = json.loads(text)
        runtimes = config["containerd"]
        options = runtimes["runtimes"][runtimes["defaultRuntimeName"]].get("options") or {}
        uses_systemd = options.get("SystemdCgroup") or config.get("systemdCgroup")
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return CgroupDriver.SYSTEMD if uses_systemd else CgroupDriver.CGROUPFS
