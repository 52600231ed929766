"""The sysctls that a node allows."""

from __future__ import annotations

from typing import Any

import pytest
from host_pods import make_pod

from setpoint.node.host.sysctls import forbidden_sysctls, normalized, safe_sysctls


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("net.ipv4.tcp_syncookies", "net.ipv4.tcp_syncookies"),
        ("net/ipv4/tcp_syncookies", "net.ipv4.tcp_syncookies"),
        ("net/ipv4/conf/eno2.100/rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
        ("net.ipv4.conf.eno2/100.rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
        ("", ""),
    ],
)
def test_separators(name: str, expected: str) -> None:
    assert normalized(name) == expected


@pytest.mark.parametrize(
    ("kernel", "count"),
    [("6.18.44", 14), ("4.15.0-213-generic", 14), ("4.14", 11), ("4.5.1", 9), ("3.16", 6), ("3.2", 5), ("unknown", 5)],
)
def test_safe_sysctls_depend_on_the_kernel(kernel: str, count: int) -> None:
    assert len(safe_sysctls(kernel)) == count


def test_safe_sysctls() -> None:
    names = (
        "ip_local_port_range tcp_syncookies ping_group_range ip_unprivileged_port_start ip_local_reserved_ports "
        "tcp_keepalive_time tcp_fin_timeout tcp_keepalive_intvl tcp_keepalive_probes tcp_rmem tcp_wmem "
        "tcp_slow_start_after_idle tcp_notsent_lowat"
    )
    assert safe_sysctls("6.1") == ("kernel.shm_rmid_forced", *(f"net.ipv4.{name}" for name in names.split()))


SAFE = safe_sysctls("6.1")


@pytest.mark.parametrize(
    ("name", "allowed", "spec", "message"),
    [
        ("net.ipv4.tcp_syncookies", (), {}, ""),
        ("net/ipv4/tcp_syncookies", (), {}, ""),
        ("kernel.msgmax", (), {}, 'forbidden sysctl: "kernel.msgmax" not allowlisted'),
        ("net/core/somaxconn", (), {}, 'forbidden sysctl: "net.core.somaxconn" not allowlisted'),
        ("net.core.somaxconn", ("net.core.*",), {}, ""),
        ("net.core.somaxconn", ("net/core/*",), {}, ""),
        ("kernel.msgmax", ("kernel.msg*",), {}, ""),
        ("kernel.msgmax", ("kernel.msgmax",), {}, ""),
        (
            "net.ipv4.tcp_syncookies",
            (),
            {"hostNetwork": True},
            'forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled',
        ),
        (
            "kernel.shm_rmid_forced",
            (),
            {"hostIPC": True},
            'forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled',
        ),
        (
            "kernel.msgmax",
            ("kernel.msg*",),
            {"hostIPC": True},
            'forbidden sysctl: "kernel.msgmax" not allowed with host IPC enabled',
        ),
        (
            "user.max_user_namespaces",
            ("user.*",),
            {},
            'forbidden sysctl: "user.max_user_namespaces" not allowed with host User enabled',
        ),
        ("user.max_user_namespaces", ("user.*",), {"hostUsers": False}, ""),
        ("net.ipv4.tcp_syncookies", (), {"hostIPC": True}, ""),
    ],
)
def test_forbidden(name: str, allowed: tuple[str, ...], spec: dict[str, Any], message: str) -> None:
    pod = make_pod(securityContext={"sysctls": [{"name": name, "value": "1"}]}, **spec)
    assert forbidden_sysctls(pod, [*SAFE, *allowed]) == message


def test_without_sysctls_nothing_is_forbidden() -> None:
    assert forbidden_sysctls(make_pod(), []) == ""
    assert forbidden_sysctls(make_pod(securityContext={}), []) == ""
