"""Which UDP connections are stale."""

from __future__ import annotations

import pytest
from service_objects import endpoint, endpoint_slice, service

from setpoint.node.host.network.conntrack import Connection, destinations, parse_connection
from setpoint.node.host.network.host_ports import HostPort
from setpoint.node.host.network.services import Endpoint, Topology, service_ports

LINE = (
    "udp      17 29 src=10.244.1.3 dst=10.96.0.10 sport=35061 dport=53 [UNREPLIED] "
    "src=10.244.1.9 dst=10.244.1.3 sport=5353 dport=35061 mark=16384 use=1"
)
LINE6 = (
    "udp      17 170 src=fd00::3 dst=fd00:0::11 sport=35061 dport=30053 src=fd00::9 dst=fd00::11 "
    "sport=53 dport=35061 [ASSURED] mark=0 use=1"
)
SERVICE, NODE = "10.96.0.10", "192.0.2.1"
DNS = [{"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053}]


def test_lines_of_conntrack() -> None:
    assert parse_connection(LINE) == Connection(Endpoint(SERVICE, 53), Endpoint("10.244.1.9", 5353), True, True)
    assert parse_connection(LINE6) == Connection(Endpoint("fd00::11", 30053), Endpoint("fd00::9", 53), False, False)
    for other in ("", "conntrack v1.4.7 (conntrack-tools): 1 flow entries have been shown.", LINE.replace("=53", "=x")):
        assert parse_connection(other) is None


def connection(destination: str, port: int, target: str, target_port: int = 5353, marked: bool = True) -> Connection:
    return Connection(Endpoint(destination, port), Endpoint(target, target_port), True, marked)


@pytest.mark.parametrize(
    ("found", "stale"),
    [
        (connection(SERVICE, 53, "10.244.1.2"), False),
        (connection(SERVICE, 53, "10.244.1.9"), True),
        (connection(SERVICE, 53, "10.244.1.2", 53), True),
        (connection(NODE, 30053, "10.244.1.2"), False),
        (connection(NODE, 30053, "10.244.1.9"), True),
        (connection("10.96.0.11", 53, "10.244.1.2"), True),  # the Service is gone
        (connection("10.96.0.12", 53, "10.244.1.2"), True),  # the Service has no endpoints
        (connection("10.96.0.11", 53, "10.244.1.2", marked=False), False),  # another program translated it
        (connection(SERVICE, 53, "127.0.0.1", 10053, marked=False), False),  # redirected to a local server
        (connection(SERVICE, 53, SERVICE, 53, marked=False), True),  # older than the Service
        (connection("10.96.0.12", 53, "10.96.0.12", 53, marked=False), False),
        (connection(NODE, 30053, NODE, 30053, marked=False), True),
        (connection(NODE, 8053, "10.244.1.5", 53), False),
        (connection(NODE, 8053, "10.244.1.6", 53), True),
        (connection("192.0.2.2", 8054, "10.244.1.5", 53), False),
        (connection("192.0.2.3", 8054, "10.244.1.5", 53), True),
    ],
)
def test_stale_connections(found: Connection, stale: bool) -> None:
    topology = Topology("node-a")
    slices = [endpoint_slice("dns", endpoint("10.244.1.2"), port_name="dns", port=5353, protocol="UDP")]
    services = [
        service_ports(service("dns", SERVICE, type="NodePort", ports=DNS), slices, topology),
        service_ports(service("empty", "10.96.0.12", ports=[{"port": 53, "protocol": "UDP"}]), [], topology),
        service_ports(service("web", "10.96.0.13"), slices, topology),
    ]
    target = Endpoint("10.244.1.5", 53)
    ports = [HostPort("udp", 8053, target), HostPort("udp", 8054, target, "192.0.2.2")]
    assert destinations(services, [ports]).is_stale(found) == stale
