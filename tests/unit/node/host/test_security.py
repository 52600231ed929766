"""Security contexts: what the kubelet passes to the runtime, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from host_pods import UID, make_pod, make_settings

from setpoint.node.cri.features import HandlerFeatures, RuntimeFeatures
from setpoint.node.environment import ContainerConfigError
from setpoint.node.host.pod_settings import IdRange, PodFeatures, UnsupportedByRuntime
from setpoint.node.host.security import (
    MASKED_PATHS,
    READONLY_PATHS,
    ImageUser,
    Rejection,
    container_security_context,
    namespace_options,
    sandbox_security_context,
    security_rejection,
)

POD, CONTAINER, NODE, TARGET = range(4)
RUNTIME_DEFAULT, UNCONFINED, LOCALHOST = range(3)
HOST_USERS = {"mode": NODE}
NAMESPACES = {"network": POD, "pid": CONTAINER, "ipc": POD, "userns_options": HOST_USERS}
DEFAULTS: dict[str, Any] = {
    "namespace_options": NAMESPACES,
    "privileged": False,
    "readonly_rootfs": False,
    "no_new_privs": False,
    "supplemental_groups": [],
    "masked_paths": list(MASKED_PATHS),
    "readonly_paths": list(READONLY_PATHS),
    "seccomp": {"profile_type": UNCONFINED},
    "run_as_user": {"value": 0},
}
ROOT = ImageUser()
Context = dict[str, Any]


def context_of(
    level: Context | None, own: Context | None, image_user: ImageUser = ROOT, **changes: Any
) -> dict[str, Any]:
    pod = make_pod({"securityContext": own} if own is not None else {}, securityContext=level)
    return container_security_context(pod, pod["spec"]["containers"][0], make_settings(**changes), image_user)


@pytest.mark.parametrize(
    ("level", "own", "expected"),
    [
        (None, None, {}),
        ({}, {}, {}),
        (None, {"privileged": True}, {"privileged": True}),
        (None, {"readOnlyRootFilesystem": True}, {"readonly_rootfs": True}),
        (None, {"allowPrivilegeEscalation": True}, {}),
        (None, {"allowPrivilegeEscalation": False}, {"no_new_privs": True}),
        (None, {"procMount": "Default"}, {}),
        (None, {"procMount": "Unmasked"}, {"masked_paths": [], "readonly_paths": []}),
        (
            None,
            {"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}},
            {"capabilities": {"add_capabilities": ["NET_ADMIN"], "drop_capabilities": ["ALL"]}},
        ),
        (
            None,
            {"capabilities": {"drop": ["ALL"]}},
            {"capabilities": {"add_capabilities": [], "drop_capabilities": ["ALL"]}},
        ),
        ({"runAsUser": 5, "runAsGroup": 6}, None, {"run_as_user": {"value": 5}, "run_as_group": {"value": 6}}),
        (
            {"runAsUser": 5, "runAsGroup": 6},
            {"runAsUser": 7},
            {"run_as_user": {"value": 7}, "run_as_group": {"value": 6}},
        ),
        ({"runAsUser": 5}, {"runAsUser": 0}, {}),
        ({"fsGroup": 9, "supplementalGroups": [7, 8]}, None, {"supplemental_groups": [9, 7, 8]}),
        ({"fsGroup": 0}, None, {"supplemental_groups": [0]}),
        ({"supplementalGroupsPolicy": "Merge"}, None, {"supplemental_groups_policy": 0}),
        (
            {"seLinuxOptions": {"level": "s0:c1"}},
            None,
            {"selinux_options": {"user": "", "role": "", "type": "", "level": "s0:c1"}},
        ),
        (
            {"seLinuxOptions": {"level": "s0:c1"}},
            {"seLinuxOptions": {"type": "t"}},
            {"selinux_options": {"user": "", "role": "", "type": "t", "level": ""}},
        ),
        ({"seccompProfile": {"type": "RuntimeDefault"}}, None, {"seccomp": {"profile_type": RUNTIME_DEFAULT}}),
        ({"seccompProfile": {"type": "RuntimeDefault"}}, {"seccompProfile": {"type": "Unconfined"}}, {}),
        (
            None,
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "profiles/x.json"}},
            {"seccomp": {"profile_type": LOCALHOST, "localhost_ref": "/s/profiles/x.json"}},
        ),
        (
            None,
            {"appArmorProfile": {"type": "RuntimeDefault"}},
            {"apparmor": {"profile_type": RUNTIME_DEFAULT}, "apparmor_profile": "runtime/default"},
        ),
        (
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": "p"}},
            None,
            {"apparmor": {"profile_type": LOCALHOST, "localhost_ref": "p"}, "apparmor_profile": "localhost/p"},
        ),
        (
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": "p"}},
            {"appArmorProfile": {"type": "Unconfined"}},
            {"apparmor": {"profile_type": UNCONFINED}, "apparmor_profile": "unconfined"},
        ),
    ],
)
def test_container(level: Context | None, own: Context | None, expected: Context) -> None:
    assert context_of(level, own) == DEFAULTS | expected


@pytest.mark.parametrize(
    ("uid", "name", "expected"),
    [
        (None, "", {"run_as_user": {"value": 0}}),
        (0, "", {"run_as_user": {"value": 0}}),
        (5, "ignored", {"run_as_user": {"value": 5}}),
        (None, "nginx", {"run_as_username": "nginx"}),
    ],
)
def test_the_image_decides_the_user_unless_the_pod_does(uid: int | None, name: str, expected: Context) -> None:
    without_user = {key: value for key, value in DEFAULTS.items() if key != "run_as_user"}
    assert context_of(None, None, ImageUser.of(uid, name)) == without_user | expected
    own = context_of({"runAsUser": 9}, None, ImageUser.of(uid, name))
    assert own == without_user | {"run_as_user": {"value": 9}}


def test_settings_of_the_node() -> None:
    found = context_of(None, None, seccomp_default=True, thermal_throttle_paths=("/sys/cpu0",))
    assert found["seccomp"] == {"profile_type": RUNTIME_DEFAULT}
    assert found["masked_paths"] == [*MASKED_PATHS, "/sys/cpu0"]


def test_paths_that_containers_cannot_read_or_write() -> None:
    found = context_of(None, None)
    masked = [
        "asound",
        "acpi",
        "interrupts",
        "kcore",
        "keys",
        "latency_stats",
        "timer_list",
        "timer_stats",
        "sched_debug",
        "scsi",
    ]
    system = ["/sys/firmware", "/sys/devices/virtual/powercap"]
    assert found["masked_paths"] == [f"/proc/{name}" for name in masked] + system
    assert found["readonly_paths"] == [f"/proc/{name}" for name in ["bus", "fs", "irq", "sys", "sysrq-trigger"]]


def test_groups_of_volumes_come_last() -> None:
    pod = make_pod(securityContext={"fsGroup": 9, "supplementalGroups": [7]})
    spec = pod["spec"]["containers"][0]
    found = container_security_context(pod, spec, make_settings(), ROOT, extra_groups=[5])
    assert found["supplemental_groups"] == [9, 7, 5]


def test_static_pods_select_apparmor_by_annotation() -> None:
    prefix = "container.apparmor.security.beta.kubernetes.io/"
    for text, number, reference in (("localhost/p", LOCALHOST, {"localhost_ref": "p"}), ("unconfined", UNCONFINED, {})):
        pod = make_pod(metadata={"annotations": {prefix + "c": text}})
        found = container_security_context(pod, pod["spec"]["containers"][0], make_settings(), ROOT)
        assert found["apparmor"] == {"profile_type": number, **reference}
        assert found["apparmor_profile"] == text
    pod = make_pod(metadata={"annotations": {prefix + "other": "localhost/p"}})
    assert "apparmor" not in container_security_context(pod, pod["spec"]["containers"][0], make_settings(), ROOT)


WHERE = f'(pod: "web_shop({UID})", container: c)'


@pytest.mark.parametrize(
    ("context", "image_user", "message"),
    [
        ({}, ROOT, f"container has runAsNonRoot and image will run as root {WHERE}"),
        ({"runAsUser": 0}, ImageUser(5), f"container's runAsUser breaks non-root policy {WHERE}"),
        (
            {},
            ImageUser(None, "nginx"),
            "container has runAsNonRoot and image has non-numeric user (nginx), cannot verify user is non-root "
            + WHERE,
        ),
        (
            {},
            ImageUser(2**31),
            "container has runAsNonRoot and image has an invalid user id (2147483648). (Must be 1-(2147483647)): "
            f"must be between 0 and 2147483647, inclusive {WHERE}",
        ),
    ],
)
def test_non_root_is_refused_for_root(context: Context, image_user: ImageUser, message: str) -> None:
    with pytest.raises(ContainerConfigError) as caught:
        context_of({"runAsNonRoot": True}, context, image_user)
    assert str(caught.value) == message
    context_of({"runAsNonRoot": True}, {**context, "runAsNonRoot": False}, image_user)


@pytest.mark.parametrize(
    ("level", "image_user"),
    [({}, ImageUser(5)), ({"runAsUser": 1}, ROOT), ({"runAsUser": 1}, ImageUser(None, "x"))],
)
def test_non_root_is_accepted(level: Context, image_user: ImageUser) -> None:
    context_of({**level, "runAsNonRoot": True}, None, image_user)


@pytest.mark.parametrize(
    ("level", "message"),
    [
        (
            {"seccompProfile": {"type": "Localhost"}},
            "localhostProfile must be set if seccompProfile type is Localhost.",
        ),
        (
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "a/../../etc"}},
            "localhostProfile \"a/../../etc\" must not contain '..'",
        ),
        ({"appArmorProfile": {"type": "Localhost"}}, "missing localhost apparmor profile name"),
        ({"appArmorProfile": {"type": "X"}}, 'unknown apparmor profile type: "X"'),
        ({"supplementalGroupsPolicy": "X"}, "unsupported supplementalGroupsPolicy: X"),
        ({"supplementalGroupsPolicy": "Strict"}, "SupplementalGroupsPolicy=Strict is not supported in this node"),
    ],
)
def test_what_cannot_be_enforced_is_refused(level: Context, message: str) -> None:
    with pytest.raises(ContainerConfigError) as caught:
        context_of(level, None)
    assert str(caught.value) == message


def test_strict_groups_where_the_runtime_has_them() -> None:
    found = context_of(
        {"supplementalGroupsPolicy": "Strict"}, None, features=lambda: PodFeatures(supplemental_groups_policy=True)
    )
    assert found["supplemental_groups_policy"] == 1


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"hostNetwork": True}, {"network": NODE}),
        ({"hostPID": True}, {"pid": NODE}),
        ({"hostIPC": True}, {"ipc": NODE}),
        ({"shareProcessNamespace": True}, {"pid": POD}),
        ({"shareProcessNamespace": False, "hostUsers": True}, {}),
    ],
)
def test_namespaces(spec: Context, expected: Context) -> None:
    assert namespace_options(make_pod(**spec), make_settings()) == NAMESPACES | expected


def test_an_ephemeral_container_joins_the_processes_of_its_target() -> None:
    cases: list[tuple[Context, Context]] = [
        ({}, {"pid": TARGET, "target_id": "abc"}),
        ({"shareProcessNamespace": True}, {"pid": POD}),
        ({"hostPID": True}, {"pid": NODE}),
    ]
    for spec, expected in cases:
        pod = make_pod(**spec)
        found = container_security_context(pod, pod["spec"]["containers"][0], make_settings(), ROOT, target_id="abc")
        assert found["namespace_options"] == NAMESPACES | expected


def test_user_namespaces_need_the_runtime_and_ids() -> None:
    pod = make_pod(hostUsers=False)
    with pytest.raises(UnsupportedByRuntime) as caught:
        namespace_options(pod, make_settings(), IdRange(65536))
    assert str(caught.value) == "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
    able = make_settings(features=lambda: PodFeatures(user_namespaces=True))
    with pytest.raises(UnsupportedByRuntime):
        namespace_options(pod, able)
    mapping = {"host_id": 131072, "container_id": 0, "length": 65536}
    found = namespace_options(pod, able, IdRange(131072))
    assert found["userns_options"] == {"mode": POD, "uids": [mapping], "gids": [mapping]}
    assert namespace_options(make_pod(), able, IdRange(131072))["userns_options"] == HOST_USERS


def test_features_of_a_runtime() -> None:
    old = RuntimeFeatures("containerd", "1.6.20", "v1")
    assert PodFeatures.of(old) == PodFeatures(False, False)
    handlers = {"": HandlerFeatures(user_namespaces=True)}
    new = RuntimeFeatures("containerd", "2.3.4", "v1", supplemental_groups_policy=True, handlers=handlers)
    assert PodFeatures.of(new) == PodFeatures(True, True)


SANDBOX: Context = {
    "namespace_options": NAMESPACES,
    "privileged": False,
    "seccomp": {"profile_type": RUNTIME_DEFAULT},
    "supplemental_groups": [],
}
PRIVILEGED = {"name": "x", "image": "i", "securityContext": {"privileged": True}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"initContainers": [PRIVILEGED]}, {"privileged": True}),
        ({"ephemeralContainers": [PRIVILEGED]}, {"privileged": True}),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, {}),
        (
            {"securityContext": {"runAsUser": 5, "runAsGroup": 6, "fsGroup": 9, "supplementalGroups": [7]}},
            {"run_as_user": {"value": 5}, "run_as_group": {"value": 6}, "supplemental_groups": [9, 3, 7]},
        ),
    ],
)
def test_sandbox(spec: Context, expected: Context) -> None:
    extra = [3] if "supplemental_groups" in expected else []
    assert sandbox_security_context(make_pod(**spec), make_settings(), extra_groups=extra) == SANDBOX | expected


def test_pods_that_the_node_rejects() -> None:
    strict = make_pod(securityContext={"supplementalGroupsPolicy": "Strict"})
    message = "SupplementalGroupsPolicy=Strict is not supported in this node"
    assert security_rejection(strict, make_settings()) == Rejection("SupplementalGroupsPolicyNotSupported", message)
    assert (
        security_rejection(strict, make_settings(features=lambda: PodFeatures(supplemental_groups_policy=True))) is None
    )

    confined = make_pod(securityContext={"appArmorProfile": {"type": "RuntimeDefault"}})
    message = "Cannot enforce AppArmor: AppArmor is not enabled on the host"
    assert security_rejection(confined, make_settings()) == Rejection("AppArmor", message)
    assert security_rejection(confined, make_settings(apparmor=True)) is None
    running: Any = {**confined, "status": {"phase": "Running"}}
    assert security_rejection(running, make_settings()) is None
    unconfined = make_pod(securityContext={"appArmorProfile": {"type": "Unconfined"}})
    assert security_rejection(unconfined, make_settings()) is None
    assert security_rejection(make_pod(), make_settings()) is None
