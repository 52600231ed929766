"""Stories that need a part of the control plane to stop, or to be told how patient it is: every part is a process of
its own, and what people do is done with the real kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from component_process import component_process
from kubectl_runner import Kubectl, kubectls, until
from server_process import server_process

BINARIES = kubectls()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason="no kubectl on the path, nor in SETPOINT_TEST_KUBECTL"),
]
PATIENCE = ("--node-monitor-period=500ms", "--node-monitor-grace-period=3s")
FLEET = "nodes: {count: 3, leaseDurationSeconds: 4}\n"
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: nginx}]
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
"""


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A server, a scheduler and nodes that say every second that they are well."""
    directory = tmp_path_factory.mktemp("processes")
    (directory / "fleet.yaml").write_text(FLEET)
    with server_process(directory) as server, ExitStack() as others:
        others.enter_context(component_process("scheduler", server.kubeconfig, "--leader-elect=false"))
        others.enter_context(component_process("nodes", server.kubeconfig, "--fleet", str(directory / "fleet.yaml")))
        yield Kubectl(BINARIES[-1], server.kubeconfig, directory, "default")


def controllers(kubectl: Kubectl) -> Any:
    return component_process("controller-manager", kubectl.kubeconfig, "--leader-elect=false", *PATIENCE)


def pods(kubectl: Kubectl, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kubectl.get("pods", *args)["items"]
    return found


def test_b3_a_hundred_pods_lost_while_no_controller_ran(kubectl: Kubectl) -> None:
    with controllers(kubectl):
        for name, replicas in (("lost", 100), ("kept", 20)):
            kubectl("create", "deployment", name, "--image=nginx", f"--replicas={replicas}")
        kubectl("rollout", "status", "deployment/lost", "--timeout=60s")
        kubectl("rollout", "status", "deployment/kept", "--timeout=60s")
    before = {pod["metadata"]["uid"] for pod in pods(kubectl)}
    # One by one kubectl would take its time: it makes no more than five requests a second.
    kubectl("delete", "--raw", "/api/v1/namespaces/default/pods?labelSelector=app%3Dlost&gracePeriodSeconds=0")
    assert len(pods(kubectl)) == 20, "nobody is there to replace them"
    with controllers(kubectl):
        until(lambda: kubectl("get", "pods").count("Running") == 120)
        until(lambda: kubectl("get", "deployment", "lost").splitlines()[1].split()[1] == "100/100")
    after = {pod["metadata"]["uid"] for pod in pods(kubectl)}
    assert len(after & before) == 20, "those that were left alone are left alone"
    kubectl("delete", "deployment", "lost", "kept", "--wait=false")


def test_b4_when_the_leader_dies_the_other_takes_over(kubectl: Kubectl) -> None:
    times = (
        "--leader-elect-lease-duration=3s",
        "--leader-elect-renew-deadline=2s",
        "--leader-elect-retry-period=500ms",
    )

    def holder() -> str:
        table = kubectl("-n", "kube-system", "get", "lease", "kube-controller-manager")
        return table.splitlines()[1].split()[1]

    with ExitStack() as stack:
        first = stack.enter_context(component_process("controller-manager", kubectl.kubeconfig, *times))
        assert first.startswith("setpoint controller-manager: leading as ")
        before = holder()
        with component_process("controller-manager", kubectl.kubeconfig, *times) as second:
            assert "standing by as " in second
            assert holder() == before
            stack.close()
            until(lambda: holder() in second)
            kubectl("create", "deployment", "after", "--image=nginx")
            kubectl("rollout", "status", "deployment/after", "--timeout=30s")
            kubectl("delete", "deployment", "after")


def test_b5_a_node_that_stops_answering(kubectl: Kubectl) -> None:
    with controllers(kubectl):
        kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
        kubectl("rollout", "status", "deployment/web", "--timeout=30s")
        lost = pods(kubectl, "-l", "app=web")[0]["spec"]["nodeName"]
        there = pods(kubectl, "-l", "app=web", f"--field-selector=spec.nodeName={lost}")
        theirs = {pod["metadata"]["name"] for pod in there}
        kubectl("annotate", "node", lost, "simulate.setpoint.dev/state=partitioned")
        kubectl("wait", f"node/{lost}", "--for=condition=Ready=Unknown", "--timeout=20s")
        until(lambda: "NotReady" in kubectl("get", "node", lost))
        until(lambda: "node.kubernetes.io/unreachable:NoExecute" in kubectl("describe", "node", lost))

        def moved() -> bool:
            found = [pod for pod in pods(kubectl, "-l", "app=web") if pod["metadata"]["name"] not in theirs]
            running = [pod for pod in found if pod["status"]["phase"] == "Running"]
            return len(running) == 6 and all(pod["spec"]["nodeName"] != lost for pod in running)

        until(moved)
        left = {pod["metadata"]["name"]: pod for pod in pods(kubectl, "-l", "app=web")}
        assert all("deletionTimestamp" in left[name]["metadata"] for name in theirs), "only the node can say they ended"
        assert "TaintManagerEviction" in kubectl("get", "events")
        kubectl("annotate", "node", lost, "simulate.setpoint.dev/state-")
        kubectl("wait", f"node/{lost}", "--for=condition=Ready", "--timeout=20s")
        until(lambda: "unreachable" not in kubectl("describe", "node", lost))
        until(lambda: len(pods(kubectl, "-l", "app=web")) == 6)
