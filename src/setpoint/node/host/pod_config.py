"""The configuration of Pod sandboxes in CRI's terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from setpoint.meta.objects import Obj
from setpoint.node.cri.enums import PortProtocol
from setpoint.node.host.pod_dns import ResolvConf
from setpoint.node.host.pod_hostname import kernel_hostname
from setpoint.node.host.pod_settings import (
    IdRange,
    PodConfigSettings,
    PodFeatures,
    UnsupportedByRuntime,
    describe_pod,
)
from setpoint.node.host.resources import sandbox_overhead, sandbox_resources
from setpoint.node.host.runtime_labels import sandbox_annotations, sandbox_labels
from setpoint.node.host.security import sandbox_security_context
from setpoint.node.host.sysctls import normalized

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

__all__ = [
    "IdRange",
    "PodConfigSettings",
    "PodFeatures",
    "UnsupportedByRuntime",
    "describe_pod",
    "port_mappings",
    "sandbox_config",
]

_PROTOCOLS = {"TCP": PortProtocol.TCP, "UDP": PortProtocol.UDP, "SCTP": PortProtocol.SCTP}


def sandbox_config(
    pod: Pod,
    attempt: int,
    settings: PodConfigSettings,
    cgroup_parent: str,
    dns: ResolvConf,
    *,
    extra_groups: Sequence[int] = (),
    id_range: IdRange | None = None,
) -> Obj:
    """Return CRI's PodSandboxConfig.

    `dns` is the configuration from `pod_dns`, `extra_groups` are the groups of the Pod's volumes, and `id_range` is
    needed by Pods with a user namespace. Raise ContainerConfigError, with the message of the kubelet, if the sandbox
    cannot be created.
    """
    meta, spec = pod["metadata"], pod["spec"]
    uid, namespace, name = meta["uid"], meta["namespace"], meta["name"]
    security = sandbox_security_context(pod, settings, extra_groups=extra_groups, id_range=id_range)
    linux: Obj = {
        "cgroup_parent": cgroup_parent,
        "security_context": security,
        "sysctls": _sysctls(pod),
        "resources": sandbox_resources(pod, settings),
    }
    overhead = sandbox_overhead(pod, settings)
    if overhead is not None:
        linux["overhead"] = overhead
    return {
        "metadata": {"name": name, "uid": uid, "namespace": namespace, "attempt": attempt},
        # The runtime refuses to change the host name of the node.
        "hostname": "" if spec.get("hostNetwork") else kernel_hostname(pod, settings.cluster_domain),
        "log_directory": str(settings.directories.pod_logs(namespace, name, uid)),
        "dns_config": dns.message(),
        "port_mappings": port_mappings(pod),
        "labels": sandbox_labels(pod, settings.node_name),
        "annotations": sandbox_annotations(pod),
        "linux": linux,
    }


def port_mappings(pod: Pod) -> list[Obj]:
    """Return CRI's PortMappings of all ports of the containers; those without a port of the host have `host_port` 0. A
    port whose name, or whole content, occurs twice in a container is mapped once."""
    found: list[Obj] = []
    for container in pod["spec"]["containers"]:
        seen: set[tuple[str, ...]] = set()
        for port in container.get("ports") or ():
            protocol, host_ip = port.get("protocol") or "TCP", port.get("hostIP") or ""
            host_port = port.get("hostPort") or 0
            name = port.get("name")
            key = (name,) if name else (protocol, host_ip, str(port["containerPort"]), str(host_port))
            if key in seen:
                continue
            seen.add(key)
            found.append(
                {
                    "protocol": _PROTOCOLS.get(protocol, PortProtocol.TCP),
                    "container_port": port["containerPort"],
                    "host_port": host_port,
                    "host_ip": host_ip,
                }
            )
    return found


def _sysctls(pod: Pod) -> dict[str, str]:
    entries = (pod["spec"].get("securityContext") or {}).get("sysctls") or ()
    return {normalized(entry["name"]): entry.get("value") or "" for entry in entries}
