"""A namespace that kubectl has deleted comes back: `setpoint undo` with kubectl's kubeconfig."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kubectl_runner import Kubectl, Setpoint, kubectls
from up_process import up_process

BINARIES = kubectls()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason="no kubectl on the path, nor in SETPOINT_TEST_KUBECTL"),
]
KINDS = "configmaps,secrets,deployments,services,serviceaccounts,roles"


def manifest() -> str:
    """40 objects of a namespace."""

    def made(api_version: str, kind: str, name: str, **fields: object) -> dict[str, object]:
        meta = {"name": name, "namespace": "shop", "labels": {"part-of": "shop"}}
        return {"apiVersion": api_version, "kind": kind, "metadata": meta, **fields}

    items = [made("v1", "ConfigMap", f"settings-{number}", data={"n": str(number)}) for number in range(24)]
    items += [made("v1", "Secret", f"password-{number}", stringData={"n": str(number)}) for number in range(8)]
    items += [made("v1", "ServiceAccount", f"robot-{number}") for number in range(4)]
    items += [made("rbac.authorization.k8s.io/v1", "Role", "reader", rules=[])]
    items += [made("v1", "Service", "web", spec={"selector": {"app": "web"}, "ports": [{"port": 80}]})]
    for number in range(2):
        labels = {"app": f"web-{number}"}
        pod = {"containers": [{"name": "web", "image": "nginx:1.27"}], "terminationGracePeriodSeconds": 1}
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        items.append(made("apps/v1", "Deployment", f"web-{number}", spec=spec))
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def test_a_deleted_namespace_comes_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with up_process(tmp_path, "--nodes", "1") as kubeconfig:
        kubectl = Kubectl(BINARIES[-1], kubeconfig, home, "shop")
        setpoint = Setpoint(Path("setpoint"), kubeconfig, home, "shop")

        def state() -> dict[str, object]:
            found = kubectl.get(KINDS, "-l", "part-of=shop")["items"]
            fields = ("spec", "data", "rules")
            return {
                f"{each['kind']}/{each['metadata']['name']}": [
                    each["metadata"]["labels"],
                    *(each.get(name) for name in fields),
                ]
                for each in found
            }

        kubectl("create", "namespace", "shop")
        kubectl("apply", "-f", "-", stdin=manifest())
        kubectl("rollout", "status", "deployment/web-0", "--timeout=60s")
        before = state()
        assert len(before) == 40
        kubectl("delete", "namespace", "shop", "--timeout=60s")
        revision = setpoint("history", "namespace/shop").splitlines()[1].split()[0]
        plan = setpoint("undo", revision, "--plan")
        assert plan.count("created anew") == 41, plan
        setpoint("undo", revision, "--yes")
        assert state() == before
        kubectl("rollout", "status", "deployment/web-0", "--timeout=60s")
