"""`kubectl rollout` against a whole cluster: status, history, undo, pause, resume, restart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubectl_runner import Kubectl, kubectls
from up_process import up_process

BINARIES = kubectls()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason="no kubectl on the path, nor in SETPOINT_TEST_KUBECTL"),
]

WORKLOAD = """\
apiVersion: apps/v1
kind: {kind}
metadata: {{name: web}}
spec:
  {extra}
  selector: {{matchLabels: {{app: {kind}}}}}
  template:
    metadata: {{labels: {{app: {kind}}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {{name: c, image: nginx:1.27}}
"""


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """The newest one: what is told here is about the controllers."""
    directory = tmp_path_factory.mktemp("up")
    with up_process(directory, "--nodes", "2") as kubeconfig:
        yield Kubectl(BINARIES[-1], kubeconfig, directory, "default")


def image(kubectl: Kubectl, what: str) -> str:
    path = "jsonpath={.spec.template.spec.containers[0].image}"
    return kubectl("get", what, "-o", path)


def revisions(kubectl: Kubectl, what: str) -> list[str]:
    lines = kubectl("rollout", "history", what).splitlines()
    return [line.split()[0] for line in lines if line[:1].isdigit()]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_a_rollout_and_its_undo(kubectl: Kubectl, kind: str) -> None:
    extra = {"Deployment": "replicas: 2", "StatefulSet": "replicas: 2\n  serviceName: web", "DaemonSet": ""}[kind]
    what = f"{kind.lower()}/web"
    kubectl("apply", "-f", "-", stdin=WORKLOAD.format(kind=kind, extra=extra or "minReadySeconds: 0"))
    told = kubectl("rollout", "status", what, "--timeout=50s")
    done = {
        "Deployment": 'deployment "web" successfully rolled out',
        "StatefulSet": "partitioned roll out complete: 2 new pods have been updated...",
        "DaemonSet": 'daemon set "web" successfully rolled out',
    }[kind]
    assert done in told
    for tag in ("1.28", "1.29"):
        kubectl("set", "image", what, f"c=nginx:{tag}")
        kubectl("rollout", "status", what, "--timeout=50s")
    assert revisions(kubectl, what) == ["1", "2", "3"]
    assert "nginx:1.28" in kubectl("rollout", "history", what, "--revision=2")
    assert "rolled back" in kubectl("rollout", "undo", what)
    kubectl("rollout", "status", what, "--timeout=50s")
    assert image(kubectl, what) == "nginx:1.28"
    assert revisions(kubectl, what) == ["1", "3", "4"]
    kubectl("rollout", "undo", what, "--to-revision=1")
    kubectl("rollout", "status", what, "--timeout=50s")
    assert image(kubectl, what) == "nginx:1.27"
    assert revisions(kubectl, what) == ["3", "4", "5"]
    assert "unable to find specified revision 99" in kubectl.refused("rollout", "undo", what, "--to-revision=99")
    kubectl("rollout", "restart", what)
    kubectl("rollout", "status", what, "--timeout=50s")
    assert "kubectl.kubernetes.io/restartedAt" in kubectl("get", what, "-o", "yaml")
    assert revisions(kubectl, what) == ["3", "4", "5", "6"]
    kubectl("delete", what)


def test_a_deployment_is_paused_and_resumed(kubectl: Kubectl) -> None:
    what = "deployment/web"
    kubectl("apply", "-f", "-", stdin=WORKLOAD.format(kind="Deployment", extra="replicas: 2"))
    kubectl("set", "image", what, "c=nginx:1.28")
    kubectl("rollout", "status", what, "--timeout=50s")
    assert "paused" in kubectl("rollout", "pause", what)
    kubectl("set", "image", what, "c=nginx:1.29")
    assert revisions(kubectl, what) == ["1", "2"]
    assert "cannot rollback a paused deployment" in kubectl.refused("rollout", "undo", what)
    assert "resumed" in kubectl("rollout", "resume", what)
    kubectl("rollout", "status", what, "--timeout=50s")
    assert revisions(kubectl, what) == ["1", "2", "3"]
    described = kubectl("describe", what)
    assert "Progressing    True    NewReplicaSetAvailable" in described
    assert "ScalingReplicaSet" in described
    kubectl("delete", what)
