"""The machine that the other tests use: containers run, Pods reach each other, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cri_pods import cri_client, run_sandbox
from images import images_for_tests, write_archive
from real_containerd import Containerd
from real_containerd import containerd as run_containerd
from real_machine import RealMachine, remove_stale, wait_until
from real_registry import PASSWORD, USER, Registry
from real_registry import registry as run_registry

from setpoint.node.cri.client import CriClient, CriError
from setpoint.wire.grpc import Code

pytestmark = pytest.mark.real
SUPPORT = Path(__file__).parents[1] / "support"

KILLED_RUN = """
import os, sys, time
sys.path.insert(0, {support!r})
from real_machine import RealMachine
machine = RealMachine.create()
sleeper = machine.spawn(["sleep", "1000"], machine.directory / "log")
os.makedirs("/sys/fs/cgroup/pids" + machine.cgroup_root + "/pod") if os.path.isdir("/sys/fs/cgroup/pids") else None
print(machine.name, sleeper.pid, flush=True)
time.sleep(1000)
"""


@pytest.fixture
async def client(containerd: Containerd) -> AsyncIterator[CriClient]:
    async with cri_client(containerd) as connected:
        yield connected


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as response:
        return str(response.read().decode().strip())


async def test_pods_reach_each_other_and_the_tests_reach_pods(
    containerd: Containerd, registry: Registry, client: CriClient
) -> None:
    one, other = [await run_sandbox(client, containerd) for _ in range(2)]
    shell = await one.start(registry.image("busybox"), "sleep", "1000")
    await other.start(registry.image("web"))
    name, url = other.config["hostname"], f"http://{await other.address()}:8080"

    assert await one.execute(shell, "ping", "-c", "1", "-W", "2", await other.address())
    log = Path(other.config["log_directory"]) / "main.log"
    await asyncio.to_thread(wait_until, lambda: "serving on" in log.read_text(), 10.0, log.read_text)
    assert (await one.execute(shell, "sh", "-c", f"timeout 5 wget -q -O- {url}/hostname")).strip() == name
    assert await asyncio.to_thread(get, f"{url}/healthz") == "ok"
    assert (await asyncio.to_thread(get, f"{url}/cgi-bin/echo/some/path?x=1")).startswith("GET /some/path x=1 from ")

    await one.remove()
    await other.remove()
    assert not (await client.call("ListPodSandbox", {})).items
    assert "veth" not in containerd.machine.run("ip", "-brief", "link")


@pytest.mark.parametrize(
    ("image", "code", "message"),
    [
        ("127.0.0.1:5000/absent:1", Code.NOT_FOUND, "127.0.0.1:5000/absent:1: not found"),
        ("127.0.0.1:5999/busybox:1", Code.UNKNOWN, "connect: connection refused"),
    ],
)
async def test_failed_pulls_have_the_message_of_the_registry(
    client: CriClient, registry: Registry, image: str, code: Code, message: str
) -> None:
    with pytest.raises(CriError) as failed:
        await client.call("PullImage", {"image": {"image": image}})
    assert failed.value.code == code
    assert message in failed.value.message


async def test_the_registry_stands_for_all_others(client: CriClient, registry: Registry) -> None:
    answer = await client.call("PullImage", {"image": {"image": "registry.k8s.io/tools:1"}})
    assert answer.image_ref.startswith("sha256:")


async def test_private_registry_requires_a_password(client: CriClient, private_registry: Registry) -> None:
    image = {"image": private_registry.image("web")}
    with pytest.raises(CriError, match=r"401 Unauthorized|authorization failed"):
        await client.call("PullImage", {"image": image})
    answer = await client.call("PullImage", {"image": image, "auth": {"username": USER, "password": PASSWORD}})
    assert answer.image_ref.startswith("sha256:")


async def test_users_of_the_images(client: CriClient, containerd: Containerd, registry: Registry) -> None:
    pod = await run_sandbox(client, containerd)
    found = {}
    for name in ("nonroot", "nameduser"):
        container = await pod.start(registry.image(name), name=name)
        found[name] = (await pod.execute(container, "id", "-u")).strip()
    assert found == {"nonroot": "1234", "nameduser": "1000"}
    await pod.remove()


@pytest.mark.parametrize(
    ("image", "exit_code", "reason"), [("crash", 3, "Error"), ("memory", 137, "OOMKilled"), ("web", 0, "Completed")]
)
async def test_images_end_as_they_should(
    client: CriClient, containerd: Containerd, registry: Registry, image: str, exit_code: int, reason: str
) -> None:
    pod = await run_sandbox(client, containerd)
    container = await pod.start(registry.image(image), linux={"resources": {"memory_limit_in_bytes": 32 << 20}})
    if image == "web":
        log = Path(pod.config["log_directory"]) / "main.log"
        await asyncio.to_thread(wait_until, lambda: "serving on" in log.read_text(), 10.0, log.read_text)
        await client.call("StopContainer", {"container_id": container, "timeout": 10})
    status = await pod.exited(container)
    assert (status.exit_code, status.reason) == (exit_code, reason)
    await pod.remove()


async def test_archive_is_imported(client: CriClient, containerd: Containerd, machine: RealMachine) -> None:
    path = machine.directory / "archive.tar"
    write_archive(path, "example.test/imported:1", images_for_tests()["busybox"])
    containerd.ctr("images", "import", path)
    found = await client.call("ImageStatus", {"image": {"image": "example.test/imported:1"}})
    assert "example.test/imported:1" in found.image.repo_tags


async def test_containers_outlive_containerd(client: CriClient, containerd: Containerd, registry: Registry) -> None:
    pod = await run_sandbox(client, containerd)
    container = await pod.start(registry.image("busybox"), "sleep", "1000")
    await asyncio.to_thread(containerd.kill)
    await asyncio.to_thread(containerd.start)
    status = (await client.call("ContainerStatus", {"container_id": container})).status
    assert (status.state, status.metadata.attempt) == (1, 0)
    await pod.remove()


@pytest.mark.parametrize("round", range(3))
async def test_everything_is_removed(round: int, no_stale_machines: None, pushed_images: Path) -> None:
    machine = RealMachine.create()
    try:
        with run_registry(machine, images=pushed_images) as registry, run_containerd(machine, registry) as containerd:
            async with cri_client(containerd) as client:
                for _ in range(2):
                    pod = await run_sandbox(client, containerd)
                    await pod.start(registry.image("busybox"), "sleep", "1000")
            before = machine.leftovers()
            assert any("containerd-shim" in each for each in before)
            assert any(each.startswith("cgroup ") for each in before)
            assert any(each.startswith("mount ") for each in before)
    finally:
        machine.destroy()
    assert machine.leftovers() == []
    assert not machine.directory.exists()


def test_the_machine_of_a_killed_run_is_removed(no_stale_machines: None) -> None:
    program = KILLED_RUN.format(support=str(SUPPORT))
    run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    name, pid = run.stdout.readline().split()
    machine = RealMachine(name)
    remove_stale()
    assert int(pid) in machine.processes(), "the machine of a run that exists stays"

    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    run.stdout.close()
    assert int(pid) in machine.processes()
    remove_stale()
    assert machine.leftovers() == []
    assert not machine.directory.exists()
