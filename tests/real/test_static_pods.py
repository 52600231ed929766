"""Static Pods and graceful shutdown of a real node."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_logind import FakeLogind
from kubectl_runner import until
from real_cluster import NODE, RealCluster, joined_cluster
from real_kubectl import Manifest, PodClient, pod
from real_machine import RealMachine
from real_registry import Registry

pytestmark = pytest.mark.real

MIRROR = "kubernetes.io/config.mirror"
PROBE = {"exec": {"command": ["true"]}, "periodSeconds": 1}


def write(directory: Path, manifest: Manifest, name: str = "") -> Path:
    """Write a manifest as a program would that does not want half of it to be read."""
    path = directory / f"{name or manifest['metadata']['name']}.json"
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(json.dumps(manifest))
    hidden.rename(path)
    return path


def processes_of(machine: RealMachine, uid: str) -> set[int]:
    """Return the processes of the containers of a Pod, without that of its sandbox."""
    found = set()
    for group in machine.cgroups():
        if uid in str(group) and (group / "cgroup.procs").exists():
            found |= {int(pid) for pid in (group / "cgroup.procs").read_text().split()}
    return {pid for pid in found if b"sleep\0" in _command(pid)}


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def exists(pods: PodClient, name: str) -> bool:
    return pods.kubectl.run("get", "pod", name).code == 0


@pytest.fixture(scope="module")
def manifests(machine: RealMachine) -> Path:
    directory = machine.directory / "manifests"
    directory.mkdir()
    return directory


@pytest.fixture(scope="module")
def logind(machine: RealMachine) -> FakeLogind:
    return FakeLogind(machine.directory / "power")


@pytest.fixture(scope="module")
def static(
    machine: RealMachine, registry: Registry, manifests: Path, logind: FakeLogind
) -> Iterator[tuple[RealCluster, PodClient]]:
    path = {"PATH": logind.search_path}
    flags = ["--pod-manifest-path", str(manifests), "--shutdown-grace-period", "20s"]
    flags += ["--shutdown-grace-period-critical-pods", "10s"]
    with joined_cluster(machine, *flags, environment=path) as cluster:
        kubectl = cluster.kubectl()
        until(lambda: kubectl.run("get", "serviceaccount", "default").code == 0)
        yield cluster, PodClient(kubectl)


def test_static_pod_lives_as_long_as_its_file(
    static: tuple[RealCluster, PodClient], manifests: Path, registry: Registry, machine: RealMachine
) -> None:
    _, pods = static
    image, name = registry.image("busybox"), f"web-{NODE}"
    manifest = pod("web", image, "sh", "-c", "echo hello; sleep 1000", container={"readinessProbe": PROBE})
    path = write(manifests, manifest)
    until(lambda: exists(pods, name))
    pods.wait_ready(name)
    found = pods.get(name)
    meta, node = found["metadata"], pods.kubectl.get("node", NODE)
    uid = meta["annotations"][MIRROR]
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node["metadata"]["uid"], "controller": True}
    assert meta["ownerReferences"] == [owner]
    assert meta["annotations"]["kubernetes.io/config.hash"] == uid
    assert meta["annotations"]["kubernetes.io/config.source"] == "file"
    assert found["status"]["phase"] == "Running" and found["status"]["podIP"]
    assert "serviceAccountName" not in found["spec"] and "volumes" not in found["spec"]
    assert pods.kubectl("logs", name) == "hello\n"
    assert pods.execute(name, "echo well") == "well\n"
    pods.has_event(name, "Started")

    # A deleted mirror Pod returns, and nothing restarts.
    started, mirror = pods.status(name)["containerID"], meta["uid"]
    pods.delete(name, "--wait=false")
    until(lambda: exists(pods, name) and pods.get(name)["metadata"]["uid"] != mirror)
    pods.wait_ready(name)
    assert pods.status(name)["containerID"] == started

    # A changed file replaces the Pod.
    manifest["spec"]["containers"][0]["env"] = [{"name": "ANSWER", "value": "42"}]
    write(manifests, manifest)
    until(lambda: exists(pods, name) and pods.get(name)["metadata"]["annotations"][MIRROR] != uid)
    pods.wait_ready(name)
    assert pods.execute(name, "echo $ANSWER") == "42\n"
    until(lambda: not processes_of(machine, uid))

    # A removed file ends it.
    uid = pods.get(name)["metadata"]["annotations"][MIRROR]
    path.unlink()
    until(lambda: not exists(pods, name))
    until(lambda: not processes_of(machine, uid))
    assert write(manifests, manifest)
    until(lambda: exists(pods, name))
    pods.wait_ready(name)
    path.unlink()
    until(lambda: not exists(pods, name))


def test_bad_file_does_not_disturb_the_others(
    static: tuple[RealCluster, PodClient], manifests: Path, registry: Registry
) -> None:
    cluster, pods = static
    bad = manifests / "bad.yaml"
    bad.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n")
    account = write(manifests, pod("account", registry.image("busybox"), "sleep", "1000", serviceAccountName="me"))
    good = write(manifests, pod("good", registry.image("busybox"), "sleep", "1000"))
    until(lambda: exists(pods, f"good-{NODE}"))
    pods.wait_ready(f"good-{NODE}")
    log = cluster.agent.log.read_text()
    assert log.count(f"the static Pod file {bad} is ignored: invalid pod: spec.containers: Required value") == 1
    assert log.count(f"the static Pod file {account} is ignored: static pods may not reference serviceaccounts") == 1
    for path in (bad, account, good):
        path.unlink()
    until(lambda: not exists(pods, f"good-{NODE}"))


def test_restarted_agent_adopts_static_pods(
    static: tuple[RealCluster, PodClient], manifests: Path, registry: Registry, logind: FakeLogind
) -> None:
    cluster, pods = static
    name = f"lasting-{NODE}"
    path = write(
        manifests, pod("lasting", registry.image("busybox"), "sleep", "1000", container={"readinessProbe": PROBE})
    )
    until(lambda: exists(pods, name))
    pods.wait_ready(name)
    before, events = pods.get(name), pods.events(name)
    for _ in range(3):
        cluster.agent.kill()
        cluster.agent.start(PATH=logind.search_path)
        _wait_for_heartbeat(pods)
    time.sleep(3.0)  # probes run several times
    assert pods.get(name)["metadata"]["uid"] == before["metadata"]["uid"]
    assert pods.get(name)["status"] == before["status"]
    assert pods.events(name) == events
    path.unlink()
    until(lambda: not exists(pods, name))


def _wait_for_heartbeat(pods: PodClient) -> None:
    lease = ("-n", "kube-node-lease", "get", "lease", NODE, "-o", "jsonpath={.spec.renewTime}")
    before = pods.kubectl(*lease)
    until(lambda: pods.kubectl(*lease) != before, 60.0)


def test_shutdown_ends_pods(
    static: tuple[RealCluster, PodClient], manifests: Path, registry: Registry, logind: FakeLogind
) -> None:
    _, pods = static
    image = registry.image("busybox")
    command = ("sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.1; done")
    pods.run(pod("plain", image, *command))
    path = write(manifests, pod("local", image, *command))
    until(lambda: exists(pods, f"local-{NODE}"))
    pods.wait_ready(f"local-{NODE}")
    until(lambda: logind.is_inhibited)
    logind.announce(True)
    ended = pods.wait_phase("plain", "Failed")["status"]
    reason, message = "Terminated", "Pod was terminated in response to imminent node shutdown."
    assert (ended["reason"], ended["message"]) == (reason, message)
    target = next(each for each in ended["conditions"] if each["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"], target["message"]) == ("True", "TerminationByKubelet", message)
    assert pods.wait_phase(f"local-{NODE}", "Failed")["status"]["reason"] == reason
    until(lambda: not logind.is_inhibited)
    until(lambda: "node is shutting down" in _ready(pods)["message"])
    assert _ready(pods)["status"] == "False"
    assert ("NodeShutdown", "Shutdown manager detected shutdown event") in pods.events(NODE)
    tolerations = [{"operator": "Exists"}]
    pods.apply(pod("late", image, *command, nodeName=NODE, tolerations=tolerations))
    late = pods.wait_phase("late", "Failed")["status"]
    assert late["reason"] == "NodeShutdown"
    assert late["message"] == "Pod was rejected: Pod was rejected as the node is shutting down."

    logind.announce(False)
    until(lambda: _ready(pods)["status"] == "True")
    until(lambda: logind.is_inhibited)
    pods.wait_ready(f"local-{NODE}")
    path.unlink()
    until(lambda: not exists(pods, f"local-{NODE}"))


def _ready(pods: PodClient) -> Any:
    conditions = pods.kubectl.get("node", NODE)["status"]["conditions"]
    return next(each for each in conditions if each["type"] == "Ready")
