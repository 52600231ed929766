"""Rules of nftables for Services: fragments of the section `svc` of the node's table.

Before address translation, `svc-firewall` drops what source ranges exclude and rejects external traffic to Services
without endpoints. `svc-prerouting` and `svc-output` translate destinations by `svc-dispatch`: a lookup by address,
protocol and port leads to the chain of a Service port, which selects an endpoint. A packet that still has a cluster IP
as its destination afterwards is rejected. `svc-postrouting` hides the source where replies would take another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from setpoint.node.host.network.ruleset import ElementKey, Fragment, NftChain, NftSet
from setpoint.node.host.network.services import Endpoint, ServicePort

MARK: Final = 0x4000
"""The bit that marks packets whose source is hidden, and UDP connections that a Service or a host port translates."""
_REJECT: Final = "goto svc-reject"
_IP: Final = {4: "ip", 6: "ip6"}

LocalRedirects = Mapping[tuple[str, str, int], int]
"""Local ports that answer for (address, protocol, port), such as the cluster's DNS for its cluster IP."""


def base_fragment() -> Fragment:
    """Return the sets, maps and chains that all Services share."""
    sets = {"svc-redirect-ports": NftSet("inet_proto . inet_service")}
    for family in (4, 6):
        address = f"ipv{family}_addr"
        at_address, at_port = f"{address} . inet_proto . inet_service : verdict", "inet_proto . inet_service : verdict"
        sets |= {
            f"svc-pod-cidrs{family}": NftSet(address, flags="interval"),
            f"svc-cluster-ips{family}": NftSet(address),
            f"svc-pool-ips{family}": NftSet(address),
            f"svc-hairpin{family}": NftSet(f"{address} . {address}"),
            f"svc-redirects{family}": NftSet(f"{address} . inet_proto . inet_service : inet_service"),
            f"svc-ips{family}": NftSet(at_address),
            f"svc-node-ports{family}": NftSet(at_port),
            f"svc-host-ips{family}": NftSet(at_address),
            f"svc-host-ports{family}": NftSet(at_port),
            f"svc-firewall-ips{family}": NftSet(at_address),
            f"svc-no-endpoints{family}": NftSet(at_address),
            f"svc-no-endpoint-ports{family}": NftSet(at_port),
        }
    hooks = {
        "svc-firewall": "type filter hook prerouting priority -110; policy accept",
        "svc-firewall-output": "type filter hook output priority -110; policy accept",
        "svc-prerouting": "type nat hook prerouting priority -100; policy accept",
        "svc-output": "type nat hook output priority -100; policy accept",
        "svc-translated": "type filter hook prerouting priority -90; policy accept",
        "svc-translated-output": "type filter hook output priority -90; policy accept",
        "svc-input": "type filter hook input priority -10; policy accept",
        "svc-postrouting": "type nat hook postrouting priority 100; policy accept",
    }
    chains = {
        "svc-firewall": ("ct state new jump svc-checks",),
        "svc-firewall-output": ("ct state new jump svc-checks",),
        "svc-checks": tuple(_checks()),
        "svc-local-checks": tuple(_local_checks()),
        "svc-prerouting": ("jump svc-dispatch",),
        "svc-output": ("jump svc-dispatch",),
        "svc-dispatch": tuple(_dispatch()),
        "svc-dispatch-local": tuple(_dispatch_local()),
        "svc-translated": tuple(_untranslated()),
        "svc-translated-output": tuple(_untranslated()),
        "svc-reject": ("meta l4proto tcp reject with tcp reset", "reject with icmpx port-unreachable"),
        # Only translated packets reach a local server that answers for a Service.
        "svc-input": ('iifname != "lo" meta l4proto . th dport @svc-redirect-ports ct status ! dnat drop',),
        "svc-mark": (f"meta mark set meta mark | {MARK:#x}",),
        "svc-postrouting": tuple(_postrouting()),
        "svc-masquerade": (f"meta mark set meta mark ^ {MARK:#x}", "masquerade fully-random"),
    }
    return Fragment(sets, {name: NftChain(rules, hooks.get(name, "")) for name, rules in chains.items()})


def _checks() -> Iterator[str]:
    for family, ip in _IP.items():
        yield f"{ip} daddr . meta l4proto . th dport vmap @svc-firewall-ips{family}"
        yield f"{ip} daddr . meta l4proto . th dport vmap @svc-no-endpoints{family}"
    yield "fib daddr type local goto svc-local-checks"


def _local_checks() -> Iterator[str]:
    for family in _IP:
        yield f"meta nfproto ipv{family} meta l4proto . th dport vmap @svc-no-endpoint-ports{family}"


