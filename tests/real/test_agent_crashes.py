"""The agent, containerd or the whole machine end at any moment: Pods go on, or end in the states that upstream reports."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from effort import tries
from kubectl_runner import until
from real_cluster import NODE, RealCluster
from real_kubectl import PodClient, pod
from real_machine import RealMachine
from real_registry import Registry

pytestmark = pytest.mark.real
ROUNDS = tries(3, 50)
PROBE = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1}


def observed(pods: PodClient, *names: str) -> dict[str, Any]:
    """Return everything about Pods that must not change when the agent is restarted."""
    found = {}
    for name in names:
        status = pods.get(name)["status"]
        containers = [*status.get("initContainerStatuses", []), *status["containerStatuses"]]
        found[name] = {
            "phase": status["phase"],
            "address": status["podIP"],
            "containers": {
                each["name"]: (each["containerID"], each["restartCount"], each["state"], each["ready"], each["started"])
                for each in containers
            },
            "conditions": {
                each["type"]: (each["status"], each.get("lastTransitionTime")) for each in status["conditions"]
            },
            "events": pods.events(name),
        }
    return found


def node_condition(pods: PodClient, kind: str) -> dict[str, Any]:
    conditions = pods.kubectl.get("node", NODE)["status"]["conditions"]
    return next(each for each in conditions if each["type"] == kind)


def wait_for_heartbeat(pods: PodClient) -> None:
    """Wait until the agent that runs now has renewed the Lease of the node."""
    lease = ("-n", "kube-node-lease", "get", "lease", NODE, "-o", "jsonpath={.spec.renewTime}")
    before = pods.kubectl(*lease)
    until(lambda: pods.kubectl(*lease) != before, 60.0)


def restarts_agent(joined: RealCluster, pods: PodClient) -> None:
    joined.agent.kill()
    joined.agent.start()
    wait_for_heartbeat(pods)


def test_killed_agent_adopts_what_runs(joined: RealCluster, joined_pods: PodClient, registry: Registry) -> None:
    pods, image = joined_pods, registry.image("busybox")
    side = {"name": "side", "image": image, "command": ["sleep", "1000"], "restartPolicy": "Always"}
    first = {"name": "first", "image": image, "command": ["true"]}
    probes = {"readinessProbe": PROBE, "livenessProbe": PROBE, "startupProbe": PROBE}
    pods.run(pod("web", registry.image("web"), container=probes, initContainers=[first, side]))
    pods.run(
        pod("plain", image, "sleep", "1000", container={"lifecycle": {"postStart": {"exec": {"command": ["true"]}}}})
    )
    pods.apply(pod("done", image, "true", restartPolicy="Never"))
    pods.wait_phase("done", "Succeeded")
    names = ("web", "plain", "done")
    before, ready = observed(pods, *names), node_condition(pods, "Ready")["lastTransitionTime"]
    for _ in range(ROUNDS):
        restarts_agent(joined, pods)
        assert observed(pods, *names) == before
    time.sleep(3.0)  # probes run several times
    assert observed(pods, *names) == before
    assert node_condition(pods, "Ready")["lastTransitionTime"] == ready
    assert pods.execute("web", "echo well") == "well\n"


def test_agent_is_killed_while_pods_start(joined: RealCluster, joined_pods: PodClient, registry: Registry) -> None:
    """Kill the agent at different moments of the start: each container starts exactly once."""
    pods, names = joined_pods, [f"pod-{number}" for number in range(6)]
    for number, name in enumerate(names):
        pods.apply(pod(name, registry.image("busybox"), "sleep", "1000"))
        time.sleep(0.15 * number)
        joined.agent.kill()
        joined.agent.start()
    for name in names:
        pods.wait_ready(name, 90.0)
        assert pods.status(name)["restartCount"] == 0
    uids = [pods.get(name)["metadata"]["uid"] for name in names]
    assert sorted(uid for uid in joined.agent.sandboxes() if uid in uids) == sorted(uids)


def test_kill_rounds(joined: RealCluster, joined_pods: PodClient, registry: Registry, machine: RealMachine) -> None:
    """Kill the agent at random moments while Pods are created, restart and are deleted. Each container restarts as often as
    it exits, each hook runs at most once, the Pods beside them do not notice, and nothing is left behind."""
    pods, chosen, shared = joined_pods, random.Random(1), machine.directory / "rounds"
    shared.mkdir()
    pods.run(pod("steady", registry.image("web"), container={"readinessProbe": PROBE, "livenessProbe": PROBE}))
    pods.run(_counted("beside", "true", registry, shared))
    steady = observed(pods, "steady", "beside")
    scripts = ["true", "sleep 0.3; [ -e /own/ran ] || { touch /own/ran; exit 3; }"]
    last: list[str] = []
    uids: set[str] = set()
    for number in range(ROUNDS):
        names = [f"exits-{times}-times-{number}" for times in range(len(scripts))]
        pods.apply(*(_counted(name, script, registry, shared) for name, script in zip(names, scripts)))
        if last:
            pods.kubectl("delete", "pod", "--wait=false", *last)
        time.sleep(chosen.uniform(0.0, 1.5))
        joined.agent.kill()
        time.sleep(chosen.choice((0.0, 0.0, 1.0)))
        joined.agent.start()
        for restarts, name in enumerate(names):
            _wait_restarted(pods, name, restarts)
            # containerd gives a start up if the agent ends at that moment, and the program may have begun.
            assert restarts + 1 <= _lines(shared / name) <= restarts + 2, name
            events = [reason for reason, _ in pods.events(name)]
            assert events.count("Started") <= restarts + 1, events
            uids.add(pods.get(name)["metadata"]["uid"])
        _wait_removed(pods, last)
        assert all(_lines(shared / f"{name}.stop") <= 1 for name in last)
        assert observed(pods, "steady", "beside") == steady
        last = names
    pods.kubectl("delete", "pod", *last)
    until(lambda: not any((joined.agent.directories.pods / uid).exists() for uid in uids), 60.0)
    until(lambda: not any(uid in str(group) for group in machine.cgroups() for uid in uids), 60.0)
    assert not [mount for mount in machine.mounts() if any(uid in str(mount) for uid in uids)]
    assert not [path for path in joined.agent.directories.logs.iterdir() if any(uid in path.name for uid in uids)]
    until(lambda: _sandboxes(machine) == len(pods.kubectl.get("pods", "--all-namespaces")["items"]), 60.0)
    assert observed(pods, "steady", "beside") == steady


def _wait_restarted(pods: PodClient, name: str, restarts: int) -> None:
    """Wait until a container is ready after so many restarts."""
    until(lambda: pods.status(name).get("restartCount", -1) >= restarts, 90.0)
    pods.wait_ready(name, 90.0)
    found = pods.status(name)
    assert found["restartCount"] == restarts, (found, pods.events(name))


def _wait_removed(pods: PodClient, names: list[str]) -> None:
    until(lambda: not any(pods.kubectl.run("get", "pod", name).code == 0 for name in names), 90.0)


def _counted(name: str, script: str, registry: Registry, shared: Path) -> dict[str, Any]:
    """Return a Pod that adds a line to a file at each start, runs the script, and then waits for its end."""
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo stop >> /shared/$NAME.stop"]}}}
    container = {
        "env": [{"name": "NAME", "value": name}],
        "lifecycle": hook,
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}, {"name": "own", "mountPath": "/own"}],
    }
    volumes = [{"name": "shared", "hostPath": {"path": str(shared)}}, {"name": "own", "emptyDir": {}}]
    whole = f"echo start >> /shared/$NAME; {script}; exec sleep 1000"
    made = pod(name, registry.image("busybox"), "sh", "-c", whole, container=container, volumes=volumes)
    made["spec"]["terminationGracePeriodSeconds"] = 2
    return made


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def _sandboxes(machine: RealMachine) -> int:
    """Return the number of sandboxes that run, by their programs."""
    return sum(_command_line(pid) == b"/pause\0" for pid in machine.processes())


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_pre_stop_hook_runs_once(
    joined: RealCluster, joined_pods: PodClient, registry: Registry, machine: RealMachine
) -> None:
    pods, shared = joined_pods, machine.directory / "hook"
    shared.mkdir()
    hook = {"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo ran >> /shared/hook; sleep 3"]}}}}
    mounts = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    volumes = [{"name": "shared", "hostPath": {"path": str(shared)}}]
    manifest = pod("hook", registry.image("web"), container={**hook, **mounts}, volumes=volumes)
    manifest["spec"]["terminationGracePeriodSeconds"] = 30
    pods.run(manifest)
    pods.delete("hook", "--wait=false")
    until(lambda: (shared / "hook").exists())
    restarts_agent(joined, pods)
    until(lambda: pods.kubectl.run("get", "pod", "hook").code != 0, 60.0)
    assert (shared / "hook").read_text() == "ran\n"


def test_what_happened_while_the_agent_was_away(
    joined: RealCluster, joined_pods: PodClient, registry: Registry, machine: RealMachine
) -> None:
    pods, image = joined_pods, registry.image("busybox")
    names = ("ends", "fails", "deleted", "forced")
    for name in names:
        policy = "Never" if name == "fails" else "Always"
        script = f"while [ ! -e /tmp/{name} ]; do sleep 0.1; done; exit 9"
        pods.run(pod(name, image, "sh", "-c", script, restartPolicy=policy))
    uids = {name: pods.get(name)["metadata"]["uid"] for name in names}
    processes = {name: _processes(machine, uids[name]) for name in names}
    assert all(processes.values())
    joined.agent.kill()
    for name in ("ends", "fails"):
        for pid in processes[name]:
            root = Path(f"/proc/{pid}/root/tmp")
            if root.is_dir():
                (root / name).touch()
    pods.delete("deleted", "--wait=false")
    pods.delete("forced", "--force", "--grace-period=0")
    pods.apply(pod("new", image, "sleep", "1000"))
    until(lambda: not any(_is_shell(pid) for name in ("ends", "fails") for pid in processes[name]))

    joined.agent.start()
    pods.wait_ready("new", 90.0)
    terminated = pods.wait_phase("fails", "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (9, "Error")
    until(lambda: pods.status("ends")["restartCount"] == 1, 60.0)
    assert pods.status("ends")["lastState"]["terminated"]["exitCode"] == 9
    until(lambda: pods.kubectl.run("get", "pod", "deleted").code != 0, 60.0)
    until(lambda: not _processes(machine, uids["forced"]), 60.0)
    until(lambda: not _processes(machine, uids["deleted"]), 60.0)


def _processes(machine: RealMachine, uid: str) -> list[int]:
    """Return the processes in the cgroups of a Pod."""
    found = set()
    for group in machine.cgroups():
        if uid in str(group) and (group / "cgroup.procs").exists():
            found |= {int(pid) for pid in (group / "cgroup.procs").read_text().split()}
    return sorted(found)


def _is_shell(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sh\0")
    except OSError:
        return False


def test_killed_containerd(joined: RealCluster, joined_pods: PodClient, registry: Registry) -> None:
    pods = joined_pods
    pods.run(pod("web", registry.image("web"), container={"readinessProbe": PROBE}))
    before = observed(pods, "web")
    killed = joined.agent.containerd_pid()
    joined.agent.kill_containerd()

    def back() -> bool:
        return pods.kubectl.run("exec", "web", "--", "true").code == 0

    until(back, 60.0)
    assert joined.agent.containerd_pid() != killed
    until(lambda: node_condition(pods, "Ready")["status"] == "True", 60.0)
    assert observed(pods, "web")["web"]["containers"] == before["web"]["containers"]
    pods.run(pod("next", registry.image("busybox"), "sleep", "1000"))


def test_stopped_containerd_is_reported(joined: RealCluster, joined_pods: PodClient, registry: Registry) -> None:
    """A containerd that does not answer makes the node not ready; the Pods go on."""
    pods = joined_pods
    pods.run(pod("web", registry.image("web")))
    before = observed(pods, "web")
    stopped = joined.agent.containerd_pid()
    os.kill(stopped, signal.SIGSTOP)
    try:
        until(lambda: node_condition(pods, "Ready")["status"] == "False", 120.0)
        assert "container runtime" in node_condition(pods, "Ready")["message"]
    finally:
        os.kill(stopped, signal.SIGCONT)
    until(lambda: node_condition(pods, "Ready")["status"] == "True", 60.0)
    assert observed(pods, "web")["web"]["containers"] == before["web"]["containers"]


def test_reboot(joined: RealCluster, joined_pods: PodClient, registry: Registry, machine: RealMachine) -> None:
    """Everything but the disk is gone: processes, mounts, the run directory. Sandboxes and containers start anew."""
    pods, image = joined_pods, registry.image("busybox")
    mount = {"volumeMounts": [{"name": "disk", "mountPath": "/disk"}, {"name": "memory", "mountPath": "/memory"}]}
    volumes = [{"name": "disk", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}]
    script = "echo start >> /disk/starts; echo start >> /memory/starts; sleep 1000"
    pods.run(pod("again", image, "sh", "-c", script, container=mount, volumes=volumes))
    pods.run(pod("never", image, "sleep", "1000", restartPolicy="Never"))
    pods.apply(pod("done", image, "true", restartPolicy="Never"))
    pods.wait_phase("done", "Succeeded")
    uid = pods.get("again")["metadata"]["uid"]

    joined.agent.kill()
    joined.agent.kill_containerd()  # first, so that it does not see how the others end
    _end_all_but(joined, machine)
    for mounted in reversed(machine.mounts()):
        if Path(mounted).is_relative_to(joined.agent.directories.root) or Path(mounted).is_relative_to(
            joined.agent.directories.run
        ):
            machine.run("umount", "--lazy", mounted)
    shutil.rmtree(joined.agent.directories.run)
    joined.agent.start()

    until(lambda: pods.status("again").get("restartCount") == 1, 90.0)
    pods.wait_ready("again", 90.0)
    last = pods.status("again")["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (255, "Unknown")
    assert pods.get("again")["metadata"]["uid"] == uid
    assert pods.execute("again", "cat /disk/starts") == "start\nstart\n"
    assert pods.execute("again", "cat /memory/starts") == "start\n"
    found = pods.wait_phase("never", "Failed")
    terminated = found["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (255, "Unknown")
    assert pods.get("done")["status"]["phase"] == "Succeeded"
    pods.has_event("again", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")


def _end_all_but(joined: RealCluster, machine: RealMachine) -> None:
    """Kill containerd, its shims and all containers, and leave the registry and the server."""
    deadline = time.monotonic() + 30.0
    while True:
        left = [pid for pid in machine.processes() if _is_of_the_node(pid, machine)]
        if not left:
            return
        assert time.monotonic() < deadline, left
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def _is_of_the_node(pid: int, machine: RealMachine) -> bool:
    try:
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False
    return program.startswith("containerd") or f":{machine.node_cgroup_root}/" in groups
