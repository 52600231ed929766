"""Story F4: a Helm chart installs, is changed, rolled back, tested and removed, by helm itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kubectl_runner import Kubectl

from setpoint.testing.live import LiveCluster

CHART = Path(__file__).parent / "charts" / "shop"
HELM = shutil.which("helm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(HELM is None, reason="no helm on the path")]


class Helm:
    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._environment = {"HOME": str(home), "PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig)}

    def __call__(self, *args: str, code: int = 0) -> str:
        done = subprocess.run(
            [str(HELM), *args], capture_output=True, text=True, timeout=90, env=self._environment, cwd=CHART.parent
        )
        assert done.returncode == code, f"helm {' '.join(args)}: {done.stderr or done.stdout}"
        return done.stdout + done.stderr

    def history(self, release: str) -> list[tuple[int, str]]:
        found: list[dict[str, Any]] = json.loads(self("history", release, "-o", "json"))
        return [(one["revision"], one["status"]) for one in found]


def test_f4_a_chart_installs(live_cluster: LiveCluster, commander: Kubectl, tmp_path: Path) -> None:
    kubectl, helm = commander, Helm(live_cluster.kubeconfig, tmp_path)
    ready = ("--wait", "--wait-for-jobs", "--timeout", "60s")
    # Everything in it is made, a hook runs before, and the release's own test after.
    said = helm("install", "mine", "shop", *ready)
    assert "STATUS: deployed" in said and "mine serves on Kubernetes 1.37." in said
    assert kubectl("logs", "job/mine-migrate") == "migrated to 1\n"
    deployment, secret = kubectl.get("deployment/mine", "secret/mine")["items"]
    assert deployment["status"]["readyReplicas"] == 2
    assert "said hello" in helm("test", "mine", "--logs")

    # An upgrade: what the chart says now, with what is to stay. Of the till the definition came with the chart.
    helm("upgrade", "mine", "shop", "--set", "greeting=bye,autoscaling.enabled=true,ingress.enabled=false", *ready)
    config, till, again = kubectl.get("configmap/mine", "till/mine", "secret/mine")["items"]
    assert (config["data"], till["spec"]) == ({"greeting": "bye"}, {"currency": "EUR"})
    assert again["data"] == secret["data"]
    assert "NotFound" in kubectl.refused("get", "ingress", "mine")
    kubectl("wait", "deployment/mine", "--for=jsonpath={.status.readyReplicas}=3", "--timeout=30s")  # the autoscaler's

    # One that is refused leaves what was there, and says why.
    assert "Invalid value" in helm("upgrade", "mine", "shop", "--set", "replicaCount=-1", code=1)
    helm("rollback", "mine", "1", *ready)
    config, ingress = kubectl.get("configmap/mine", "ingress/mine")["items"]
    assert (config["data"], ingress["spec"]["rules"][0]["host"]) == ({"greeting": "hello"}, "shop.example.com")
    assert helm.history("mine") == [(1, "superseded"), (2, "superseded"), (3, "failed"), (4, "deployed")]

    assert 'release "mine" uninstalled' in helm("uninstall", "mine", "--wait", "--timeout", "60s")
    assert kubectl("get", "deployment,secret,role,pdb,ingress,till", "-o", "name") == ""
    claim, closed = kubectl.get("pvc/mine", "configmap/mine-closed")["items"]
    assert claim["status"]["phase"] == "Bound"  # its policy is to be kept
    assert closed["data"] == {"by": "Helm"}
