"""`logs` in all its forms: the same output by kubectl and by `setpoint`."""

from __future__ import annotations

from comparing import Both

PODS = """
apiVersion: v1
kind: Pod
metadata: {name: talk, labels: {app: talk}}
spec:
  containers:
  - {name: main, image: busybox, command: [sh, -c, "for i in 1 2 3; do echo line $i; done; sleep 1000"]}
---
apiVersion: v1
kind: Pod
metadata: {name: two, labels: {app: two}}
spec:
  initContainers: [{name: before, image: busybox, command: [sh, -c, "echo before"]}]
  containers:
  - {name: left, image: busybox, command: [sh, -c, "echo left; sleep 1000"]}
  - {name: right, image: busybox, command: [sh, -c, "printf 'right without end'; sleep 1000"]}
---
apiVersion: v1
kind: Pod
metadata: {name: chosen, annotations: {kubectl.kubernetes.io/default-container: b}}
spec:
  containers:
  - {name: a, image: busybox, command: [sh, -c, "echo a; sleep 1000"]}
  - {name: b, image: busybox, command: [sh, -c, "echo b; sleep 1000"]}
---
apiVersion: v1
kind: Pod
metadata: {name: short, labels: {app: short}}
spec:
  restartPolicy: Never
  containers: [{name: main, image: busybox, command: [sh, -c, "echo that is all"]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: set}
spec:
  replicas: 1
  selector: {matchLabels: {app: set}}
  template:
    metadata: {labels: {app: set}}
    spec: {containers: [{name: main, image: busybox, command: [sh, -c, "echo of a set; sleep 1000"]}]}
"""


def test_logs(both_alive: Both) -> None:
    both_alive.given(PODS)
    both_alive.reads("""
        wait pod/talk pod/two pod/chosen --for=condition=Ready --timeout=20s
        wait pod/short --for=jsonpath={.status.phase}=Succeeded --timeout=20s
        wait deployment/set --for=condition=Available --timeout=20s
        logs talk
        logs pod/talk
        logs pods/talk --tail=1
        logs talk --tail=0
        logs talk --limit-bytes=8
        logs talk --since=1h
        logs talk --since-time=2020-01-01T00:00:00Z
        logs talk --prefix
        logs talk main
        logs talk -c main
        logs two
        logs two right
        logs two -c before
        logs chosen
        logs short
        logs short -f
        logs -l app=talk
        logs -l app=talk --tail=-1 --prefix
        logs -l app=short -f
        logs -l app=nope
        logs deployment/set
        logs deploy/set --all-pods=false
        ! logs
        ! logs nope
        ! logs talk nope
        ! logs talk main extra
        ! logs talk -c main main
        ! logs talk -l app=talk
        ! logs deploy/nope
        ! logs configmap/kube-root-ca.crt
        ! logs talk --since=1h --since-time=2020-01-01T00:00:00Z
        ! logs talk --tail=-2
        ! logs talk --limit-bytes=-1
        ! logs talk --since=-1s
        ! logs two --all-containers -c left
        ! logs talk -p
        ! logs talk --since-time=yesterday
    """)
