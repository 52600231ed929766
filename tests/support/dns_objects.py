"""Services, EndpointSlices and namespaces for tests of the DNS server, and a fixed set of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.meta.objects import Obj
from setpoint.node.host.network.dns.zone import ClusterZone

SERIAL = 1_800_000_000
DOMAIN = "cluster.local"


def namespace(name: str) -> Obj:
    return {"metadata": {"name": name}}


def port(name: str, number: int, protocol: str = "TCP") -> Obj:
    return {"port": number, "protocol": protocol, **({"name": name} if name else {})}


def service(name: str, *addresses: str, ports: Sequence[Obj] = (), namespace: str = "shop", **spec: Any) -> Obj:
    found: Obj = {"type": "ClusterIP", "ports": list(ports), **spec}
    if addresses:
        found |= {"clusterIP": addresses[0], "clusterIPs": list(addresses)}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": found}


def headless(name: str, ports: Sequence[Obj] = (), **options: Any) -> Obj:
    return service(name, "None", ports=ports, **options)


def external(name: str, target: str) -> Obj:
    return service(name, type="ExternalName", externalName=target)


def endpoint(*addresses: str, hostname: str = "", ready: bool | None = True) -> Obj:
    found: Obj = {"addresses": list(addresses), "conditions": {} if ready is None else {"ready": ready}}
    return {**found, "hostname": hostname} if hostname else found


def endpoint_slice(
    of: str,
    *endpoints: Obj,
    ports: Sequence[Obj] = (),
    suffix: str = "a",
    family: str = "IPv4",
    namespace: str = "shop",
) -> Obj:
    labels = {"kubernetes.io/service-name": of}
    return {
        "metadata": {"name": f"{of}-{suffix}", "namespace": namespace, "labels": labels},
        "addressType": family,
        "endpoints": list(endpoints),
        "ports": list(ports),
    }


HTTP, UNNAMED, DNS_UDP = port("http", 80), port("", 9000), port("dns", 53, "UDP")
HTTPS_BEHIND = port("https", 8443)


def example_zone() -> ClusterZone:
    """Return a zone with every form of Service."""
    zone = ClusterZone(DOMAIN, lambda: SERIAL, ["10.96.0.10"])
    for name in ("default", "shop", "empty"):
        zone.namespace_changed(None, namespace(name))
    for each in (
        service("kubernetes", "10.96.0.1", ports=[port("https", 443)], namespace="default"),
        service("web", "10.96.0.20", ports=[HTTP, port("admin", 8080), UNNAMED, DNS_UDP]),
        service("six", "fd00::20", ports=[HTTP]),
        service("dual", "10.96.0.30", "fd00::30", ports=[HTTP]),
        service("portless", "10.96.0.40"),
        headless("db", [port("https", 443)]),
        headless("idle", [HTTP]),
        headless("unready", [HTTP]),
        headless("early", [HTTP], publishNotReadyAddresses=True),
        headless("bare"),
        external("wiki", "www.Example.com"),
        external("alias", "web.shop.svc.cluster.local."),
        external("dangling", "none.shop.svc.cluster.local"),
        external("loop-a", "loop-b.shop.svc.cluster.local"),
        external("loop-b", "loop-a.shop.svc.cluster.local"),
        external("number", "192.0.2.1"),
    ):
        zone.service_changed(None, each)
    for each in (
        endpoint_slice("web", endpoint("10.244.1.1"), endpoint("10.244.1.2", hostname="second"), ports=[HTTP]),
        endpoint_slice(
            "db",
            endpoint("10.244.2.1", hostname="db-0"),
            endpoint("10.244.2.2", hostname="db-1"),
            endpoint("10.244.2.3"),
            endpoint("10.244.2.9", hostname="db-9", ready=False),
            endpoint("10.244.2.4", hostname="db-4", ready=None),
            ports=[HTTPS_BEHIND],
        ),
        # The same endpoint may be in two slices for a moment.
        endpoint_slice("db", endpoint("10.244.2.1", hostname="db-0"), ports=[HTTPS_BEHIND], suffix="b"),
        endpoint_slice(
            "db",
            endpoint("fd00:244::1", hostname="db-0"),
            endpoint("fd00:244::5"),
            ports=[HTTPS_BEHIND],
            suffix="c",
            family="IPv6",
        ),
        endpoint_slice("unready", endpoint("10.244.3.1", ready=False), ports=[HTTP]),
        # The controller sets `ready` for all endpoints if publishNotReadyAddresses is set.
        endpoint_slice("early", endpoint("10.244.4.1", hostname="early-0", ready=True), ports=[HTTP]),
        endpoint_slice("bare", endpoint("10.244.5.1")),
        endpoint_slice("gone", endpoint("10.244.6.1", hostname="left"), ports=[HTTP]),
    ):
        zone.slice_changed(None, each)
    return zone
