"""Fixtures for tests with real containers, in modules with `pytestmark = pytest.mark.real`.

- `machine`: a network namespace, a directory and a cgroup, which the tests of the module run in.
- `registry`: a registry at 127.0.0.1:5000 with the images of `images.images_for_tests`.
- `containerd`: a containerd on the machine.
- `cluster`: `setpoint up --real`; `pods`: kubectl at it, in a namespace for the test.
- `joined`: a control plane and a node agent that can be killed; `joined_pods`: kubectl at it.

The main thread is in the network namespace of the machine while the tests of a module run, and so are all processes, event
loops and threads that a test starts. So tests reach Pods by their addresses, and the registry and servers by loopback.
Each pytest-xdist worker has machines of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from images import BUSYBOX
from kubectl_runner import until
from real_cluster import RealCluster, joined_cluster, real_cluster
from real_containerd import CNI_PLUGINS, Containerd
from real_containerd import containerd as run_containerd
from real_kubectl import PodClient
from real_machine import RealMachine, remove_stale
from real_registry import Registry
from real_registry import registry as run_registry

PACKAGES = "containerd runc containernetworking-plugins docker-registry busybox-static nftables iproute2 conntrack"
_PROGRAMS = ("containerd", "ctr", "runc", "docker-registry", "nft", "ip", "conntrack", "nsenter", "unshare")
_CNI = ("ptp", "host-local", "loopback")


def requirements() -> None:
    """Skip the test if this machine cannot run containers; fail instead if SETPOINT_REQUIRE_REAL is set."""
    problem = _missing()
    if not problem:
        return
    if os.environ.get("SETPOINT_REQUIRE_REAL"):
        pytest.fail(problem, pytrace=False)
    pytest.skip(problem)


@cache
def _missing() -> str:
    """Return what this machine lacks, and how to install it; empty if it lacks nothing."""
    if os.geteuid() != 0:
        return "real containers need root"
    absent = [program for program in _PROGRAMS if shutil.which(program) is None]
    absent += [f"{CNI_PLUGINS}/{plugin}" for plugin in _CNI if not (CNI_PLUGINS / plugin).exists()]
    if not BUSYBOX.exists():
        absent.append(str(BUSYBOX))
    if absent:
        return f"real containers need {', '.join(absent)}: apt-get install {PACKAGES}"
    trial = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True)
    return f"real containers need permission to create namespaces: {trial.stderr}" if trial.returncode else ""


@pytest.fixture(scope="session")
def pushed_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage of the registry, which the first one fills for all later ones."""
    return tmp_path_factory.mktemp("registry") / "storage"


@pytest.fixture(scope="session")
def no_stale_machines() -> None:
    """Remove what earlier test runs left behind because they were killed."""
    requirements()
    remove_stale()


@pytest.fixture(scope="module")
def machine(no_stale_machines: None) -> Iterator[RealMachine]:
    """A machine, with the main thread in its network. Everything on it is removed at the end."""
    made = RealMachine.create()
    try:
        with made.entered():
            yield made
    finally:
        made.destroy()


@pytest.fixture(scope="module")
def registry(machine: RealMachine, pushed_images: Path) -> Iterator[Registry]:
    with run_registry(machine, images=pushed_images) as running:
        yield running


@pytest.fixture(scope="module")
def private_registry(machine: RealMachine) -> Iterator[Registry]:
    """A registry at 127.0.0.1:5001 that requires a password."""
    with run_registry(machine, private=True) as running:
        yield running


@pytest.fixture(scope="module")
def containerd(machine: RealMachine, registry: Registry) -> Iterator[Containerd]:
    with run_containerd(machine, registry) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(machine: RealMachine, registry: Registry) -> Iterator[RealCluster]:
    """A cluster of `setpoint up --real`, whose node is ready."""
    with real_cluster(machine) as running:
        yield running


@pytest.fixture(scope="module")
def joined(machine: RealMachine, registry: Registry) -> Iterator[RealCluster]:
    """A cluster whose node joined with a token; its agent is a process that the test may kill."""
    with joined_cluster(machine) as running:
        yield running


@contextmanager
def pods_in_namespace(cluster: RealCluster, request: pytest.FixtureRequest) -> Iterator[PodClient]:
    """Yield kubectl in a namespace for one test, which is removed at the end without waiting for it."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[:50].strip("-")
    kubectl = cluster.kubectl(name)
    kubectl("create", "namespace", name)
    until(lambda: kubectl.run("get", "serviceaccount", "default").code == 0)
    yield PodClient(kubectl)
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def pods(cluster: RealCluster, request: pytest.FixtureRequest) -> Iterator[PodClient]:
    """Pods in a namespace of the test, on `setpoint up --real`."""
    with pods_in_namespace(cluster, request) as client:
        yield client


@pytest.fixture
def joined_pods(joined: RealCluster, request: pytest.FixtureRequest) -> Iterator[PodClient]:
    """Pods in a namespace of the test, on the node that joined."""
    with pods_in_namespace(joined, request) as client:
        yield client
