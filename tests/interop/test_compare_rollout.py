"""`rollout` and `scale` on a cluster with controllers and nodes: the same output by kubectl and by `setpoint`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from comparing import Both

pytestmark = pytest.mark.slow

WORKLOADS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}, annotations: {kubernetes.io/change-cause: the first}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: "nginx:1", ports: [{containerPort: 80}], env: [{name: A, value: b}]}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: "nginx:1"}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs}
spec:
  selector: {matchLabels: {app: logs}}
  template:
    metadata: {labels: {app: logs}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: "nginx:1"}]
"""


SMOOTH = [
    (r"(pod-template-hash[=:] ?|revision |web-|db-)[bcdf-hj-np-tv-xz0-9]{8,10}\b", r"\1HASH"),
    (r"(restartedAt[=:] ?\"?)[-0-9T:+Z]+", r"\1TIME"),
]


@pytest.fixture
def workloads(both_alive: Both, request: pytest.FixtureRequest) -> Both:
    """The workloads in namespaces of the test's own."""
    found = replace(both_alive, namespace=request.node.name.removeprefix("test_"), smooth=SMOOTH)
    found.given(WORKLOADS)
    return found


def test_scale(workloads: Both) -> None:
    workloads.writes("""
        scale deployment web --replicas=3
        scale deployment web --replicas=3 --dry-run=client
        scale deployment web --replicas=1 --dry-run=server
        scale deploy/web statefulset/db --replicas=2
        scale --replicas=1 --current-replicas=2 deploy/web
        scale --replicas=2 --timeout=20s deploy/web
        scale --replicas=2 deployment --all -o name
        scale --replicas=2 deployment -l app=web
        ! scale --replicas=2 deployment -l app=nothing
        ! scale --replicas=1 --current-replicas=7 deploy/web
        ! scale --replicas=1 --resource-version=1 deploy/web
        ! scale --replicas=1 --resource-version=1 deploy/web sts/db
        ! scale --replicas=-1 deploy/web
        ! scale --replicas=1 --current-replicas=-2 deploy/web
        ! scale deploy/web
        ! scale --replicas=1 deploy/nothing
        ! scale --replicas=1 deploy/web deploy/nothing
        ! scale --replicas=1 daemonset/logs
        ! scale --replicas=1
        ! scale --replicas=1 deploy
        rollout status sts/db --timeout=30s -w=false
    """)


def test_rollout(workloads: Both) -> None:
    workloads.writes("""
        wait deploy/web --for=condition=Available --timeout=30s
        wait sts/db --for=jsonpath={.status.readyReplicas}=1 --timeout=30s
        wait daemonset/logs --for=jsonpath={.status.numberAvailable}=2 --timeout=30s
        rollout status deploy/web
        rollout status deploy web --revision=1
        rollout status sts/db
        rollout status ds/logs daemonset/logs
        ! rollout status deploy/web --revision=3
        ! rollout status deploy/web --revision=-3
        ! rollout status deploy/nothing
        ! rollout status
        ! rollout status sa/default
        rollout status deploy -l app=nothing
        rollout history deploy/web
        rollout history deploy/web --revision=1
        rollout history sts/db
        rollout history sts/db --revision=1
        rollout history ds/logs --revision=1
        rollout history deploy/web -o yaml
        rollout history deploy/web -o name --revision=1
        ! rollout history deploy/web --revision=9
        ! rollout history deploy/web --revision=-1
        ! rollout history sa/default
        ! rollout history
        ! rollout undo deploy/web
        ! rollout undo sts/db
        rollout restart deploy/web sts/db ds/logs
        rollout restart deploy -l app=nothing
        ! rollout restart sa/default
        ! rollout restart
        rollout pause deploy/web
        ! rollout pause deploy/web
        ! rollout pause sts/db
        ! rollout undo deploy/web
        ! rollout restart deploy/web
        rollout resume deploy/web -o yaml
        ! rollout resume deploy/web
        ! rollout resume ds/logs
        ! rollout nothing
    """)


def test_undo(workloads: Both) -> None:
    workloads.writes("""
        wait deploy/web --for=condition=Available --timeout=30s
        wait sts/db --for=jsonpath={.status.readyReplicas}=1 --timeout=30s
        wait ds/logs --for=jsonpath={.status.numberAvailable}=2 --timeout=30s
        rollout restart deploy/web sts/db ds/logs
        wait ds/logs --for=jsonpath={.status.updatedNumberScheduled}=2 --timeout=30s
        wait deploy/web --for=jsonpath={.status.updatedReplicas}=2 --timeout=30s
        rollout history ds/logs
        rollout undo deploy/web --dry-run=client
        rollout undo deploy/web --dry-run=server
        rollout undo ds/logs --dry-run=client
        rollout undo ds/logs --to-revision=1
        rollout undo sts/db --to-revision=1
        rollout undo deploy/web --to-revision=1
        ! rollout undo deploy/web --to-revision=1 -o name
        ! rollout undo sts/db --to-revision=1
        rollout undo deploy/web -o name
        ! rollout undo sts/db --to-revision=9
        ! rollout undo deploy/web --to-revision=9
        ! rollout undo deploy/web --to-revision=-1
        ! rollout undo sa/default
        ! rollout undo
        wait deploy/web --for=jsonpath={.status.updatedReplicas}=2 --timeout=30s
        rollout history deploy/web
    """)


def test_run_attached(both_alive: Both) -> None:
    both_alive.writes("run c1 --image=busybox --restart=Never -i --rm -q -- cat", stdin="hello\n")
    both_alive.writes("""
        ! run c2 --image=busybox --restart=Never -i --rm -q -- sh -c 'echo hi; exit 3'
        run c3 --image=busybox --restart=Never --attach -q -- echo hi
        ! get pod c2
        get pod c3 -o name
    """)
