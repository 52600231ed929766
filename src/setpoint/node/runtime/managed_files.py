"""Files that the kubelet or the runtime provides in every container, and the cgroup limits."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log2
from typing import TYPE_CHECKING, Any

from setpoint.meta.objects import ObjView
from setpoint.meta.quantity import parse
from setpoint.node.runtime.files import User
from setpoint.node.runtime.network import CLUSTER_DNS

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_DOMAIN = "cluster.local"
_NODE_DNS = "nameserver 10.0.0.2\n"
_CPU_PERIOD = 100_000

_SYSCTLS = {"kernel.shm_rmid_forced": "0", "net.ipv4.ip_unprivileged_port_start": "0", "net.core.somaxconn": "4096"}
"""The default values of namespaced sysctls."""

NODE_FILES = {
    "/etc/hosts": "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
    "/etc/resolv.conf": _NODE_DNS,
}
"""Files of the node itself, as far as host path volumes show them."""


def hostname_of(pod: Pod) -> str:
    spec = pod["spec"]
    return str(spec.get("hostnameOverride") or spec.get("hostname") or pod["metadata"]["name"])[:63].rstrip("-.")


def managed_files(pod: Pod, address: str) -> dict[str, str]:
    sysctls = {
        **_SYSCTLS,
        **{
            each["name"].replace("/", "."): each["value"]
            for each in (pod["spec"].get("securityContext") or {}).get("sysctls") or ()
        },
    }
    return {
        **{f"/proc/sys/{name.replace('.', '/')}": f"{value}\n" for name, value in sysctls.items()},
        "/etc/hostname": f"{hostname_of(pod)}\n",
        "/etc/hosts": _hosts(pod, address),
        "/etc/resolv.conf": _resolver(pod),
    }


def _hosts(pod: Pod, address: str) -> str:
    spec = pod["spec"]
    if spec.get("hostNetwork"):
        text = "# Kubernetes-managed hosts file (host network).\n" + NODE_FILES["/etc/hosts"]
    else:
        name = hostname_of(pod)
        if spec.get("subdomain"):
            name = f"{name}.{spec['subdomain']}.{pod['metadata']['namespace']}.svc.{_DOMAIN}\t{name}"
        text = (
            "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
            "fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
            f"{address}\t{name}\n"
        )
    aliases = spec.get("hostAliases")
    if aliases:
        lines = "".join("\t".join([each["ip"], *(each.get("hostnames") or ())]) + "\n" for each in aliases)
        text += f"\n# Entries added by HostAliases.\n{lines}"
    return text


def _resolver(pod: Pod) -> str:
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    policy, own = spec.get("dnsPolicy") or "ClusterFirst", spec.get("dnsConfig") or {}
    if policy == "ClusterFirst" and spec.get("hostNetwork"):
        policy = "Default"
    servers, searches, options = ["10.0.0.2"], [], {}
    if policy in ("ClusterFirst", "ClusterFirstWithHostNet"):
        servers, options = [CLUSTER_DNS], {"ndots": "5"}
        searches = [f"{namespace}.svc.{_DOMAIN}", f"svc.{_DOMAIN}", _DOMAIN]
    elif policy == "None":
        servers = []
    servers = [*dict.fromkeys([*servers, *(own.get("nameservers") or ())])]
    searches = [*dict.fromkeys([*searches, *(own.get("searches") or ())])]
    options |= {each["name"]: each.get("value") or "" for each in own.get("options") or ()}
    text = f"search {' '.join(searches)}\n" if searches else ""
    text += "".join(f"nameserver {each}\n" for each in servers)
    resolver_options = [f"{name}:{value}" if value else name for name, value in options.items()]
    return text + (f"options {' '.join(resolver_options)}\n" if resolver_options else "")


def cgroup_files(resources: ObjView) -> dict[str, str]:
    """Return the files of the container's cgroup (version 2) that show its limits."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    cpu, memory = limits.get("cpu"), limits.get("memory")
    quota = max(parse(cpu).milli_value() * _CPU_PERIOD // 1000, 1000) if cpu and parse(cpu).nano else 0
    requested = requests.get("cpu") or cpu
    shares = min(max(parse(requested).milli_value() * 1024 // 1000, 2), 262_144) if requested else 2
    power = log2(shares)
    weight = ceil(10 ** ((power * power + 125 * power) / 612 - 7 / 34)) if shares > 2 else 1
    return {
        "cgroup.controllers": "cpuset cpu io memory pids\n",
        "cpu.max": f"{quota or 'max'} {_CPU_PERIOD}\n",
        "cpu.weight": f"{weight}\n",
        "memory.max": f"{parse(memory).value() if memory and parse(memory).nano else 'max'}\n",
    }


def container_user(pod: Pod, container: Mapping[str, Any]) -> User:
    of_pod, own = pod["spec"].get("securityContext") or {}, container.get("securityContext") or {}
    security_context = {**of_pod, **own}
    extra = [*([of_pod["fsGroup"]] if "fsGroup" in of_pod else []), *(of_pod.get("supplementalGroups") or ())]
    uid, gid = security_context.get("runAsUser") or 0, security_context.get("runAsGroup") or 0
    return User(uid, gid, tuple(sorted(extra)), bool(own.get("privileged")), own.get("allowPrivilegeEscalation", True))
