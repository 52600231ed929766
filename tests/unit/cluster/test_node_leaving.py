"""A machine that leaves removes what its node has made, whether the cluster answers or not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from setpoint.client.client import Client
from setpoint.client.https import connect
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.cluster.apiserver import RunningApiServer, apiserver
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.cluster.node_agent import locked, save_config
from setpoint.cluster.node_joining import NodeFiles, issue_identity
from setpoint.cluster.node_leaving import Leaving, own_processes
from setpoint.cluster.node_tokens import ensure_node_rights
from setpoint.meta.objects import Obj
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.node_config import NodeConfig
from setpoint.system import RandomIds, SystemClock

CLOCK = SystemClock()
PODS, NODES = builtin("pods"), builtin("nodes")


def config_in(directory: Path, **settings: str) -> NodeConfig:
    places = NodeDirectories(directory / "state" / "root", directory / "logs", directory / "state" / "run")
    return NodeConfig("worker", places, **settings)  # type: ignore[arg-type]


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def stubborn_process() -> subprocess.Popen[bytes]:
    """Start a process that ignores SIGTERM."""
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); signal.pause()"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"1\n"
    process.stdout.close()
    return process


class OnThisMachine(Leaving):
    """Does not touch the cgroups, packet rules and routes of the machine; tests/real covers them."""

    async def _remove_cgroups(self, pool: BlockingPool) -> None:
        pass

    async def _remove_network(self, pool: BlockingPool) -> None:
        pass


def leaving(config: NodeConfig, printed: list[str], **settings: float) -> OnThisMachine:
    return OnThisMachine(config, CLOCK, RandomIds(), printed.append, **settings)  # type: ignore[arg-type]


@asynccontextmanager
async def cluster(directory: Path, config: NodeConfig) -> AsyncIterator[tuple[RunningApiServer, Client]]:
    settings = ApiServerConfig(directory, port=0, store="memory", disable_admission_plugins=["ServiceAccount"])
    async with apiserver(settings, alone=True) as running:
        assert running.certificates is not None
        client = connect(
            Access(running.url, ca=running.certificates.ca.read_bytes(), token=running.loopback_token), CLOCK
        )
        await ensure_node_rights(client)
        files = NodeFiles(config.directories)
        issue_identity(files, running.certificates, running.url, "worker", ["10.0.0.9"], CLOCK)
        save_config(config)
        await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"}})
        yield running, client
        await client.close()


def pod(name: str, owner: str = "") -> Obj:
    meta: Obj = {"name": name, "namespace": "default"}
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "u", "controller": True}
        meta["ownerReferences"] = [reference]
    spec = {"nodeName": "worker", "containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


async def test_everything_is_removed_from_machine_and_cluster(tmp_path: Path) -> None:
    config, printed = config_in(tmp_path), list[str]()
    async with cluster(tmp_path / "data", config) as (_, client):
        await client.create(pod("web"))
        (config.directories.pods / "uid-1").mkdir(parents=True)
        for name in ("default_web_uid-1", "default_other_uid-2"):
            (config.directories.logs / name).mkdir(parents=True)
        before = names_in(tmp_path)
        await leaving(config, printed).run()
        assert (await client.list(PODS, "default")).items == []
        assert names_in(tmp_path) == [name for name in before if name != "state"]
        assert names_in(config.directories.logs) == ["default_other_uid-2"]
        (ready,) = (await client.get(NODES, "worker"))["status"]["conditions"]
        assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "NodeLeft")
        assert "The Node worker is still in the cluster. Delete it: kubectl delete node worker" in printed
        again = leaving(config, printed)
        await again.run()
        assert again.problems == [] and not (tmp_path / "state").exists()


async def test_pods_end_while_the_agent_runs(tmp_path: Path) -> None:
    """Those of a DaemonSet would be made anew."""
    config, printed = config_in(tmp_path), list[str]()
    async with cluster(tmp_path / "data", config) as (_, client):
        await client.create(pod("web"))
        await client.create(pod("daemon", "DaemonSet"))
        step = leaving(config, printed, drain_timeout=10.0)
        with locked(config):
            await step._drain(client)
        assert [one["metadata"]["name"] for one in (await client.list(PODS, "default")).items] == ["daemon"]
        assert (await client.get(NODES, "worker"))["spec"]["unschedulable"]
        assert printed == ["Waiting for 1 Pods to end."]


async def test_a_cluster_that_does_not_answer_is_no_obstacle(tmp_path: Path) -> None:
    config, printed = config_in(tmp_path), list[str]()
    async with cluster(tmp_path / "data", config):
        pass
    step = leaving(config, printed)
    await step.run()
    assert step.problems == [] and not (tmp_path / "state").exists()
    assert printed[0].startswith("The cluster does not know that this node leaves: ")
    assert printed[1] == "Delete the Node there: kubectl delete node worker"


async def test_the_configuration_for_shutdowns_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "99-setpoint.conf"
    monkeypatch.setattr("setpoint.cluster.node_leaving.CONFIGURATION", path)
    path.touch()
    await leaving(config_in(tmp_path), []).run()
    assert path.exists(), "a node that delays no shutdown did not write it"
    config = replace(config_in(tmp_path), shutdown_grace_period=30.0)
    await leaving(config, []).run()
    assert not path.exists()


async def test_nothing_is_removed_while_an_agent_runs_that_does_not_stop(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    save_config(config)
    with locked(config):
        step = leaving(config, [])
        with pytest.raises(ConfigError, match="the agent was started again: stop it first"), step._lock():
            pass
    assert NodeFiles(config.directories).settings.exists()


async def test_what_is_left_is_reported_and_the_identity_stays(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    save_config(config)

    class Stuck(OnThisMachine):
        def _unmount(self) -> None:
            self.problems.append("/x is still mounted")

    step = Stuck(config, CLOCK, RandomIds(), lambda _: None)
    await step.run()
    assert step.problems == ["/x is still mounted"]
    assert NodeFiles(config.directories).settings.exists()


async def test_only_processes_of_the_node_are_ended(tmp_path: Path) -> None:
    config, proc = config_in(tmp_path), tmp_path / "proc"
    run = config.directories.run
    lines = {
        1: ["/usr/bin/containerd", "--config", f"{config.directories.root}/containerd/config.toml"],
        2: ["/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-address", f"{run}/containerd.sock"],
        3: ["/usr/bin/containerd", "--config", "/etc/containerd/config.toml"],
        4: ["/usr/bin/vi", f"{config.directories.root}/containerd/config.toml"],
        5: ["containerd", f"--address={run}/containerd.sock"],
        6: [""],
    }
    for pid, words in lines.items():
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "cmdline").write_bytes("\0".join([*words, ""]).encode())
    (proc / "self").mkdir()
    assert sorted(own_processes(config, proc)) == [1, 2, 5]
    foreign = config_in(tmp_path, container_runtime_endpoint="unix:///run/containerd/containerd.sock")
    assert own_processes(foreign, proc) == []


async def test_a_process_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    process, step = stubborn_process(), leaving(config_in(tmp_path), [])
    await step._end([process.pid], 0.1)
    assert step.problems == []
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    process.returncode = -9  # it was reaped
