from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from comparing import Both
from server_process import ServerProcess, server_process
from up_process import up_process

from setpoint.testing.live import LiveCluster
from setpoint.testing.plugin import live_cluster

__all__ = ["live_cluster"]


from kubectl_runner import Kubectl, kubectls


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("interop"), "--authorization-mode", "Node,RBAC") as running:
        yield running


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
