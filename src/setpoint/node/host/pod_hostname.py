"""The host name of a Pod, and the content of its file /etc/hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from setpoint.meta.goformat import quote
from setpoint.meta.names import dns1123_label, dns1123_subdomain
from setpoint.meta.objects import ObjView
from setpoint.node.environment import ContainerConfigError

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_MAX_HOSTNAME = 63
_MAX_FQDN = 64
_HEADER = "# Kubernetes-managed hosts file.\n"
_HOST_NETWORK_HEADER = "# Kubernetes-managed hosts file (host network).\n"
_LOCAL_ENTRIES = (
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)


class PodHostname(NamedTuple):
    name: str
    domain: str
    """The domain of the Pod's subdomain; empty if the Pod has none."""


def pod_hostname(pod: Pod, cluster_domain: str) -> PodHostname:
    """Return the host name of a Pod, truncated to 63 characters. Raise ContainerConfigError if it is invalid."""
    spec, meta = pod["spec"], pod["metadata"]
    override = spec.get("hostnameOverride")
    if override is not None:
        _check("pod HostnameOverride", override, "a valid DNS subdomain", dns1123_subdomain(override))
        return PodHostname(_truncated(meta["name"], override), "")
    name = spec.get("hostname") or ""
    if name:
        _check("pod Hostname", name, "a valid DNS label", dns1123_label(name))
    name = _truncated(meta["name"], name or meta["name"])
    subdomain = spec.get("subdomain") or ""
    if not subdomain:
        return PodHostname(name, "")
    _check("pod Subdomain", subdomain, "a valid DNS label", dns1123_label(subdomain))
    return PodHostname(name, f"{subdomain}.{meta['namespace']}.svc.{cluster_domain}")


def kernel_hostname(pod: Pod, cluster_domain: str) -> str:
    """Return the host name that the kernel reports in the Pod: with its domain, if the Pod sets setHostnameAsFQDN."""
    name, domain = pod_hostname(pod, cluster_domain)
    if not domain or not pod["spec"].get("setHostnameAsFQDN"):
        return name
    fqdn = f"{name}.{domain}"
    if len(fqdn) > _MAX_FQDN:
        raise ContainerConfigError(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long "
            f"({_MAX_FQDN} characters is the max, {len(fqdn)} characters requested)"
        )
    return fqdn


def hosts_file(pod: Pod, ips: Iterable[str], cluster_domain: str, node_hosts: str = "") -> str:
    """Return the content of the Pod's file /etc/hosts. `node_hosts` is that of the node, which Pods in its network
    get."""
    spec = pod["spec"]
    aliases = _alias_entries(spec.get("hostAliases") or ())
    if spec.get("hostNetwork"):
        return _HOST_NETWORK_HEADER + node_hosts + aliases
    name, domain = pod_hostname(pod, cluster_domain)
    names = f"{name}.{domain}\t{name}" if domain else name
    return _HEADER + _LOCAL_ENTRIES + "".join(f"{ip}\t{names}\n" for ip in ips) + aliases


def _alias_entries(aliases: Sequence[ObjView]) -> str:
    if not aliases:
        return ""
    lines = ["\t".join([each.get("ip") or "", *(each.get("hostnames") or ())]) + "\n" for each in aliases]
    return "\n# Entries added by HostAliases.\n" + "".join(lines)


def _check(what: str, value: str, expected: str, errors: Sequence[str]) -> None:
    if errors:
        raise ContainerConfigError(f"{what} {quote(value)} is not {expected}: {';'.join(errors)}")


def _truncated(pod_name: str, hostname: str) -> str:
    if len(hostname) <= _MAX_HOSTNAME:
        return hostname
    truncated = hostname[:_MAX_HOSTNAME].rstrip("-.")
    if not truncated:
        raise ContainerConfigError(f"hostname for pod {quote(pod_name)} was invalid: {quote(hostname)}")
    return truncated
