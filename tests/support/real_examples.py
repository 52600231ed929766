"""The examples on real nodes: images made of Debian packages, the operator as a process, commands of readmes."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from kubectl_runner import Kubectl, until
from real_cluster import RealCluster, setpoint
from real_machine import RealMachine, wait_until

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("postgresql", "python3-psycopg2", "nginx")
BUILD = "python examples/three_tier/build_images.py --serve 127.0.0.1:5000"
"""The command of the readmes that makes and serves the images."""
OPERATOR = (
    "POSTGRES_IMAGE='127.0.0.1:5000/postgres:{major}' python -m examples.postgres_operator "
    "--kubeconfig .setpoint/admin.kubeconfig"
)
_FENCE = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
_START_TIMEOUT = 60.0


def commands(readme: str) -> list[str]:
    """Return the lines of the code blocks of a document, without comments."""
    blocks = _FENCE.findall((ROOT / "examples" / readme / "README.md").read_text())
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


@pytest.fixture(scope="session")
def example_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the images, which all workers share; the first one makes them."""
    shown = subprocess.run(["dpkg-query", "--show", *PACKAGES], capture_output=True, text=True)
    if shown.returncode:
        problem = f"the examples need Debian packages: apt-get install {' '.join(PACKAGES)}"
        if os.environ.get("SETPOINT_REQUIRE_REAL"):
            pytest.fail(problem, pytrace=False)
        pytest.skip(problem)
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    directory = shared / "example-images"
    with (shared / "example-images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        script = words(BUILD)[:2]
        subprocess.run([*script, "--directory", directory], check=True, capture_output=True, cwd=ROOT)
    return directory


def words(command: str, kubeconfig: Path | None = None) -> list[str]:
    """Return the words of a command of a readme, with the programs and the kubeconfig of the tests."""
    program, *rest = shlex.split(command)
    rest = [str(kubeconfig) if word == ".setpoint/admin.kubeconfig" else word for word in rest]
    return [sys.executable, *rest] if program == "python" else [*map(str, setpoint(*rest))]


@contextmanager
def served_images(machine: RealMachine, directory: Path) -> Iterator[None]:
    """Serve the images at 127.0.0.1:5000 of a machine."""
    log = machine.directory / "images.log"
    process = machine.spawn([*words(BUILD), "--directory", directory], log)

    def answers() -> bool:
        with machine.entered():
            try:
                urllib.request.urlopen("http://127.0.0.1:5000/v2/", timeout=5).close()
            except OSError:
                return False
        return True

    try:
        wait_until(answers, _START_TIMEOUT, log.read_text)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def running_operator(cluster: RealCluster) -> Iterator[None]:
    """Run the operator by the command of the readmes, and wait until its kind is served."""
    log = cluster.machine.directory / "operator.log"
    variable, _, command = OPERATOR.partition(" ")
    name, _, value = shlex.split(variable)[0].partition("=")
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert name == "POSTGRES_IMAGE"
    process = cluster.machine.spawn(words(command, cluster.kubeconfig), log, POSTGRES_IMAGE=value, PYTHONPATH=path)
    try:
        kubectl = cluster.kubectl()
        until(lambda: kubectl.run("get", "postgresclusters").code == 0, _START_TIMEOUT)
        yield
    finally:
        process.terminate()
        process.wait(30)


class Database:
    """A PostgresCluster, whose SQL statements are run in its Pods."""

    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self.kubectl = kubectl
        self.name = name

    @property
    def status(self) -> dict[str, object]:
        found: dict[str, object] = self.kubectl.get("postgrescluster", self.name).get("status", {})
        return found

    @property
    def primary(self) -> str:
        return str(self.status["primary"])

    def wait_ready(self) -> None:
        wait = ("wait", f"postgrescluster/{self.name}", "--for=condition=Ready", "--timeout=180s")
        result = self.kubectl.run(*wait, timeout=200.0)
        assert result.code == 0, f"{result.err} {self.status}\n{self.kubectl.run('get', 'pods', '-o', 'wide').out}"

    def write(self, pod: str, statement: str) -> str | None:
        """Return what a statement prints that a Pod sends to the Service of the primary; None if it fails."""
        script = f'PGPASSWORD="$POSTGRES_PASSWORD" PGCONNECT_TIMEOUT=2 psql -h {self.name} -U postgres -qAtc "$0"'
        found = self.kubectl.run("exec", pod, "-c", "postgres", "--", "sh", "-c", script, statement)
        return found.out.strip() if found.code == 0 else None

    def read(self, pod: str, statement: str) -> str | None:
        """Return what a statement prints in the instance of a Pod itself; None if it fails."""
        command: Sequence[str] = ("psql", "-U", "postgres", "-qAtc", statement)
        found = self.kubectl.run("exec", pod, "-c", "postgres", "--", *command)
        return found.out.strip() if found.code == 0 else None
