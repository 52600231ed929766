"""An operator written with @kubernetes/client-node, unmodified, in processes of its own: `operators/node/`.

The library is installed once, by npm, into pytest's cache. Where there is no npm, or nothing can be downloaded, the
test is skipped.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubectl_runner import Kubectl
from quick_look import QuickLook

from setpoint.testing.live import LiveCluster

OPERATORS = Path(__file__).parent / "operators"
SOURCES = OPERATORS / "node"
QUEUE = "apiVersion: work.example.com/v1\nkind: Queue\nmetadata: {name: %s}\nspec: {workers: %d}\n"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def node_modules(request: pytest.FixtureRequest) -> Path:
    """What package-lock.json names, as npm installs it."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("no node and npm on the path")
    lock = hashlib.sha256((SOURCES / "package-lock.json").read_bytes()).hexdigest()[:16]
    assert request.config.cache is not None
    target = request.config.cache.mkdir("client-node") / lock
    if not target.exists():
        installing = target.with_name(f"{lock}.{os.getpid()}")
        installing.mkdir()
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCES / name, installing)
        flags = "--ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries=0 --fetch-timeout=20000"
        command = [npm, "ci", *flags.split()]
        try:
            subprocess.run(command, cwd=installing, check=True, capture_output=True, text=True, timeout=90)
            installing.rename(target)
        except (subprocess.SubprocessError, OSError) as error:
            shutil.rmtree(installing, ignore_errors=True)
            said = str(getattr(error, "stderr", "") or error).strip().splitlines()
            pytest.skip(f"npm cannot install @kubernetes/client-node here: {said[0]}")
    return target / "node_modules"


@contextmanager
def operator(cluster: LiveCluster, folder: Path, identity: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "IDENTITY": identity}
    log = folder / f"{identity}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(["node", "operator.mjs"], cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        sys.stderr.write(log.read_text())  # pytest shows it when the test fails


@pytest.fixture
def installed(node_modules: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "operator"
    folder.mkdir()
    shutil.copy(SOURCES / "operator.mjs", folder)
    (folder / "node_modules").symlink_to(node_modules)
    return folder


def test_an_operator_of_client_node(live_cluster: LiveCluster, commander: Kubectl, installed: Path) -> None:
    kubectl = commander
    kubectl("create", "-f", str(OPERATORS / "queues.yaml"))

    look = QuickLook(live_cluster.kubeconfig)

    def until_led_by(name: str) -> None:
        lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/queue-operator"
        look.until(lease, lambda found: found and found["spec"]["holderIdentity"] == name)

    def until_ready(workers: int) -> None:
        def is_ready(found: dict[str, Any]) -> bool:
            status = found.get("status") or {}
            return bool(status.get("workers") == workers and status["conditions"][0]["status"] == "True")

        look.until("/apis/work.example.com/v1/namespaces/default/queues/jobs", is_ready)

    with ExitStack() as running:
        first = running.enter_context(operator(live_cluster, installed, "first"))
        until_led_by("first")
        kubectl("create", "-f", "-", stdin=QUEUE % ("jobs", 2))
        until_ready(2)
        assert kubectl("get", "queues").splitlines()[1].split() == ["jobs", "2", "True"]
        made, child = kubectl.get("queue/jobs", "configmap/jobs")["items"]
        assert made["status"]["answer"] == "hello"  # a command ran in a Pod, over a WebSocket
        assert made["metadata"]["finalizers"] == ["work.example.com/operator"]
        owner = child["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["uid"]) == ("Queue", made["metadata"]["uid"])
        assert "first looks after it" in kubectl("describe", "queue", "jobs")
        # A child that is tampered with comes back as it was: drift is undone by server-side apply.
        kubectl("patch", "configmap", "jobs", "-p", '{"data":{"greeting":"no"}}')
        kubectl("scale", "queue/jobs", "--replicas=3")
        until_ready(3)
        assert kubectl.get("configmap", "jobs")["data"] == {"greeting": "hello"}
        # The leader dies without a word; another one takes over where it was.
        running.enter_context(operator(live_cluster, installed, "second"))
        first.kill()
        kubectl("patch", "queue", "jobs", "--type=json", "-p", '[{"op":"replace","path":"/spec/workers","value":1}]')
        until_ready(1)
        until_led_by("second")
        kubectl("delete", "queue", "jobs")
        kubectl("wait", "--for=delete", "deployment/jobs", "configmap/jobs", "--timeout=55s")
        assert kubectl("get", "configmap", "jobs-done", "-o", "name") == "configmap/jobs-done\n"