def _dispatch() -> Iterator[str]:
    for family, ip in _IP.items():
        yield (
            f"meta l4proto {{ tcp, udp }} redirect to :{ip} daddr . meta l4proto . th dport map @svc-redirects{family}"
        )
    for family, ip in _IP.items():
        yield f"{ip} daddr @svc-cluster-ips{family} {ip} saddr != @svc-pod-cidrs{family} jump svc-mark"
        yield f"{ip} daddr . meta l4proto . th dport vmap @svc-ips{family}"
        yield f"{ip} daddr . meta l4proto . th dport vmap @svc-host-ips{family}"
    yield "fib daddr type local goto svc-dispatch-local"


def _dispatch_local() -> Iterator[str]:
    yield "ip daddr 127.0.0.0/8 return"
    yield "ip6 daddr ::1 return"
    for family in _IP:
        yield f"meta nfproto ipv{family} meta l4proto . th dport vmap @svc-node-ports{family}"
        yield f"meta nfproto ipv{family} meta l4proto . th dport vmap @svc-host-ports{family}"


def _untranslated() -> Iterator[str]:
    for family, ip in _IP.items():
        yield f"{ip} daddr @svc-cluster-ips{family} {_REJECT}"
        yield f"{ip} daddr @svc-pool-ips{family} {_REJECT}"


def _postrouting() -> Iterator[str]:
    # A server answers a client of the same machine from the client's address, which has to be the redirected one.
    for ip, loopback in (("ip", "127.0.0.1"), ("ip6", "::1")):
        redirected = f'oifname "lo" ct status dnat {ip} daddr {loopback} meta l4proto . th dport @svc-redirect-ports'
        yield f"{redirected} snat {ip} to {loopback}"
    yield f"meta mark & {MARK:#x} == {MARK:#x} jump svc-masquerade"
    for family, ip in _IP.items():
        yield f"ct status dnat {ip} saddr . {ip} daddr @svc-hairpin{family} masquerade fully-random"


def network_fragment(pod_cidrs: Iterable[str]) -> Fragment:
    """Return the elements for the Pod CIDRs of the node: Pods in them keep their source."""
    networks = [ip_network(each) for each in pod_cidrs]
    return Fragment(elements={ElementKey(f"svc-pod-cidrs{each.version}", str(each)): "" for each in networks})


def pool_fragment(addresses: Iterable[str]) -> Fragment:
    """Return the elements for addresses of load balancers that belong to Services alone."""
    return Fragment(
        elements={ElementKey(f"svc-pool-ips{ip.version}", str(ip)): "" for ip in map(ip_address, addresses)}
    )


def redirect_fragment(redirects: LocalRedirects) -> Fragment:
    """Return the elements that redirect addresses of Services to local ports."""
    elements = {}
    for (address, protocol, port), local in redirects.items():
        ip = ip_address(address)
        elements[ElementKey(f"svc-redirects{ip.version}", f"{ip} . {protocol} . {port}")] = str(local)
        elements[ElementKey("svc-redirect-ports", f"{protocol} . {local}")] = ""
    return Fragment(elements=elements)


# -- Services ----------------------------------------------------------------------------------------------------------


def service_fragment(ports: Sequence[ServicePort]) -> Fragment:
    """Return the rules of one Service."""
    sets: dict[str, NftSet] = {}
    chains: dict[str, NftChain] = {}
    elements: dict[ElementKey, str] = {}
    for port in ports:
        _add_port(port, sets, chains, elements)
    return Fragment(sets, chains, elements)


def _add_port(
    port: ServicePort, sets: dict[str, NftSet], chains: dict[str, NftChain], elements: dict[ElementKey, str]
) -> None:
    family, protocol = port.family, port.protocol
    base = f"{family}-{port.namespace}/{port.name}/{protocol}/{port.label}"
    cluster, local, external = f"svc{base}", f"svc-local{base}", f"svc-external{base}"
    elements[ElementKey(f"svc-cluster-ips{family}", port.cluster_ip)] = ""
    for address in port.on_node:
        elements[ElementKey(f"svc-hairpin{family}", f"{address} . {address}")] = ""
    for name, endpoints in ((cluster, port.cluster), (local, port.local)):
        if endpoints:
            chains[name] = NftChain(tuple(_balance(port, base, endpoints)))
    if port.affinity_seconds is not None:
        for endpoint in {*port.cluster, *port.local}:
            remembered = _affinity_set(port, base, endpoint)
            # No size: the kernel would allocate memory for all of it at once. Its own limit is 65535 clients.
            sets[remembered] = NftSet(f"ipv{family}_addr", flags="dynamic,timeout", timeout=port.affinity_seconds)
            update = f"update @{remembered} {{ {_IP[family]} saddr }}"
            chains[_endpoint_chain(base, endpoint)] = NftChain((update, *_translate(protocol, family, (endpoint,))))

    key = f"{port.cluster_ip} . {protocol} . {port.port}"
    if port.internal:
        elements[ElementKey(f"svc-ips{family}", key)] = f"goto {local if port.internal_local else cluster}"
    elif port.has_endpoints:
        # The only reason is the traffic policy Local. Without any endpoint, the cluster IP rejects.
        elements[ElementKey(f"svc-no-endpoints{family}", key)] = "drop"
    if port.is_external:
        _add_external(port, external, (cluster, local), chains, elements)


