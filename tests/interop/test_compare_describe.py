"""Objects of all kinds, described by the real kubectl and by `describe`: the same bytes."""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from server_process import ServerProcess

sys.path.insert(0, str(Path(__file__).parent))

from describing import NAMESPACE, Seeds, documents, title
from kubectl_runner import Kubectl

from conftest import kubectls
from setpoint.cli.describe import Looking, describe
from setpoint.client.client import Client
from setpoint.client.connect import connect
from setpoint.client.kubeconfig import find_access
from setpoint.cluster.system import SystemClock
from setpoint.kinds.catalog import Resource

BINARIES = kubectls()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason="no kubectl on the path, nor in SETPOINT_TEST_KUBECTL"),
]
TITLES = [title(one) for one in documents() if one["kind"] != "Event"]


@dataclass(frozen=True, slots=True)
class Described:
    theirs: str
    ours: str


async def described(client: Client, kubectl: Kubectl, name: str, namespace: str, resource: Resource) -> Described:
    """Again, should the two have looked in different seconds."""
    look = Looking(client, SystemClock(), minor=kubectl.minor)
    kind = f"{resource.plural}.{resource.version}.{resource.group}" if resource.group else resource.plural
    place = ("-n", namespace) if namespace else ()
    for _ in range(3):
        result = await asyncio.to_thread(kubectl.run, "describe", kind, name, *place)
        ours = await describe(await client.get(resource, name, namespace), resource, look)
        theirs = result.out if result.code == 0 else result.err
        if theirs == ours:
            break
    return Described(theirs, ours)


async def all_described(server: ServerProcess, home: Path) -> dict[str, Described]:
    clock = SystemClock()
    client = connect(find_access(str(server.kubeconfig)), clock)
    seeds = Seeds(client, clock)
    await seeds.sow()
    kubectl = Kubectl(BINARIES[-1], server.kubeconfig, home, NAMESPACE)
    few = asyncio.Semaphore(4)
    found: dict[str, Described] = {}

    async def one(name: str, namespace: str, resource: Resource) -> None:
        async with few:
            found[f"{resource.kind}/{name}"] = await described(client, kubectl, name, namespace, resource)

    async with asyncio.TaskGroup() as tasks:
        for made, resource in seeds.made:
            if resource.kind != "Event":
                about = made["metadata"]
                tasks.create_task(one(about["name"], about.get("namespace", ""), resource))
    await client.close()
    return found


@pytest.fixture(scope="module")
def texts(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Described]]:
    yield asyncio.run(all_described(server, tmp_path_factory.mktemp("home")))


@pytest.mark.parametrize("name", TITLES)
def test_it_reads_the_same(texts: dict[str, Described], name: str) -> None:
    if name.startswith("VolumeAttributesClass/") and Kubectl(BINARIES[-1], *[Path()] * 2, "").minor < 34:
        pytest.skip("this kubectl asks for a version of the class that is no longer served")
    found = texts[name]
    diff = difflib.unified_diff(found.theirs.splitlines(True), found.ours.splitlines(True), "kubectl", "setpoint", n=1)
    assert found.theirs == found.ours, "".join(diff)
