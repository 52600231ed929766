"""`sudo setpoint up --real`: the server runs as the user, the agent as root, and Pods outlive both."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from kubectl_runner import until
from real_cluster import NODE, NodeAgent, RealCluster, setpoint
from real_kubectl import pod
from real_machine import RealMachine
from real_node import pods_in_namespace
from real_registry import Registry

from setpoint.cli.real_node import read_real_node
from setpoint.cli.running import find_running

pytestmark = pytest.mark.real


def caller() -> pwd.struct_passwd:
    """Return the user who calls sudo; root itself if other users cannot run this Python, as below /root."""
    nobody = pwd.getpwnam("nobody")
    try:
        command = [sys.executable, "-c", "import setpoint"]
        subprocess.run(command, user=nobody.pw_uid, group=nobody.pw_gid, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return pwd.getpwuid(0)
    return nobody


USER = caller()


class Typed:
    """Commands that a user types with sudo, in a data directory of their own."""

    def __init__(self, machine: RealMachine) -> None:
        self.machine = machine
        self.data = machine.directory / "home" / "data"
        self.data.parent.mkdir(exist_ok=True)
        machine.directory.chmod(0o711)
        os.chown(self.data.parent, USER.pw_uid, USER.pw_gid)

    def __call__(self, *words: str) -> str:
        command = self.machine.command(setpoint(*words, "--data-dir", self.data))
        environment = {**self.machine.environment(), "SUDO_UID": str(USER.pw_uid), "HOME": str(self.data.parent)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout


def owner(pid: int) -> int:
    return os.stat(f"/proc/{pid}").st_uid


def test_server_and_agent_run_as_different_users(
    machine: RealMachine, registry: Registry, request: pytest.FixtureRequest
) -> None:
    agent, typed = NodeAgent(machine), Typed(machine)
    places = agent.flags
    out = typed("up", "--real", "--nodes", "1", "--taint-simulated", "--detach", *places)
    assert out.startswith("A cluster with one real node and 1 simulated node is ready at https://172.31.0.")
    cluster = RealCluster(machine, typed.data / "admin.kubeconfig", agent)
    server, node = find_running(typed.data), read_real_node(typed.data)
    assert server is not None and owner(server.pid) == USER.pw_uid
    assert node is not None and owner(node.pid) == 0
    files = [path for path in typed.data.rglob("*") if path.name != "up.log"]
    assert {path.stat().st_uid for path in files} == {USER.pw_uid}
    assert f"This machine is the node {NODE}; its agent runs" in typed("status")
    with pods_in_namespace(cluster, request) as pods:
        before = pods.run(pod("web", registry.image("web")))
        assert before["spec"]["nodeName"] == NODE
        assert "and the agent of the node real-1 are stopped" in typed("down")
        assert pause_processes(machine), "containers continue"
        typed("up", "--real", "--nodes", "1", "--taint-simulated", "--detach", *places)
        until(lambda: pods.status("web").get("ready"), 60.0)
        assert pods.status("web")["containerID"] == before["status"]["containerStatuses"][0]["containerID"]
    typed("reset", "--yes")
    assert not typed.data.exists() and not agent.directories.root.exists() and not agent.directories.run.exists()
    assert machine.cgroups() == [] and not pause_processes(machine)


def pause_processes(machine: RealMachine) -> list[int]:
    """Return the processes of sandboxes."""
    return [pid for pid in machine.processes() if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/pause\0")]
