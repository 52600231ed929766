"""Story F1 with the real kubectl: a definition is applied, and its kind is used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from definition_styles import APPLICATIONS, CERTIFICATES, MONITORS
from kubectl_runner import Kubectl, kubectls, until
from postgres_cluster import MANIFEST
from server_process import ServerProcess

BINARIES = kubectls()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason="no kubectl on the path, nor in SETPOINT_TEST_KUBECTL"),
]
CRD = "crd/postgresclusters.db.example.com"
ORDERS = (
    "apiVersion: db.example.com/v1\nkind: PostgresCluster\nmetadata: {name: orders}\nspec: {engineVersion: '16'%s}\n"
)

KNOWN = """
apiVersion: certs.example.io/v1
kind: Certificate
metadata: {name: web}
spec: {secretName: web-tls, issuerRef: {name: ca, kind: Issuer}, dnsNames: [a.example.com], usages: [server auth]}
---
apiVersion: monitoring.example.com/v1
kind: ServiceMonitor
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  endpoints: [{port: http, interval: 30s}, {targetPort: 8080}]
---
apiVersion: deploy.example.io/v1alpha1
kind: Application
metadata: {name: web}
spec:
  destination: {namespace: web, server: here}
  source: {repoURL: https://git.example.com/web, helm: {valuesObject: {replicas: 2, deep: {any: [1, two]}}}}
status: {sync: {status: Synced, revision: abc}, health: {status: Healthy}}
"""


@pytest.fixture(params=sorted({BINARIES[0], BINARIES[-1]}) if BINARIES else [], ids=lambda path: path.name)
def kubectl(server: ServerProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    made = Kubectl(request.param, server.kubeconfig, tmp_path, "default")
    made("apply", "-f", str(MANIFEST))
    # kubectl fails at once on a definition that has no conditions yet.
    until(lambda: made.run("wait", "--for=condition=Established", CRD, "--timeout=10s").code == 0)
    yield made
    made("delete", CRD, "--ignore-not-found")


def test_f1_a_custom_kind(kubectl: Kubectl) -> None:
    until(lambda: "postgresclusters" in kubectl("api-resources", "--api-group=db.example.com"))
    assert "unknown field" in kubectl.refused("create", "-f", "-", stdin=ORDERS % ", unknown: 1")
    kubectl("apply", "-f", "-", stdin=ORDERS % "")
    rows = kubectl("get", "pg").splitlines()
    assert rows[0].split() == ["NAME", "VERSION", "REPLICAS", "READY", "AGE"]
    assert rows[1].split()[:3] == ["orders", "16", "1"]
    assert "1Gi" in kubectl("get", "pg", "-o", "wide")
    assert "postgrescluster.db.example.com/orders" in kubectl("get", "all")
    assert kubectl("get", "databases", "-o", "name").strip() == "postgrescluster.db.example.com/orders"
    selected = kubectl("get", "pg", "--field-selector", "spec.engineVersion=17", "-o", "name")
    assert selected == ""


def test_f1_its_schema_is_explained_and_enforced(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=ORDERS % "")
    explained = until(lambda: kubectl("explain", "pg.spec"))
    assert "What is wanted." in explained
    assert "Major version of the engine." in kubectl("explain", "postgresclusters.spec.engineVersion")
    kubectl("scale", "pg/orders", "--replicas=3")
    assert kubectl("get", "pg", "orders", "-o", "jsonpath={.spec.replicas}") == "3"
    assert "too many replicas" in kubectl.refused("scale", "pg/orders", "--replicas=9")
    refused = kubectl.refused("patch", "pg", "orders", "--type=merge", "-p", '{"spec":{"engineVersion":"15"}}')
    assert "cannot go back to 15" in refused
    refused = kubectl.refused("patch", "pg", "orders", "--type=merge", "-p", '{"spec":{"storageSize":"big"}}')
    assert "spec.storageSize in body should match" in refused
    status = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "pg", "orders", "--subresource=status", "--type=merge", "-p", status)
    assert kubectl("get", "pg").splitlines()[1].split()[3] == "True"


def test_f1_apply_updates_custom_objects(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=ORDERS % ", parameters: {a: '1', b: '2'}")
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=ORDERS % ", parameters: {a: '1', b: '2'}")
    assert "configured" in kubectl("apply", "-f", "-", stdin=ORDERS % ", parameters: {a: '1'}")
    assert kubectl.get("pg", "orders")["spec"]["parameters"] == {"a": "1"}
    kubectl("delete", "pg", "orders")
    for manager, parameter in (("one", "a"), ("two", "b")):
        wanted = ORDERS % f", parameters: {{{parameter}: '1'}}"
        kubectl("apply", "--server-side", f"--field-manager={manager}", "-f", "-", stdin=wanted)
    assert kubectl.get("pg", "orders")["spec"]["parameters"] == {"a": "1", "b": "1"}
    refused = ORDERS % ", parameters: {b: '2'}"
    assert 'conflict with "two"' in kubectl.refused(
        "apply", "--server-side", "--field-manager=one", "-f", "-", stdin=refused
    )
    kubectl("delete", CRD)
    assert kubectl.run("get", "pg").code != 0


def test_definitions_in_the_style_of_well_known_projects(server: ServerProcess, tmp_path: Path) -> None:
    kubectl = Kubectl(BINARIES[-1], server.kubeconfig, tmp_path, "default")
    kubectl("apply", "-f", "-", stdin="---".join((CERTIFICATES, MONITORS, APPLICATIONS)))
    until(lambda: kubectl.run("wait", "--for=condition=Established", "crd", "--all", "--timeout=10s").code == 0)
    until(lambda: kubectl.run("apply", "-f", "-", stdin=KNOWN).code == 0)
    listed = [line.split() for line in kubectl("get", "certs,smon,applications", "-o", "wide").splitlines()]
    assert listed[0] == ["NAME", "READY", "SECRET", "ISSUER", "AGE"]
    assert listed[1][:3] == ["certificate.certs.example.io/web", "web-tls", "ca"]
    assert listed[3] == ["NAME", "AGE"]
    assert listed[6] == ["NAME", "SYNC", "STATUS", "HEALTH", "STATUS", "REVISION"]
    assert listed[7] == ["application.deploy.example.io/web", "Synced", "Healthy", "abc"]
    explained = kubectl("explain", "certificates.spec.issuerRef")
    assert "GROUP:      certs.example.io" in explained and "name\t<string> -required-" in explained
    wrong = KNOWN.replace("server auth", "none").replace("30s", "soon").replace("targetPort", "targetport")
    refused = kubectl.refused("apply", "-f", "-", stdin=wrong)
    assert 'spec.usages[0]: Unsupported value: "none"' in refused
    assert 'unknown field "spec.endpoints[1].targetport"' in refused
