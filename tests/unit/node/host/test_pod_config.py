"""The configuration of sandboxes."""

from __future__ import annotations

from typing import Any

import pytest
from host_pods import UID, make_pod, make_settings

from setpoint.node.host.pod_config import UnsupportedByRuntime, port_mappings, sandbox_config
from setpoint.node.host.pod_dns import ResolvConf

DNS = ResolvConf(("10.96.0.10",), ("shop.svc.cluster.local",), ("ndots:5",))
PARENT = "/kubepods/besteffort/pod" + UID


def configure(pod: Any, attempt: int = 0, **settings: Any) -> dict[str, Any]:
    return sandbox_config(pod, attempt, make_settings(**settings), PARENT, DNS)


def test_a_whole_sandbox() -> None:
    pod = make_pod(
        {"ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]},
        metadata={"labels": {"app": "web"}, "annotations": {"note": "x"}},
        subdomain="sub",
        setHostnameAsFQDN=True,
        overhead={"cpu": "100m"},
        securityContext={"sysctls": [{"name": "net/ipv4/tcp_syncookies", "value": "1"}], "fsGroup": 9},
    )
    assert configure(pod, 3) == {
        "metadata": {"name": "web", "uid": UID, "namespace": "shop", "attempt": 3},
        "hostname": "web.sub.shop.svc.cluster.local",
        "log_directory": f"/l/shop_web_{UID}",
        "dns_config": {"servers": ["10.96.0.10"], "searches": ["shop.svc.cluster.local"], "options": ["ndots:5"]},
        "port_mappings": [{"protocol": 0, "container_port": 80, "host_port": 8080, "host_ip": ""}],
        "labels": {
            "app": "web",
            "io.kubernetes.pod.name": "web",
            "io.kubernetes.pod.namespace": "shop",
            "io.kubernetes.pod.uid": UID,
            "setpoint.dev/node": "node-1",
        },
        "annotations": {"note": "x", "kubernetes.io/config.source": "api"},
        "linux": {
            "cgroup_parent": PARENT,
            "security_context": {
                "namespace_options": {"network": 0, "pid": 1, "ipc": 0, "userns_options": {"mode": 2}},
                "privileged": False,
                "seccomp": {"profile_type": 0},
                "supplemental_groups": [9],
            },
            "sysctls": {"net.ipv4.tcp_syncookies": "1"},
            "resources": {"cpu_shares": 2, "cpu_quota": 0, "cpu_period": 100000},
            "overhead": {"cpu_shares": 102, "cpu_quota": 10000, "cpu_period": 100000},
        },
    }


def test_the_network_of_the_node_has_its_host_name() -> None:
    found = configure(make_pod(hostNetwork=True, hostname="www"))
    assert found["hostname"] == ""
    assert found["linux"]["security_context"]["namespace_options"]["network"] == 2


def test_without_overhead() -> None:
    assert "overhead" not in configure(make_pod())["linux"]


def test_a_user_namespace_is_refused_before_anything_is_created() -> None:
    with pytest.raises(UnsupportedByRuntime):
        configure(make_pod(hostUsers=False))


def port(number: int, host: int = 0, protocol: int = 0, ip: str = "") -> dict[str, Any]:
    return {"protocol": protocol, "container_port": number, "host_port": host, "host_ip": ip}


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([{"containerPort": 80}], [port(80)]),
        ([{"containerPort": 53, "protocol": "UDP", "hostPort": 53}], [port(53, 53, 1)]),
        ([{"containerPort": 9, "protocol": "SCTP", "hostIP": "127.0.0.1"}], [port(9, 0, 2, "127.0.0.1")]),
        ([{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}], [port(80)]),
        ([{"containerPort": 80}, {"containerPort": 80}], [port(80)]),
        (
            [{"containerPort": 80, "hostPort": 1, "hostIP": "::1"}, {"containerPort": 80, "hostPort": 1}],
            [port(80, 1, 0, "::1"), port(80, 1)],
        ),
    ],
)
def test_ports(ports: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert port_mappings(make_pod({"ports": ports})) == expected


def test_ports_of_all_containers_but_no_init_containers() -> None:
    ports = [{"containerPort": 80}]
    init = {"name": "i", "image": "x", "ports": [{"containerPort": 81}]}
    pod = make_pod({"name": "a", "ports": ports}, {"name": "b", "ports": ports}, initContainers=[init])
    assert port_mappings(pod) == [port(80), port(80)]
