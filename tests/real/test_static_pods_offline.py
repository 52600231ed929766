"""Static Pods of a real node while the API server is away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kubectl_runner import until
from real_cluster import NODE, NodeAgent, RealCluster, control_plane, setpoint
from real_kubectl import PodClient, pod
from real_machine import RealMachine
from real_registry import Registry

pytestmark = pytest.mark.real


def test_static_pods_run_without_the_api_server(machine: RealMachine, registry: Registry) -> None:
    manifests = machine.directory / "manifests"
    manifests.mkdir()
    agent = NodeAgent(machine)
    try:
        with control_plane(machine) as kubeconfig:
            created = machine.run(*setpoint("token", "create", "--data-dir", machine.directory / "server"))
            line = next(line.strip() for line in created.splitlines() if "setpoint node join" in line)
            agent.join(line, "--pod-manifest-path", str(manifests))
            agent.start()
            RealCluster(machine, kubeconfig, agent).wait_ready()
        agent.kill()
        manifest = pod("web", registry.image("busybox"), "sh", "-c", "echo ran >> /shared/starts; sleep 1000")
        manifest["spec"]["volumes"] = [{"name": "shared", "hostPath": {"path": str(manifests.parent)}}]
        manifest["spec"]["containers"][0]["volumeMounts"] = [{"name": "shared", "mountPath": "/shared"}]
        (manifests / "web.json").write_text(json.dumps(manifest))
        agent.start()
        starts = manifests.parent / "starts"
        until(lambda: _lines(starts) == 1, 60.0)
        agent.kill()
        agent.start()
        with control_plane(machine) as kubeconfig:
            cluster = RealCluster(machine, kubeconfig, agent)
            cluster.wait_ready()
            pods = PodClient(cluster.kubectl())
            until(lambda: pods.kubectl.run("get", "pod", f"web-{NODE}").code == 0, 60.0)
            pods.wait_ready(f"web-{NODE}")
            assert pods.status(f"web-{NODE}")["restartCount"] == 0
            assert _lines(starts) == 1
    finally:
        agent.kill()


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0
