"""Host names of Pods and /etc/hosts, as the kubelet makes them."""

from __future__ import annotations

from typing import Any

import pytest
from host_pods import make_pod

from setpoint.node.environment import ContainerConfigError
from setpoint.node.host.pod_hostname import hosts_file, kernel_hostname, pod_hostname

LOCAL = """\
# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ("web", "")),
        ({"hostname": "www"}, ("www", "")),
        ({"subdomain": "sub"}, ("web", "sub.shop.svc.cluster.local")),
        ({"hostname": "www", "subdomain": "sub"}, ("www", "sub.shop.svc.cluster.local")),
        ({"hostnameOverride": "a.example.com", "hostname": "www", "subdomain": "sub"}, ("a.example.com", "")),
    ],
)
def test_name_and_domain(spec: dict[str, Any], expected: tuple[str, str]) -> None:
    assert pod_hostname(make_pod(**spec), "cluster.local") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("x" * 63, "x" * 63), ("x" * 64, "x" * 63), ("x" * 61 + "-.yyyy", "x" * 61)],
)
def test_long_names_are_truncated(name: str, expected: str) -> None:
    assert pod_hostname(make_pod(metadata={"name": name}), "cluster.local").name == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"hostname": "A"}, 'pod Hostname "A" is not a valid DNS label: a lowercase RFC 1123 label'),
        ({"subdomain": "a.b"}, 'pod Subdomain "a.b" is not a valid DNS label: must not contain dots'),
        ({"hostnameOverride": "_"}, 'pod HostnameOverride "_" is not a valid DNS subdomain: a lowercase RFC 1123'),
    ],
)
def test_invalid_names(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ContainerConfigError) as caught:
        pod_hostname(make_pod(**spec), "cluster.local")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"setHostnameAsFQDN": True}, "web"),
        ({"setHostnameAsFQDN": False, "subdomain": "sub"}, "web"),
        ({"setHostnameAsFQDN": True, "subdomain": "sub"}, "web.sub.shop.svc.cluster.local"),
    ],
)
def test_the_kernel_shows_the_full_name_on_demand(spec: dict[str, Any], expected: str) -> None:
    assert kernel_hostname(make_pod(**spec), "cluster.local") == expected


def test_a_full_name_of_64_characters_is_the_longest() -> None:
    domain = ".sub.shop.svc.cluster.local"
    longest = "x" * (64 - len(domain))
    spec: dict[str, Any] = {"setHostnameAsFQDN": True, "subdomain": "sub"}
    assert kernel_hostname(make_pod(hostname=longest, **spec), "cluster.local") == longest + domain
    with pytest.raises(ContainerConfigError) as caught:
        kernel_hostname(make_pod(hostname=longest + "y", **spec), "cluster.local")
    assert str(caught.value) == (
        f"failed to construct FQDN from pod hostname and cluster domain, FQDN {longest}y{domain} is too long "
        "(64 characters is the max, 65 characters requested)"
    )


ALIASES = [{"ip": "10.0.0.1", "hostnames": ["a", "b.example"]}, {"ip": "10.0.0.2", "hostnames": ["c"]}]
ALIAS_LINES = "\n# Entries added by HostAliases.\n10.0.0.1\ta\tb.example\n10.0.0.2\tc\n"


@pytest.mark.parametrize(
    ("spec", "ips", "expected"),
    [
        ({}, ["10.244.0.5"], LOCAL + "10.244.0.5\tweb\n"),
        ({"hostNetwork": False}, [], LOCAL),
        (
            {"subdomain": "sub"},
            ["10.244.0.5", "fd00::5"],
            LOCAL + "10.244.0.5\tweb.sub.shop.svc.cluster.local\tweb\nfd00::5\tweb.sub.shop.svc.cluster.local\tweb\n",
        ),
        ({"hostAliases": ALIASES}, ["10.244.0.5"], LOCAL + "10.244.0.5\tweb\n" + ALIAS_LINES),
        (
            {"hostNetwork": True, "hostAliases": ALIASES},
            ["192.168.0.1"],
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost machine\n" + ALIAS_LINES,
        ),
    ],
)
def test_hosts_file(spec: dict[str, Any], ips: list[str], expected: str) -> None:
    assert hosts_file(make_pod(**spec), ips, "cluster.local", "127.0.0.1 localhost machine\n") == expected
