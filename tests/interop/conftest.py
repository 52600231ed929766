from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from comparing import Both
from effort import THOROUGH
from server_process import ServerProcess, server_process
from up_process import up_process

from setpoint.testing.live import LiveCluster
from setpoint.testing.plugin import live_cluster

__all__ = ["live_cluster"]

sys.path.insert(0, str(Path(__file__).parent))

from kubectl_runner import Kubectl


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("interop"), "--authorization-mode", "Node,RBAC") as running:
        yield running


def kubectls() -> list[Path]:
    """The oldest and the newest kubectl beside the one on the path (some distributions ship several versions), or all
    of them with SETPOINT_THOROUGH; and those that are named in SETPOINT_TEST_KUBECTL."""
    found = [Path(path) for path in os.environ.get("SETPOINT_TEST_KUBECTL", "").split(os.pathsep) if path]
    installed = shutil.which("kubectl")
    if installed:
        real = Path(installed).resolve()
        versions = sorted(real.parent.glob("kubectl.[0-9]*")) or [real]
        found += versions if THOROUGH else sorted({versions[0], versions[-1]})
    return found


@pytest.fixture(scope="session")
def newest_kubectl() -> Path:
    found = kubectls()
    if not found:
        pytest.skip("no kubectl is installed")
    return found[-1]


@pytest.fixture
def commander(live_cluster: LiveCluster, tmp_path: Path) -> Kubectl:
    """What a person at the cluster types: the newest kubectl, or our own command line where there is none."""
    binary = kubectls()[-1] if kubectls() else Path(sys.executable).parent / "setpoint"
    return Kubectl(binary, live_cluster.kubeconfig, tmp_path, "default")


@pytest.fixture(scope="module")
def both(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Both:
    """The newest kubectl and our own command line, side by side: see `comparing`."""
    return _side_by_side(server.kubeconfig, tmp_path_factory, request)


@pytest.fixture(scope="module")
def both_alive(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Both]:
    """As `both`, on a cluster with controllers, a scheduler and nodes."""
    with up_process(tmp_path_factory.mktemp("up"), "--nodes", "2") as kubeconfig:
        yield _side_by_side(kubeconfig, tmp_path_factory, request)


def _side_by_side(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Both:
    found = kubectls()
    if not found:
        pytest.skip("no kubectl is installed")
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_").replace("_", "-")
    return Both(found[-1], kubeconfig, tmp_path_factory.mktemp("home"), name)
