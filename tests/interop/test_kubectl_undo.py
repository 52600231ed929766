"""What kubectl does is foreseen by `setpoint plan`, and can be read and undone afterwards."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from kubectl_runner import Kubectl, Setpoint, kubectls, until
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


def foresee(kubectl: Kubectl, setpoint: Setpoint, change: list[str], command: list[str]) -> None:
    """Predict a change, make it with kubectl, and compare: which Pods are created and deleted, and where Pods are."""
    planned = setpoint.run("plan", *change, "-o", "json")
    assert planned.code == 2, planned.err
    predicted = json.loads(planned.out)["changes"]
    before = pods(kubectl)
    more = {"set": ["*=nginx:1.28"], "drain": ["--ignore-daemonsets", "--timeout=60s"]}[command[0]]
    kubectl(*command, *more)

    def happened() -> Counter[tuple[str, str]]:
        after = pods(kubectl)
        created = Counter(("created", owner) for uid, (owner, _) in after.items() if uid not in before)
        return created + Counter(("deleted", owner) for uid, (owner, _) in before.items() if uid not in after)

    foreseen = Counter((each["action"], each["owner"]) for each in predicted if each["kind"] == "Pod")
    assert foreseen.total()
    until(lambda: happened() == foreseen)
    for number in range(2):
        kubectl("rollout", "status", f"deployment/web-{number}", "--timeout=60s")
    sets = {each["metadata"]["name"]: each["spec"]["replicas"] for each in kubectl.get("replicasets")["items"]}
    made = [each["name"] for each in predicted if (each["action"], each["kind"]) == ("created", "ReplicaSet")]
    assert all(sets[name] == 2 for name in made), "the new ReplicaSet has the foreseen name"
    if command[0] == "drain":
        assert command[1] not in {node for _, node in pods(kubectl).values()}


def pods(kubectl: Kubectl) -> dict[str, tuple[str, str]]:
    """Owner and node of all Pods, by uid."""
    found = kubectl.get("pods")["items"]
    return {
        each["metadata"]["uid"]: (
            "ReplicaSet/" + each["metadata"]["ownerReferences"][0]["name"],
            each["spec"].get("nodeName", ""),
        )
        for each in found
    }


def test_a_deleted_namespace_comes_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with up_process(tmp_path, "--nodes", "2") as kubeconfig:
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
        for number in range(2):
            kubectl("rollout", "status", f"deployment/web-{number}", "--timeout=60s")
        foresee(kubectl, setpoint, ["--image", "deployment/web-0=nginx:1.28"], ["set", "image", "deployment/web-0"])
        before = state()
        assert len(before) == 40
        kubectl("annotate", "namespace", "default", "moment=now")
        then = kubectl.get("namespace", "default")["metadata"]["resourceVersion"]
        kubectl("delete", "namespace", "shop", "--timeout=60s")
        server = kubectl("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
        for binary in BINARIES:
            past = Kubectl(binary, kubeconfig, home, "shop")
            table = past("--server", f"{server}/at/{then}", "get", "pods", "-A")
            assert len(re.findall(r"^shop +web-[01]-\S+ +1/1 +Running ", table, re.MULTILINE)) == 4, table
            assert "shop" not in past("get", "pods", "-A")
        revision = setpoint("history", "namespace/shop").splitlines()[1].split()[0]
        plan = setpoint("undo", revision, "--plan")
        assert plan.count("created anew") == 41, plan
        setpoint("undo", revision, "--yes")
        assert state() == before
        made = [each["metadata"]["creationTimestamp"] for each in kubectl.get(KINDS, "-l", "part-of=shop")["items"]]
        first, last = (datetime.fromisoformat(each) for each in (min(made), max(made)))
        assert (last - first).total_seconds() <= 2, "the objects came back one after the other within two seconds"
        for number in range(2):
            kubectl("rollout", "status", f"deployment/web-{number}", "--timeout=60s")
        foresee(kubectl, setpoint, ["--drain", "node-1"], ["drain", "node-1"])
