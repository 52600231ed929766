"""`explain`, `auth`, `top`, `events` and `certificate`: the same output by kubectl and by `setpoint`."""

from __future__ import annotations

import base64
import subprocess

import pytest
from comparing import Both

pytestmark = pytest.mark.slow

WORKLOADS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "nginx:1"}, {name: side, image: "busybox:1", command: [sleep, "9999"]}]}
"""
REQUEST = """\
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: "%s-{ns}"}
spec: {request: %s, signerName: example.com/signer, usages: [client auth]}
"""
ACCESS = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r, namespace: "{ns}", labels: {a: b}}
rules:
- {apiGroups: [""], resources: [pods, secrets], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: b, namespace: "{ns}"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: ann}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: not-for-reconcile}
"""


@pytest.fixture(scope="module", autouse=True)
def given(both_alive: Both) -> None:
    both_alive.given(WORKLOADS)
    both_alive.writes("wait deploy/web --for=condition=Available --timeout=60s")


def test_explain(both_alive: Both) -> None:
    both_alive.reads("""
        explain pods
        explain pod.spec
        explain po.spec.containers
        explain pods.spec.containers.livenessProbe.httpGet
        explain pods.spec.restartPolicy
        explain deployments.apps.spec
        explain configmaps.data
        explain pods.metadata.labels
        explain cronjobs --recursive
        explain deploy.spec.strategy --recursive
        explain hpa --api-version=autoscaling/v1
        explain customresourcedefinitions --recursive
        explain pods --output=plaintext-openapiv2
        explain pods.spec.containers --output=plaintext-openapiv2
        explain pods.spec.restartPolicy --output=plaintext-openapiv2
        explain deploy.spec --recursive --output=plaintext-openapiv2
        explain configmaps.data --output=plaintext-openapiv2
        ! explain pods.spec.nothing
        ! explain pods.spec.nothing --output=plaintext-openapiv2
        ! explain nothings
        ! explain deploy --api-version=apps/v2
        ! explain deploy --api-version=apps/v2 --output=plaintext-openapiv2
        ! explain pods --output=odd
        ! explain a b
        ! explain
    """)


def test_auth(both_alive: Both) -> None:
    both_alive.reads("""
        auth can-i create pods
        auth can-i create pods/x --subresource=log -A
        auth can-i get nodes
        auth can-i dance deploy
        auth can-i get /metrics
        auth can-i get nothings
        auth can-i * *
        auth can-i --list
        auth can-i --list --as=ann
        auth can-i --list --as=ann --no-headers
        auth whoami
        auth whoami --as=ann --as-group=a --as-group=b --as-uid=12
        auth whoami -o yaml
        auth whoami -o json --as=ann
        ! auth can-i get
        ! auth can-i --list get
        ! auth can-i --list -q
        ! auth can-i get pods --no-headers
        ! auth can-i get /x --subresource=y
    """)
    both_alive.writes("auth reconcile -f -", stdin=ACCESS)
    both_alive.writes("auth reconcile -f - --dry-run=client", stdin=ACCESS.replace("list]", "watch]"))
    both_alive.writes("auth reconcile -f -", stdin=ACCESS.replace("list]", "watch]").replace("ann", "bob"))
    both_alive.writes("auth reconcile -f - -o yaml", stdin=ACCESS.replace("list]", "watch]"))
    both_alive.writes(
        "auth reconcile -f - --remove-extra-permissions --remove-extra-subjects -o yaml",
        stdin=ACCESS.replace("list]", "watch]").replace("name: r}", "name: other}"),
    )
    both_alive.writes("""
        get role r -o jsonpath={.rules}
        get rolebinding b -o jsonpath={.roleRef}{.subjects}
        ! auth reconcile
        ! auth reconcile x -f -
    """)


def test_forbidden_requests(both: Both) -> None:
    both.reads("""
        ! auth can-i get pods --as=ann
        ! auth can-i get pods --as=ann -q
        auth can-i --list --as=ann
        ! cluster-info dump -o name
        cluster-info dump -o yaml
        cluster-info dump --namespaces=kube-system
    """)


def test_usage_and_events(both_alive: Both) -> None:
    both_alive.smooth.append((r"age: [0-9hms.]+", "age: AGE"))
    for namespace in (both_alive.ours, both_alive.theirs):
        both_alive.reads(f"wait deployment/web -n {namespace} --for=condition=Available --timeout=30s")
    # Usage is sampled every 15 seconds, and only then of what began since.
    both_alive.until("top pod")
    both_alive.reads("""
        top node
        top nodes --sort-by=cpu --no-headers
        top no --show-capacity
        top pod
        top pod --containers --sum
        top pod -A --sum
        top pod -l app=web --sort-by=memory
        top pod -l app=nothing
        ! top pod nothing
        ! top node nothing
        ! top node --sort-by=size
        ! top node a b
        ! top pod x -l a=b
        events
        events -A
        events --for deploy/web
        events --for deploy/web --no-headers
        events --types=Normal
        events --types=Warning
        events --for deploy/web -o yaml
        events --for deploy/web -o json
        ! events --types=Odd
        ! events --for pod
        ! events --for a/b/c
    """)


def test_certificates(both_alive: Both) -> None:
    command = "openssl req -new -newkey rsa:2048 -nodes -keyout /dev/null -subj /CN=x"
    made = subprocess.run(command.split(), check=True, capture_output=True).stdout
    request = base64.b64encode(made).decode()
    both_alive.given(REQUEST % ("one", request) + "---\n" + REQUEST % ("two", request))
    both_alive.writes("""
        certificate approve one-{ns}
        certificate approve one-{ns}
        certificate approve one-{ns} --force -o name
        ! certificate deny one-{ns}
        certificate deny two-{ns}
        ! certificate approve two-{ns} nothing
        ! certificate approve nothing
        ! certificate approve
        get csr one-{ns} -o jsonpath={.status.conditions[*].message}
    """)
