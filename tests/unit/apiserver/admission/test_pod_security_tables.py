"""Every field that baseline and restricted check: allowed and forbidden values, for every kind of container, by
version."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import pytest

from setpoint.apiserver.admission.pod_security.policy import (
    BASELINE,
    LATEST,
    PRIVILEGED,
    RESTRICTED,
    Standard,
    evaluate,
)
from setpoint.meta.objects import Obj

NEWEST = 37
CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
SECURE = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "capabilities": {"drop": ["ALL"]},
}


def hardened() -> Obj:
    """Return a Pod that violates nothing, with a container of every kind."""
    spec = {kind: [{"name": f"of-{kind}", "image": "i", "securityContext": deepcopy(SECURE)}] for kind in CONTAINERS}
    return {"metadata": {}, "spec": spec}


def merged(into: Obj, more: Mapping[str, Any]) -> Obj:
    """Merge dicts; None removes a key."""
    for key, value in more.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, Mapping):
            merged(into.setdefault(key, {}), value)
        else:
            into[key] = value
    return into


def texts(level: str, minor: int, pod: Obj) -> list[str]:
    return [str(finding) for finding in evaluate(Standard(level, minor), pod["metadata"], pod["spec"])]


class Row(NamedTuple):
    reason: str
    level: str
    good: list[Obj]
    bad: list[Obj]
    since: int = 0
    until: int = NEWEST
    instead: int = NEWEST + 1
    """First minor version in which a stricter check of restricted replaces this one."""


def context(**fields: Any) -> Obj:
    return {"securityContext": fields}


def type_of(field: str, *types: str) -> list[Obj]:
    return [context(**{field: {"type": type_}}) for type_ in types]


def options(**fields: Any) -> Obj:
    return context(seLinuxOptions=fields)


def adding(*names: str) -> list[Obj]:
    return [context(capabilities={"add": [name], "drop": ["ALL"]}) for name in names]


def connecting(host: str) -> list[Obj]:
    """Return every probe and hook that makes a kubelet connect to a host."""
    handlers = [{"httpGet": {"host": host, "port": 1}}, {"tcpSocket": {"host": host, "port": 1}}]
    probes = [{name: one} for name in ("livenessProbe", "readinessProbe", "startupProbe") for one in handlers]
    return probes + [{"lifecycle": {name: one}} for name in ("postStart", "preStop") for one in handlers]


def sysctl(*names: str) -> list[Obj]:
    return [context(sysctls=[{"name": name, "value": "1"}]) for name in names]


def volume(*kinds: str) -> list[Obj]:
    return [{"volumes": [{"name": "v", kind: {}}]} for kind in kinds]


PROFILES = ("RuntimeDefault", "Localhost")
ALLOWED_CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
SELINUX = ("", "container_t", "container_init_t", "container_kvm_t")
SAFE_SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
)
TCP_TIMES = tuple(f"net.ipv4.tcp_{name}" for name in ("keepalive_time", "fin_timeout", "keepalive_intvl"))
OTHER_VOLUMES = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
)
# What is the same for a Pod and for each of its containers.
EITHER = [
    Row(
        "seLinuxOptions",
        BASELINE,
        [*(options(type=name) for name in SELINUX), options(level="l")],
        [options(type="spc_t"), options(user="u"), options(role="r"), options(type="container_t", user="u")],
    ),
    Row("seLinuxOptions", BASELINE, [], [options(type="container_engine_t")], until=30),
    Row(
        "seccompProfile",
        BASELINE,
        type_of("seccompProfile", *PROFILES),
        type_of("seccompProfile", "Unconfined", "x"),
        since=19,
    ),
    Row(
        "forbidden AppArmor profile",
        BASELINE,
        type_of("appArmorProfile", *PROFILES),
        type_of("appArmorProfile", "Unconfined", "x"),
    ),
    Row(
        "hostProcess",
        BASELINE,
        [context(windowsOptions={"hostProcess": False}), context(windowsOptions={})],
        [context(windowsOptions={"hostProcess": True})],
    ),
    Row("runAsNonRoot != true", RESTRICTED, [context(runAsNonRoot=True)], [context(runAsNonRoot=False)]),
    Row("runAsUser=0", RESTRICTED, [context(runAsUser=1), context(runAsUser=65535)], [context(runAsUser=0)], since=23),
]
OF_CONTAINERS = [
    *EITHER,
    Row("privileged", BASELINE, [context(privileged=False)], [context(privileged=True)]),
    Row(
        "non-default capabilities",
        BASELINE,
        adding(*ALLOWED_CAPABILITIES),
        adding("NET_RAW", "SYS_ADMIN", "ALL", "chown", "CAP_CHOWN"),
        instead=22,
    ),
    Row(
        "unrestricted capabilities",
        RESTRICTED,
        adding("NET_BIND_SERVICE"),
        [
            *adding("CHOWN", "SYS_ADMIN"),
            context(capabilities=None),
            context(capabilities={"drop": ["NET_RAW"]}),
            context(capabilities={"drop": []}),
            context(capabilities={"drop": ["all"]}),
        ],
        since=22,
    ),
    Row(
        "hostPort",
        BASELINE,
        [{"ports": [{"containerPort": 1}, {"containerPort": 2, "hostPort": 0}]}],
        [{"ports": [{"containerPort": 1}, {"containerPort": 2, "hostPort": 80}]}],
    ),
    Row("probe or lifecycle host", BASELINE, connecting(""), connecting("127.0.0.1"), since=34),
    Row("procMount", BASELINE, [context(procMount="Default")], [context(procMount="Unmasked"), context(procMount="x")]),
    Row(
        "allowPrivilegeEscalation != false",
        RESTRICTED,
        [],
        [context(allowPrivilegeEscalation=True), context(allowPrivilegeEscalation=None)],
        since=8,
    ),
    Row("runAsNonRoot != true", RESTRICTED, [], [context(runAsNonRoot=None)]),
    Row("seccompProfile", RESTRICTED, [], [context(seccompProfile=None)], since=19),
]
OF_PODS = [
    *EITHER,
    Row(
        "host namespaces",
        BASELINE,
        [{"hostNetwork": False, "hostPID": False, "hostIPC": False}],
        [{"hostNetwork": True}, {"hostPID": True}, {"hostIPC": True}],
    ),
    Row("hostPath volumes", BASELINE, volume(*OTHER_VOLUMES[1:]), volume("hostPath"), instead=0),
    Row(
        "restricted volume types",
        RESTRICTED,
        volume(
            "configMap",
            "csi",
            "downwardAPI",
            "emptyDir",
            "ephemeral",
            "persistentVolumeClaim",
            "projected",
            "image",
            "secret",
        ),
        [*volume(*OTHER_VOLUMES), {"volumes": [{"name": "v"}]}],
    ),
    Row("forbidden sysctls", BASELINE, sysctl(*SAFE_SYSCTLS), sysctl("kernel.msgmax", "net.core.somaxconn")),
    Row("forbidden sysctls", BASELINE, [], sysctl("net.ipv4.ip_local_reserved_ports"), until=26),
    Row("forbidden sysctls", BASELINE, [], sysctl(*TCP_TIMES, "net.ipv4.tcp_keepalive_probes"), until=28),
    Row("forbidden sysctls", BASELINE, [], sysctl("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"), until=31),
    Row("forbidden sysctls", BASELINE, [], sysctl("net.ipv4.tcp_notsent_lowat"), until=36),
]


def check(row: Row, pod: Obj, bad: bool, named: str) -> None:
    for minor in range(NEWEST + 1):
        for level in (BASELINE, RESTRICTED):
            found = texts(level, minor, pod)
            at_level = row.level == level or (level == RESTRICTED and minor < row.instead)
            expected = row.since <= minor <= row.until and at_level
            own = [text for text in found if text.startswith(f"{row.reason} (")]
            assert len(own) == (bad and expected), (minor, level, found)
            assert all(named in text for text in own), own
    # The present version, and future ones.
    if row.until == NEWEST:
        assert texts(row.level, LATEST, pod) == texts(row.level, 99, pod) == texts(row.level, NEWEST, pod)
        assert bool(texts(row.level, LATEST, pod)) == bad
    else:
        assert texts(row.level, LATEST, pod) == []
    assert texts(PRIVILEGED, LATEST, pod) == []


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("row", OF_CONTAINERS, ids=lambda row: f"{row.reason}-{row.level}-{row.since}")
def test_fields_of_containers(row: Row, kind: str) -> None:
    for bad, fragments in ((False, row.good), (True, row.bad)):
        for fragment in fragments:
            pod = hardened()
            merged(pod["spec"][kind][0], fragment)
            check(row, pod, bad, f'container "of-{kind}"')


@pytest.mark.parametrize("row", OF_PODS, ids=lambda row: f"{row.reason}-{row.level}-{row.since}-{row.until}")
def test_fields_of_pods(row: Row) -> None:
    for bad, fragments in ((False, row.good), (True, row.bad)):
        for fragment in fragments:
            pod = hardened()
            merged(pod["spec"], fragment)
            check(row, pod, bad, "")


@pytest.mark.parametrize("value", ["", "runtime/default", "localhost/x", "unconfined", "x"])
def test_legacy_annotations(value: str) -> None:
    app_armor, seccomp = hardened(), hardened()
    app_armor["metadata"]["annotations"] = {"container.apparmor.security.beta.kubernetes.io/c": value}
    bad = value in ("unconfined", "x")
    check(Row("forbidden AppArmor profile", BASELINE, [], []), app_armor, bad, f'="{value}"')
    for key in (
        "seccomp.security.alpha.kubernetes.io/pod",
        "container.seccomp.security.alpha.kubernetes.io/of-containers",
    ):
        seccomp["metadata"]["annotations"] = {key: value}
        row = Row("seccompProfile", BASELINE, [], [], until=18)
        check(row, seccomp, bad or not value, f'{key}="{value}"')


def test_fields_of_a_pod_apply_to_its_containers() -> None:
    pod = hardened()
    for kind in CONTAINERS:
        merged(pod["spec"][kind][0], context(runAsNonRoot=None, seccompProfile=None))
    assert len(texts(RESTRICTED, LATEST, pod)) == 2
    merged(pod["spec"], context(runAsNonRoot=True, seccompProfile={"type": "Localhost"}))
    assert texts(RESTRICTED, LATEST, pod) == []


def test_one_message_names_all_containers() -> None:
    pod = hardened()
    for kind in CONTAINERS:
        merged(pod["spec"][kind][0], context(privileged=True))
    names = '"of-initContainers", "of-containers", "of-ephemeralContainers"'
    (text,) = texts(BASELINE, LATEST, pod)
    assert text == f"privileged (containers {names} must not set securityContext.privileged=true)"


@pytest.mark.parametrize("minor", range(NEWEST + 1))
def test_windows_and_user_namespaces(minor: int) -> None:
    windows = hardened()
    merged(windows["spec"], {"os": {"name": "windows"}})
    for kind in CONTAINERS:
        windows["spec"][kind][0]["securityContext"] = {"runAsNonRoot": True}
    assert bool(texts(RESTRICTED, minor, windows)) == (8 <= minor < 25)
    own = hardened()
    merged(own["spec"], {"hostUsers": False})
    merged(own["spec"]["containers"][0], context(runAsNonRoot=False, runAsUser=0))
    assert bool(texts(RESTRICTED, minor, own)) == (minor < 35)
    merged(own["spec"]["containers"][0], context(procMount="Unmasked"))
    assert bool(texts(BASELINE, minor, own)) == (minor < 35)
    assert any(text.startswith("procMount (") for text in texts(RESTRICTED, minor, own))
