"""Definitions in the style of well-known projects, with the real kubectl: they install, and their kinds are explained,
checked, listed and deleted like any other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from definition_styles import APPLICATIONS, CERTIFICATES, MONITORS
from server_process import ServerProcess

sys.path.insert(0, str(Path(__file__).parent))

from kubectl_runner import Kubectl, until

pytestmark = pytest.mark.slow

OBJECTS = """
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
NAMES = ("certificates.certs.example.io", "servicemonitors.monitoring.example.com", "applications.deploy.example.io")


@pytest.fixture
def kubectl(server: ServerProcess, tmp_path: Path, newest_kubectl: Path) -> Kubectl:
    return Kubectl(newest_kubectl, server.kubeconfig, tmp_path, "default")


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_they_serve_through_kubectl(kubectl: Kubectl) -> None:
    definitions = "---".join((CERTIFICATES, MONITORS, APPLICATIONS))
    assert kubectl("apply", "-f", "-", stdin=definitions).count(" created") == 3
    kubectl("wait", "--for=condition=Established", *(f"crd/{name}" for name in NAMES), "--timeout=10s")
    assert kubectl("apply", "-f", "-", stdin=definitions).count(" unchanged") == 3
    until(lambda: kubectl.run("apply", "-f", "-", stdin=OBJECTS).code == 0)
    assert kubectl("apply", "-f", "-", stdin=OBJECTS).count(" unchanged") == 3

    listed = rows(kubectl("get", "certs,smon,applications", "-o", "wide"))
    assert listed[0] == ["NAME", "READY", "SECRET", "ISSUER", "AGE"]
    assert listed[1][:3] == ["certificate.certs.example.io/web", "web-tls", "ca"]
    assert listed[3] == ["NAME", "AGE"]
    assert listed[6] == ["NAME", "SYNC", "STATUS", "HEALTH", "STATUS", "REVISION"]
    assert listed[7] == ["application.deploy.example.io/web", "Synced", "Healthy", "abc"]

    explained = kubectl("explain", "certificates.spec.issuerRef")
    assert "GROUP:      certs.example.io" in explained and "name\t<string> -required-" in explained
    assert "    limit\t<Object>" in kubectl("explain", "smon.spec", "--recursive")

    wrong = OBJECTS.replace("server auth", "none").replace("30s", "soon")
    refused = kubectl.refused("apply", "-f", "-", stdin=wrong)
    assert 'spec.usages[0]: Unsupported value: "none"' in refused and "spec.endpoints[0].interval in body" in refused
    unknown = OBJECTS.replace("secretName", "secretname")
    assert 'unknown field "spec.secretname"' in kubectl.refused("apply", "-f", "-", stdin=unknown)

    kubectl("delete", *(f"crd/{name}" for name in NAMES))
    assert "doesn't have a resource type" in kubectl.refused("get", "certs")
