"""A cluster on a machine of the tests: a control plane and a node agent with its own containerd, all real processes."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kubectl_runner import Kubectl, kubectls, until
from real_machine import RealMachine, wait_until

from setpoint.node.cri.client import CriClient
from setpoint.node.host.directories import NodeDirectories
from setpoint.system import SystemClock

PORT = 6443
NODE = "real-1"
_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 30.0


def setpoint(*arguments: str | Path) -> list[str | Path]:
    return [sys.executable, "-m", "setpoint", *arguments]


class NodeAgent:
    """The agent of a node, which can be killed and started again; its Pods go on meanwhile."""

    def __init__(self, machine: RealMachine, name: str = NODE) -> None:
        self.machine = machine
        self.name = name
        self.log = machine.directory / "agent.log"
        self.directories = NodeDirectories(
            root=machine.directory / "node", logs=machine.directory / "pod-logs", run=machine.directory / "run"
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def directory_flags(self) -> list[str]:
        """The options of every command of the node: its directories are not the default ones."""
        found = self.directories
        return ["--root-dir", str(found.root), "--logs-dir", str(found.logs), "--run-dir", str(found.run)]

    @property
    def flags(self) -> list[str]:
        """The options of a new node."""
        machine = self.machine
        own = ["--cgroup-root", machine.node_cgroup_root, "--node-name", self.name, "--node-ip", machine.address]
        # The disk that the tests run on may be nearly full, and is not that of these nodes alone.
        disk = ["--eviction-hard", "memory.available<1Mi", "--image-gc-high-threshold", "100"]
        return [*self.directory_flags, *own, *disk]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def join(self, command: str, *flags: str) -> None:
        """Run the command that `setpoint token create` prints."""
        words = shlex.split(command.removeprefix("sudo "))
        assert words[:3] == ["setpoint", "node", "join"], command
        self.machine.run(*setpoint(*words[1:], *self.flags, "--run=false", *flags))

    def leave(self) -> str:
        """Run `setpoint node leave` and return what it prints. It must succeed."""
        found = self.machine.run(*setpoint("node", "leave", "--yes", *self.directory_flags))
        if self._process is not None:
            self._process.wait(_STOP_TIMEOUT)
            self._process = None
        return found

    def start(self, **environment: str) -> None:
        """Start the agent; does not wait until the node is ready."""
        assert self._process is None
        command = setpoint("node", "run", *self.directory_flags)
        self._process = self.machine.spawn(command, self.log, reported=True, **environment)

    def kill(self) -> None:
        """End the agent with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the agent with SIGTERM."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)
            self._process.wait(_STOP_TIMEOUT)
            self._process = None

    def containerd_pid(self) -> int:
        """Return the process id of the agent's own containerd."""
        found = [pid for pid in self.machine.processes() if program_of(pid) == "containerd"]
        assert len(found) == 1, found
        return found[0]

    def kill_containerd(self) -> None:
        os.kill(self.containerd_pid(), signal.SIGKILL)

    def sandboxes(self) -> list[str]:
        """Return the uids of the Pods that have a running sandbox, each as often as it has one."""

        async def ask() -> list[str]:
            client = CriClient(f"unix://{self.directories.run / 'containerd.sock'}", SystemClock())
            try:
                found = await client.call("ListPodSandbox", {"filter": {"state": {"state": 0}}})
            finally:
                client.close()
            return sorted(each.metadata.uid for each in found.items)

        return asyncio.run(ask())


class RealCluster:
    """A control plane, and the node that its machine is."""

    def __init__(self, machine: RealMachine, kubeconfig: Path, agent: NodeAgent) -> None:
        self.machine = machine
        self.kubeconfig = kubeconfig
        self.agent = agent

    def kubectl(self, namespace: str = "default") -> Kubectl:
        """Return the newest kubectl, or our own command line where there is none."""
        binary = kubectls()[-1] if kubectls() else Path(sys.executable).parent / "setpoint"
        home = self.machine.directory / "home"
        home.mkdir(exist_ok=True)
        return Kubectl(binary, self.kubeconfig, home, namespace)

    def wait_ready(self, node: str = NODE) -> None:
        kubectl = self.kubectl()
        until(lambda: kubectl.run("get", "node", node).code == 0, _START_TIMEOUT)
        kubectl("wait", f"node/{node}", "--for=condition=Ready", f"--timeout={_START_TIMEOUT:g}s")


@contextmanager
def control_plane(machine: RealMachine, *flags: str) -> Iterator[Path]:
    """Run a control plane without nodes at an address that Pods reach, and yield the administrator's kubeconfig."""
    with _up(machine, "--nodes", "0", *flags) as kubeconfig:
        yield kubeconfig


@contextmanager
def joined_cluster(
    machine: RealMachine, *flags: str, environment: Mapping[str, str] | None = None
) -> Iterator[RealCluster]:
    """Run a control plane, and a node that joined it, as two processes. `flags` are options of the node, `environment`
    are variables of its agent."""
    with control_plane(machine) as kubeconfig:
        agent = NodeAgent(machine)
        created = machine.run(*setpoint("token", "create", "--data-dir", machine.directory / "server"))
        agent.join(next(line.strip() for line in created.splitlines() if "setpoint node join" in line), *flags)
        agent.start(**(environment or {}))
        try:
            cluster = RealCluster(machine, kubeconfig, agent)
            cluster.wait_ready()
            yield cluster
        finally:
            agent.kill()


@contextmanager
def real_cluster(machine: RealMachine, *flags: str) -> Iterator[RealCluster]:
    """Run `setpoint up --real`: a control plane, and the agent beside it."""
    agent = NodeAgent(machine)
    with _up(machine, "--nodes", "0", "--real", *agent.flags, *flags) as kubeconfig:
        cluster = RealCluster(machine, kubeconfig, agent)
        cluster.wait_ready()
        yield cluster


@contextmanager
def _up(machine: RealMachine, *flags: str) -> Iterator[Path]:
    data, log = machine.directory / "server", machine.directory / "server.log"
    options = ["--bind-address", machine.address, "--port", str(PORT), "--data-dir", str(data), "--quiet"]
    before = log.stat().st_size if log.exists() else 0
    process = machine.spawn(setpoint("up", *options, *flags), log)

    def output() -> str:
        return log.read_bytes()[before:].decode()

    def started() -> bool:
        assert process.poll() is None, f"setpoint up ended: {output()}"
        return " is ready at " in output()

    try:
        wait_until(started, _START_TIMEOUT, output)
        yield data / "admin.kubeconfig"
    finally:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def machine_state(machine: RealMachine) -> dict[str, Any]:
    """Return everything that a node could leave behind on a machine."""
    return {
        "mounts": machine.mounts(),
        "cgroups": sorted(map(str, machine.cgroups())),
        "links": sorted(line.split()[0] for line in machine.run("ip", "-brief", "link").splitlines()),
        "addresses": machine.run("ip", "-brief", "address"),
        "routes": machine.run("ip", "route", "show", "table", "all"),
        "rules": machine.run("ip", "rule"),
        "firewall": machine.run("nft", "list", "ruleset"),
        "settings": machine.run("sysctl", "net.ipv4.ip_forward", "net.ipv4.conf.all", "net.ipv4.conf.default"),
        "files": sorted(path.name for path in machine.directory.iterdir()),
        "programs": sorted({program_of(pid) for pid in machine.processes()} - {""}),
    }


def program_of(pid: int) -> str:
    """Return the name of the program of a process; empty if it has ended."""
    with suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    return ""
