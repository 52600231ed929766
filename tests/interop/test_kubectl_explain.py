"""The OpenAPI documents with real kubectl binaries: explain, validation, diff, apply and edit."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from kubectl_environment import kubectl_environment
from kubectl_runner import kubectls

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: a, image: "nginx:1", env: [{name: X, value: "1"}, {name: Z, value: "2"}]}
      - {name: b, image: "redis:1"}
      volumes: [{name: v, emptyDir: {}}]
"""
# One container and one variable less, another image, and the volume from another source (which must replace the first).
CHANGED = (
    DEPLOYMENT.replace("nginx:1", "nginx:2")
    .replace('      - {name: b, image: "redis:1"}\n', "")
    .replace(', {name: Z, value: "2"}', "")
    .replace("emptyDir: {}", "configMap: {name: settings}")
)
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: default}\nbogus: 1\n"


BINARIES = kubectls()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason="no kubectl on the path, nor in SETPOINT_TEST_KUBECTL"),
]


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    data = tmp_path_factory.mktemp("data")
    setpoint = [sys.executable, "-c", "from setpoint.cli import main; main()"]
    flags = ["apiserver", "--port", "0", "--store", "memory", "--data-dir", str(data)]
    process = subprocess.Popen([*setpoint, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert "ready" in said, said + process.stdout.read()
        yield data / "admin.kubeconfig"
    finally:
        process.terminate()
        process.wait(10)


@cache
def version_of(binary: Path) -> tuple[int, int]:
    said = subprocess.run([binary, "version", "--client"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"v(\d+)\.(\d+)\.", said)
    assert match is not None, said
    return int(match[1]), int(match[2])


class Kubectl:
    def __init__(self, binary: Path, kubeconfig: Path, scratch: Path) -> None:
        cache = kubeconfig.parent / "caches" / binary.name
        self._command = [str(binary), "--kubeconfig", str(kubeconfig), "--cache-dir", str(cache)]
        self._scratch = scratch
        self.version = version_of(binary)

    def run(self, *args: str, editor: str = "") -> tuple[int, str]:
        done = subprocess.run(
            [*self._command, *args],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=kubectl_environment(self._scratch, EDITOR=editor, KUBE_EDITOR=editor),
        )
        return done.returncode, done.stdout + done.stderr

    def ok(self, *args: str, editor: str = "") -> str:
        code, said = self.run(*args, editor=editor)
        assert code == 0, said
        return said

    def file(self, text: str) -> str:
        path = self._scratch / f"{time.monotonic_ns()}.yaml"
        path.write_text(text)
        return str(path)


@pytest.fixture(params=BINARIES, ids=lambda path: path.name)
def kubectl(request: pytest.FixtureRequest, kubeconfig: Path, tmp_path: Path) -> Iterator[Kubectl]:
    made = Kubectl(request.param, kubeconfig, tmp_path)
    yield made
    made.run("delete", "deployment", "web", "--ignore-not-found")


def test_explain(kubectl: Kubectl) -> None:
    pod = kubectl.ok("explain", "pod")
    assert "containers that run together on one node" in " ".join(pod.split())
    assert re.search(r"spec\t<(PodSpec|Object)>", pod)
    tree = kubectl.ok("explain", "deployment.spec.strategy", "--recursive")
    assert re.search(r"maxSurge\t<(IntOrString|string)>", tree)
    if kubectl.version >= (1, 30):
        assert "enum: Recreate, RollingUpdate" in tree
    older = kubectl.ok("explain", "hpa", "--api-version=autoscaling/v1")
    assert re.search(r"VERSION:\s+(autoscaling/)?v1\b", older)
    code, said = kubectl.run("explain", "pod.spec.nope")
    assert code != 0
    assert 'field "nope" does not exist' in said


def test_explain_with_openapi_v2(kubectl: Kubectl) -> None:
    form = ["--output=plaintext-openapiv2"] if kubectl.version >= (1, 27) else []
    said = kubectl.ok("explain", "pod.spec.containers.ports.protocol", *form)
    assert "TCP (default), UDP or SCTP." in said
    assert "<string>" in said


def test_unknown_fields_are_rejected(kubectl: Kubectl) -> None:
    for verb in ("apply", "create"):
        code, said = kubectl.run(verb, "--validate=true", "-f", kubectl.file(CONFIG_MAP))
        assert code != 0
        assert 'unknown field "bogus"' in said
    assert "created" in kubectl.ok("create", "--dry-run=client", "--validate=false", "-f", kubectl.file(CONFIG_MAP))


def test_diff_and_apply_merge_lists_by_their_keys(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", kubectl.file(DEPLOYMENT))
    code, said = kubectl.run("diff", "-f", kubectl.file(CHANGED))
    assert code == 1, said
    assert re.search(r"^-\s+image: nginx:1$", said, re.MULTILINE)
    assert re.search(r"^\+\s+image: nginx:2$", said, re.MULTILINE)
    assert re.search(r"^-.*image: redis:1$", said, re.MULTILINE)
    assert "configured" in kubectl.ok("apply", "-f", kubectl.file(CHANGED))
    spec = "{.spec.template.spec.containers[*].image} {.spec.template.spec.volumes[*].emptyDir}"
    assert kubectl.ok("get", "deployment", "web", "-o", f"jsonpath={spec}").strip() == "nginx:2"
    assert "unchanged" in kubectl.ok("apply", "-f", kubectl.file(CHANGED))


def test_edit_validates_the_result(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", kubectl.file(DEPLOYMENT))
    kubectl.ok("edit", "deployment", "web", editor="sed -i s/replicas:.*/replicas:\\ 5/")
    assert kubectl.ok("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "5"
    code, said = kubectl.run("edit", "deployment", "web", editor="sed -i s/paused:/x/;s/replicas:/replicaz:/")
    assert code != 0
    assert "no valid changes were saved" in said or "no changes made" in said