def _add_external(
    port: ServicePort,
    name: str,
    targets: tuple[str, str],
    chains: dict[str, NftChain],
    elements: dict[ElementKey, str],
) -> None:
    family, protocol = port.family, port.protocol
    addresses = [f"{address} . {protocol} . {port.port}" for address in port.external_ips]
    if not port.has_endpoints:
        elements |= {ElementKey(f"svc-no-endpoints{family}", key): _REJECT for key in addresses}
        if port.node_port:
            elements[ElementKey(f"svc-no-endpoint-ports{family}", f"{protocol} . {port.node_port}")] = _REJECT
        return
    chains[name] = NftChain(tuple(_external_rules(port, *targets)))
    elements |= {ElementKey(f"svc-ips{family}", key): f"goto {name}" for key in addresses}
    if port.node_port:
        elements[ElementKey(f"svc-node-ports{family}", f"{protocol} . {port.node_port}")] = f"goto {name}"
    if port.firewalled_ips:
        firewall = f"{name}/firewall"
        allowed = f"{_IP[family]} saddr {{ {', '.join(port.source_ranges)} }} return"
        chains[firewall] = NftChain((allowed, "drop"))
        for address in port.firewalled_ips:
            key = f"{address} . {protocol} . {port.port}"
            elements[ElementKey(f"svc-firewall-ips{family}", key)] = f"goto {firewall}"


def _external_rules(port: ServicePort, cluster: str, local: str) -> Iterator[str]:
    ip, pods = _IP[port.family], f"@svc-pod-cidrs{port.family}"
    if not port.external_local:
        yield f"{ip} saddr != {pods} jump svc-mark"
        yield f"goto {cluster}"
        return
    # Traffic from Pods and from the node itself is not external.
    if port.cluster:
        yield f"{ip} saddr {pods} goto {cluster}"
        yield "fib saddr type local jump svc-mark"
        yield f"fib saddr type local goto {cluster}"
    yield f"goto {local}" if port.local else "drop"


def _balance(port: ServicePort, base: str, endpoints: Sequence[Endpoint]) -> Iterator[str]:
    if port.affinity_seconds is None:
        yield from _translate(port.protocol, port.family, endpoints)
        return
    names = [_endpoint_chain(base, each) for each in endpoints]
    for endpoint, name in zip(endpoints, names, strict=True):
        yield f"{_IP[port.family]} saddr @{_affinity_set(port, base, endpoint)} goto {name}"
    choices = ", ".join(f"{index} : goto {name}" for index, name in enumerate(names))
    yield f"numgen random mod {len(names)} vmap {{ {choices} }}"


def _translate(protocol: str, family: int, endpoints: Sequence[Endpoint]) -> Iterator[str]:
    if protocol == "udp":
        yield mark_connection()
    if len(endpoints) == 1:
        yield translation(protocol, family, endpoints[0])
        return
    choices = ", ".join(f"{index} : {each.address} . {each.port}" for index, each in enumerate(endpoints))
    yield f"meta l4proto {protocol} dnat {_IP[family]} to numgen random mod {len(endpoints)} map {{ {choices} }}"


def mark_connection() -> str:
    """Return the rule that marks a connection as translated by this table, for the cleaning of stale entries."""
    return f"ct mark set ct mark | {MARK:#x}"


def translation(protocol: str, family: int, endpoint: Endpoint) -> str:
    """Return the rule that sends a connection to an endpoint."""
    address = endpoint.address if family == 4 else f"[{endpoint.address}]"
    return f"meta l4proto {protocol} dnat {_IP[family]} to {address}:{endpoint.port}"


def _endpoint_chain(base: str, endpoint: Endpoint) -> str:
    return f"svc-endpoint{base}/{_identifier(endpoint)}"


def _affinity_set(port: ServicePort, base: str, endpoint: Endpoint) -> str:
    return f"svc-affinity{base}/{port.affinity_seconds}/{_identifier(endpoint)}"


def _identifier(endpoint: Endpoint) -> str:
    """Return the endpoint in characters that names of chains may have."""
    return f"{endpoint.address.replace(':', '.')}/{endpoint.port}"
