"""Story F1 with the real kubectl: a definition is applied, and its kind is there as if it had always been."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_cluster import MANIFEST
from server_process import ServerProcess

sys.path.insert(0, str(Path(__file__).parent))

from kubectl_runner import Kubectl, until

from conftest import kubectls

BINARIES = kubectls()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason="no kubectl on the path, nor in SETPOINT_TEST_KUBECTL"),
]
CRD = "crd/postgresclusters.db.example.com"
ORDERS = (
    "apiVersion: db.example.com/v1\nkind: PostgresCluster\nmetadata: {name: orders}\nspec: {engineVersion: '16'%s}\n"
)


@pytest.fixture(params=sorted({BINARIES[0], BINARIES[-1]}) if BINARIES else [], ids=lambda path: path.name)
def kubectl(server: ServerProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    made = Kubectl(request.param, server.kubeconfig, tmp_path, "default")
    made("apply", "-f", str(MANIFEST))
    made("wait", "--for=condition=Established", CRD, "--timeout=10s")
    yield made
    made("delete", CRD, "--ignore-not-found")


def test_f1_a_kind_of_ones_own(kubectl: Kubectl) -> None:
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


def test_f1_apply_knows_what_is_there(kubectl: Kubectl) -> None:
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
