"""Unmodified kubectl in a fork, and `setpoint` commands on a cluster that runs: fork, plan, twin."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from effort import THOROUGH
from kubectl_runner import Kubectl, Setpoint, kubectls, until

from setpoint.cluster.snapshot_file import REDACTED, SnapshotReader
from setpoint.testing.live import LiveCluster

BINARIES = kubectls()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason="no kubectl on the path, nor in SETPOINT_TEST_KUBECTL"),
]
SETPOINT = Path(sys.executable).parent / "setpoint"


def test_a_fork_with_kubectl(live_cluster: LiveCluster, tmp_path: Path) -> None:
    setpoint = Setpoint(SETPOINT, live_cluster.kubeconfig, tmp_path, "default")
    newest = Kubectl(BINARIES[-1], live_cluster.kubeconfig, tmp_path, "default")
    newest("create", "deployment", "web", "--image=nginx:1.27", "--replicas=2")
    until(lambda: newest.get("deployment", "web").get("status", {}).get("readyReplicas") == 2)

    assert f"kubectl --server {live_cluster.url}/forks/try get pods -A\n" in setpoint("fork", "try")
    for binary in BINARIES if THOROUGH else BINARIES[-1:]:
        forked = Kubectl(binary, live_cluster.kubeconfig, tmp_path, "default")
        server = f"--server={live_cluster.url}/forks/try"
        forked(server, "scale", "deployment", "web", "--replicas=3")
        forked(server, "rollout", "status", "deployment", "web", "--timeout=60s")
        forked(server, "exec", "deployment/web", "--", "true")
        forked(server, "scale", "deployment", "web", "--replicas=1")
        assert newest.get("deployment", "web")["spec"]["replicas"] == 2
    (tmp_path / "later").write_text(setpoint("fork", "later", "--virtual", "--advance", "1h", "-o", "kubeconfig"))
    later = Kubectl(BINARIES[-1], tmp_path / "later", tmp_path, "default")
    later("delete", "deployment", "web")
    assert len(json.loads(later("get", "pods", "-o", "json"))["items"]) == 2, "time stands still"
    assert "and the fork has settled" in setpoint("fork", "later", "--until", "settled")
    assert json.loads(later("get", "pods", "-o", "json"))["items"] == []
    assert [line.split()[0] for line in setpoint("forks").splitlines()] == ["NAME", "try", "later"]
    setpoint("fork", "rm", "try", "later")
    assert newest.run(f"--server={live_cluster.url}/forks/try", "get", "pods").code == 1

    planned = setpoint.run("plan", "--image", "deployment/web=nginx:1.28")
    assert planned.code == 2 and "+ 2 Pods of replicaset/web-" in planned.out
    assert newest.get("deployment", "web")["metadata"]["generation"] == 1
    twin = setpoint("twin", "--report-only", "--save", str(tmp_path / "twin.setpoint"))
    assert "The twin is at rest: at the first look, the loops changed nothing.\n" in twin
    assert SnapshotReader(tmp_path / "twin.setpoint").header.secrets == REDACTED
