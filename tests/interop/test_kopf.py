"""An operator written with kopf, unmodified, in a process of its own: `operators/websites_kopf.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kubectl_runner import Kubectl
from quick_look import QuickLook

from setpoint.cluster.certificates import ensure_certificates
from setpoint.testing.live import LiveCluster

OPERATORS = Path(__file__).parent / "operators"
SITE = "apiVersion: shop.example.com/v1\nkind: Website\nmetadata: {name: %s}\nspec: {image: nginx%s}\n"
THEME = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: sea, labels: {shop.example.com/theme: ''}}\ndata: {color: %s}\n"
)
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
PEERING = "apiVersion: kopf.dev/v1\nkind: KopfPeering\nmetadata: {name: websites}\n"
# kopf loads every client library that is installed, which takes longer than the rest of this test. An operator's own
# environment has none of these.
KOPF = """
import sys
sys.modules.update({"kubernetes": None, "kubernetes_asyncio": None})
from kopf.cli import main
main()
"""

pytestmark = pytest.mark.slow


@contextmanager
def operator(cluster: LiveCluster, folder: Path) -> Iterator[None]:
    """`kopf run`, until it has said that it watches."""
    ensure_certificates(folder / "webhook", datetime.now(UTC))
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "WEBHOOK_CERTIFICATES": str(folder / "webhook")}
    command = [sys.executable, "-c", KOPF, "run", "-n", "default", str(OPERATORS / "websites_kopf.py")]
    log = folder / "operator.log"
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(30)
        sys.stderr.write(log.read_text())  # pytest shows it when the test fails


def test_an_operator_of_kopf(live_cluster: LiveCluster, commander: Kubectl, tmp_path: Path) -> None:
    kubectl = commander
    kubectl("create", "-f", str(OPERATORS / "websites.yaml"))
    kubectl("create", "-f", "-", stdin=PEERING)

    look = QuickLook(live_cluster.kubeconfig)

    def until_status(**wanted: object) -> None:
        look.until(
            "/apis/shop.example.com/v1/namespaces/default/websites/one",
            lambda found: wanted.items() <= (found.get("status") or {}).items(),
        )

    with operator(live_cluster, tmp_path):
        # Its webhooks: kopf writes the configurations as soon as its server listens.
        for sort in ("validating", "mutating"):
            look.until(
                f"{WEBHOOKS}/{sort}webhookconfigurations/websites.shop.example.com", lambda found: found.get("webhooks")
            )
        assert "200 replicas are too dear" in kubectl.refused(
            "create", "-f", "-", stdin=SITE % ("dear", ", replicas: 200")
        )
        warned = kubectl.run("create", "-f", "-", "--dry-run=server", stdin=SITE % ("warned", ", replicas: 11"))
        assert warned.err == "Warning: that will cost you\n"
        # A handler that fails at first, children, status from a child's events, an index, a timer.
        kubectl("apply", "-f", "-", stdin=THEME % "blue")
        kubectl("create", "-f", "-", stdin=SITE % ("one", ", replicas: 2, theme: sea"))
        until_status(phase="Ready", color="blue", ready=2, built={"image": "nginx"})
        assert kubectl("get", "web").splitlines()[1].split() == ["one", "Ready", "2", "blue"]
        site, service = kubectl.get("web/one", "service/one")["items"]
        assert site["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
        assert site["spec"]["owner"] == "kubernetes-admin"
        assert service["metadata"]["ownerReferences"][0]["uid"] == site["metadata"]["uid"]
        look.until("/api/v1/namespaces/default/events", lambda found: "one stands" in str(found))
        said = kubectl("describe", "web", "one")
        assert "one stands" in said and "the bricks are late" in said
        # Changes: of a field, and of something that is only indexed.
        kubectl("patch", "web", "one", "--type=merge", "-p", '{"spec":{"replicas":3}}')
        kubectl("apply", "-f", "-", stdin=THEME % "green")
        until_status(ready=3, color="green", seen=[["change", "()", "2", "3"]])
        peering = kubectl.get("kopfpeering", "websites")
        assert [peer["priority"] for peer in peering["status"].values()] == [0]
    # While nobody looks, it changes and is deleted; whoever comes next finds out.
    kubectl("delete", "web", "one", "--wait=false")
    assert kubectl("get", "deployment", "one", "-o", "name")
    with operator(live_cluster, tmp_path):
        kubectl("wait", "--for=delete", "web/one", "deployment/one", "service/one", "--timeout=55s")
        assert kubectl.get("configmap", "one-ruins")["data"] == {"gone": "one"}
