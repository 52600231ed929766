"""The DNS resolver configuration of Pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.environment import ContainerConfigError
from setpoint.node.host.pod_settings import PodConfigSettings, describe_pod

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_MAX_NAMESERVERS = 3
_MAX_SEARCHES = 32
_MAX_SEARCH_CHARACTERS = 2048
_MAX_DOMAIN = 253
_CLUSTER_OPTIONS = ("ndots:5",)
_FORMING, _MISSING = "DNSConfigForming", "MissingClusterDNS"


class ResolvConf(NamedTuple):
    """A parsed file resolv.conf."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def message(self) -> Obj:
        """Return CRI's DNSConfig."""
        return {"servers": list(self.servers), "searches": list(self.searches), "options": list(self.options)}


class DnsWarning(NamedTuple):
    """A warning Event of the Pod."""

    reason: str
    message: str


class PodDns(NamedTuple):
    config: ResolvConf
    warnings: tuple[DnsWarning, ...] = ()


def parse_resolv_conf(text: str) -> ResolvConf:
    """Parse a file resolv.conf. Name servers accumulate, the last search line wins, and later options replace earlier
    ones of the same name."""
    servers: list[str] = []
    searches: list[str] = []
    options: dict[str, str] = {}
    for line in text.split("\n"):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        keyword, values = fields[0], fields[1:]
        if keyword == "nameserver":
            if not values:
                raise ContainerConfigError(
                    "Encountered error while parsing resolv conf file. Error: nameserver list is empty "
                )
            servers.append(values[0])
        elif keyword == "search":
            searches = [value.removesuffix(".") for value in values if value != "."]
        elif keyword == "options":
            options |= {value.partition(":")[0]: value for value in values}
    return ResolvConf(tuple(servers), tuple(searches), tuple(options.values()))


def pod_dns(pod: Pod, host: ResolvConf, settings: PodConfigSettings) -> PodDns:
    """Return the resolver configuration of a Pod, within the limits of the resolvers. `host` is that of the node."""
    spec = pod["spec"]
    warnings: list[DnsWarning] = []
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    found = host
    if policy == "None":
        found = ResolvConf()
    elif policy != "Default" and not (policy == "ClusterFirst" and spec.get("hostNetwork")):
        if settings.cluster_dns:
            searches = _cluster_searches(pod["metadata"]["namespace"], settings.cluster_domain, host.searches)
            found = ResolvConf(settings.cluster_dns, searches, _CLUSTER_OPTIONS)
        else:
            warnings.append(_missing_dns_warning(pod))
    custom = spec.get("dnsConfig")
    if custom:
        found = _merged(found, custom)
    servers, searches = _fitting_servers(found.servers, warnings), _fitting_searches(found.searches, warnings)
    return PodDns(ResolvConf(servers, searches, found.options), tuple(warnings))


def _cluster_searches(namespace: str, domain: str, host: Sequence[str]) -> tuple[str, ...]:
    if not domain:
        return tuple(host)
    return _unique((f"{namespace}.svc.{domain}", f"svc.{domain}", domain, *host))


def _missing_dns_warning(pod: Pod) -> DnsWarning:
    text = (
        'kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. '
        'Falling back to "Default" policy.'
    )
    return DnsWarning(_MISSING, f"pod: {quote(describe_pod(pod))}. {text}")


def _merged(config: ResolvConf, custom: ObjView) -> ResolvConf:
    options: dict[str, str] = {}
    for option in config.options:
        name, _, value = option.partition(":")
        options[name] = value
    for entry in custom.get("options") or ():
        options[entry.get("name") or ""] = entry.get("value") or ""
    return ResolvConf(
        _unique((*config.servers, *(custom.get("nameservers") or ()))),
        _unique((*config.searches, *(custom.get("searches") or ()))),
        tuple(f"{name}:{value}" if value else name for name, value in options.items()),
    )


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _fitting_servers(servers: tuple[str, ...], warnings: list[DnsWarning]) -> tuple[str, ...]:
    if len(servers) <= _MAX_NAMESERVERS:
        return servers
    kept = servers[:_MAX_NAMESERVERS]
    text = "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "
    warnings.append(DnsWarning(_FORMING, text + " ".join(kept)))
    return kept


def _fitting_searches(searches: tuple[str, ...], warnings: list[DnsWarning]) -> tuple[str, ...]:
    # Some resolvers abort on a domain that is too long, so it is left out rather than passed on.
    kept = [search for search in searches[:_MAX_SEARCHES] if len(search) <= _MAX_DOMAIN]
    while len(" ".join(kept)) > _MAX_SEARCH_CHARACTERS:
        kept.pop()
    if len(kept) != len(searches):
        text = "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "
        warnings.append(DnsWarning(_FORMING, text + " ".join(kept)))
    return tuple(kept)
