"""The configuration of containers: whole messages, mounts, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from host_pods import UID, make_config, make_pod, make_settings

from setpoint.node.environment import ContainerConfigError
from setpoint.node.host.container_config import container_config, mounts_hosts_file
from setpoint.node.host.pod_settings import IdRange, PodFeatures
from setpoint.node.host.security import MASKED_PATHS, READONLY_PATHS, ImageUser

HOSTS = {"container_path": "/etc/hosts", "host_path": f"/n/pods/{UID}/etc-hosts", "selinux_relabel": False}
Options = dict[str, Any]


def configure(pod: Any, mounts: Any = (), environment: dict[str, str] | None = None, **options: Any) -> Options:
    settings = make_settings(**options.pop("settings", {}))
    defaults: Options = {"image_user": ImageUser(), "pod_ips": ["10.244.0.5"]}
    config = make_config(pod, attempt=options.pop("attempt", 0))
    return container_config(config, mounts, environment or {}, settings, **{**defaults, **options})


def test_a_whole_container() -> None:
    pod = make_pod(
        {
            "command": ["sh", "-c", "echo $(GREETING) $(MISSING) $$(GREETING)"],
            "args": ["--to=$(NAME)"],
            "workingDir": "/work",
            "stdin": True,
            "stdinOnce": True,
            "tty": True,
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}},
            "securityContext": {"runAsUser": 1000},
        },
        terminationGracePeriodSeconds=30,
    )
    volume = {"container_path": "/data", "host_path": "/n/pods/x/volumes/d", "readonly": True}
    environment = {"GREETING": "hello", "NAME": "wörld", "RAW": "\udcff"}
    device = {"container_path": "/dev/x", "host_path": "/dev/loop0", "permissions": "mrw"}
    assert configure(pod, [volume], environment, attempt=2, devices=[device]) == {
        "metadata": {"name": "c", "attempt": 2},
        "image": {"image": "sha256:abc", "user_specified_image": "nginx:1"},
        "command": ["sh", "-c", "echo hello $(MISSING) $(GREETING)"],
        "args": ["--to=wörld"],
        "working_dir": "/work",
        "envs": [
            {"key": "GREETING", "value": b"hello"},
            {"key": "NAME", "value": b"w\xc3\xb6rld"},
            {"key": "RAW", "value": b"\xff"},
        ],
        "mounts": [
            volume,
            HOSTS,
            {
                "container_path": "/dev/termination-log",
                "host_path": f"/n/pods/{UID}/containers/c/2.termination-log",
                "selinux_relabel": False,
            },
        ],
        "devices": [device],
        "labels": {
            "io.kubernetes.pod.name": "web",
            "io.kubernetes.pod.namespace": "shop",
            "io.kubernetes.pod.uid": UID,
            "io.kubernetes.container.name": "c",
            "setpoint.dev/node": "node-1",
        },
        "annotations": {
            "io.kubernetes.container.hash": "a26a39cd",
            "setpoint.dev/container-hash-version": "1",
            "io.kubernetes.container.restartCount": "2",
            "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
            "io.kubernetes.container.terminationMessagePolicy": "File",
            "io.kubernetes.pod.terminationGracePeriod": "30",
        },
        "log_path": "c/2.log",
        "stdin": True,
        "stdin_once": True,
        "tty": True,
        "linux": {
            "resources": {
                "cpu_shares": 102,
                "cpu_quota": 0,
                "cpu_period": 100000,
                "memory_limit_in_bytes": 67108864,
                "oom_score_adj": 999,
            },
            "security_context": {
                "namespace_options": {"network": 0, "pid": 1, "ipc": 0, "userns_options": {"mode": 2}},
                "privileged": False,
                "readonly_rootfs": False,
                "no_new_privs": False,
                "supplemental_groups": [],
                "masked_paths": list(MASKED_PATHS),
                "readonly_paths": list(READONLY_PATHS),
                "seccomp": {"profile_type": 1},
                "run_as_user": {"value": 1000},
            },
        },
    }


def test_a_minimal_container() -> None:
    found = configure(make_pod(), pod_ips=[])
    assert found["command"] == found["args"] == found["mounts"] == found["devices"] == []
    assert (found["working_dir"], found["stdin"], found["stdin_once"], found["tty"]) == ("", False, False, False)
    assert found["log_path"] == "c/0.log"


def test_the_image_by_another_reference() -> None:
    found = configure(make_pod(), image_ref="sha256:def")
    assert found["image"] == {"image": "sha256:def", "user_specified_image": "nginx:1"}


def test_arguments_must_be_text() -> None:
    pod = make_pod({"args": ["$(RAW)"]})
    with pytest.raises(ContainerConfigError, match=r"^args of container c contains invalid UTF-8$"):
        configure(pod, (), {"RAW": "\udcff"})


def test_non_root_is_checked() -> None:
    pod = make_pod(securityContext={"runAsNonRoot": True})
    with pytest.raises(ContainerConfigError, match="runAsNonRoot and image will run as root"):
        configure(pod)
    assert configure(pod, image_user=ImageUser(7))["linux"]["security_context"]["run_as_user"] == {"value": 7}


@pytest.mark.parametrize(
    ("container", "spec", "ips", "expected"),
    [
        ({}, {}, ["10.244.0.5"], True),
        ({}, {}, [], False),
        ({}, {"hostNetwork": True}, [], True),
        ({"volumeMounts": [{"name": "v", "mountPath": "/etc/hosts"}]}, {}, ["10.244.0.5"], False),
        ({"volumeMounts": [{"name": "v", "mountPath": "/etc"}]}, {}, ["10.244.0.5"], True),
    ],
)
def test_hosts_file(container: Options, spec: Options, ips: list[str], expected: bool) -> None:
    pod = make_pod(container, **spec)
    assert mounts_hosts_file(pod, pod["spec"]["containers"][0], ips) is expected
    assert (HOSTS in configure(pod, pod_ips=ips)["mounts"]) is expected


def test_files_of_the_agent_are_relabelled_for_selinux() -> None:
    pod = make_pod({"terminationMessagePath": "message"})
    mounts = configure(pod, settings={"selinux": True})["mounts"]
    assert [(each["container_path"], each["selinux_relabel"]) for each in mounts] == [
        ("/etc/hosts", True),
        ("/message", True),
    ]


def test_mounts_of_a_pod_with_a_user_namespace_are_mapped() -> None:
    settings = {"features": lambda: PodFeatures(user_namespaces=True)}
    found = configure(make_pod(hostUsers=False), settings=settings, id_range=IdRange(65536))
    mapping = [{"host_id": 65536, "container_id": 0, "length": 65536}]
    assert found["mounts"] == [{**HOSTS, "uidMappings": mapping, "gidMappings": mapping}]
    assert configure(make_pod(), settings=settings, id_range=IdRange(65536))["mounts"] == [HOSTS]
