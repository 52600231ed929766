"""`exec`, `attach`, `cp` and `port-forward`: the same results by kubectl and by `setpoint`."""

from __future__ import annotations

import pytest
from comparing import Both

pytestmark = pytest.mark.slow

PODS = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: nginx, ports: [{containerPort: 80, name: http}, {containerPort: 53, protocol: UDP}]}
  - {name: side, image: busybox, command: [sleep, "3600"]}
---
apiVersion: v1
kind: Pod
metadata: {name: over}
spec:
  restartPolicy: Never
  containers: [{name: main, image: busybox, command: ["true"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: talks}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  containers: [{name: main, image: busybox, stdin: true, stdinOnce: true, command: [sh]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: plain, port: 8080, targetPort: http}, {name: dns, port: 53, protocol: UDP, targetPort: 53}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
"""


@pytest.fixture(scope="module")
def pods(both_alive: Both) -> Both:
    both_alive.given(PODS)
    both_alive.writes("""
        wait pod/web pod/talks --for=condition=Ready --timeout=30s
        wait pod/over --for=jsonpath={.status.phase}=Succeeded --timeout=30s
    """)
    return both_alive


def test_exec(pods: Both) -> None:
    pods.writes(
        """
        exec web -- echo hello
        exec web -c side -- hostname
        exec pod/web -q -- true
        exec -i web -- cat
        exec -i web -c side -q -- sh -c 'cat; echo done'
        exec web -- cat
        exec -it web -- echo no terminal
        exec svc/web -- hostname
        ! exec web -- sh -c 'echo out; echo err >&2; exit 42'
        ! exec web -- false
        ! exec web -- no-such-program
        ! exec web -c nobody -- true
        ! exec nobody -- true
        ! exec over -- true
        ! exec cm/settings -- true
        ! exec deployment/nobody -- true
        ! exec web
        ! exec web ls
        ! exec
        ! exec -- ls
        ! exec web --no-such-flag -- ls
        ! exec no/such/thing -- ls
        ! exec svc/web --pod-running-timeout=x -- ls
    """,
        stdin="what is typed\nin two lines\n",
    )


def test_attach(pods: Both) -> None:
    pods.writes("attach -i talks", stdin="echo from attach; exit\n")
    pods.writes("""
        ! attach
        ! attach a b c
        ! attach nobody
        ! attach over
        ! attach web -c nobody
        ! attach web --pod-running-timeout=0s
        ! attach cm settings
        ! attach cm/settings
    """)


def test_cp(pods: Both) -> None:
    (pods.home / "here").write_text("content\n")
    pods.writes("""
        ! cp
        ! cp here
        ! cp here there
        ! cp web:/a web:/b
        ! cp web: here
        ! cp :x here
        ! cp a/b/c:x here
        ! cp nothing web:/tmp
        ! cp here nobody:/tmp
        ! cp here web:/tmp -c nobody
        ! cp here over:/tmp
        ! cp web:/tmp/x here2 --retries=x
    """)


def test_port_forward(pods: Both) -> None:
    pods.writes("""
        ! port-forward
        ! port-forward web
        ! port-forward svc/web 8080:nothing
        ! port-forward svc/web 99
        ! port-forward svc/web 53
        ! port-forward web 53
        ! port-forward web :nothing
        ! port-forward web 1:
        ! port-forward web x:80
        ! port-forward web 70000
        ! port-forward web 0
        ! port-forward web 80 --address=nowhere
        ! port-forward over 80
        ! port-forward nobody 80
        ! port-forward cm/settings 80
    """)
