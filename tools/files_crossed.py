"""Count the source files that one request passes through: how much a reader must open to follow it.

    python tools/files_crossed.py [--list]

Runs a GET, a strategic merge PATCH and a Deployment of two replicas (until its Pods run) on a virtual cluster, and
records every file of the package in which a function is called.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import setpoint
from setpoint.testing import VirtualCluster, virtual

PACKAGE = str(Path(setpoint.__file__).parent) + "/"
DEPLOYMENTS = ("apps/v1", "Deployment")


@contextmanager
def recorded() -> Iterator[set[str]]:
    """Record the files of the package in which functions are called, without those of the test support."""
    files: set[str] = set()

    def on_call(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            files.add(name.removeprefix(PACKAGE))

    sys.setprofile(on_call)
    try:
        yield files
    finally:
        sys.setprofile(None)
        files -= {name for name in files if name.startswith("testing/")}


def deployment(image: str, replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pods},
    }


async def measure(cluster: VirtualCluster) -> dict[str, set[str]]:
    """Repeat each request before it is recorded, so that what is compiled once per kind is not counted."""
    client, found = cluster.client, {}
    await client.create(deployment("nginx", 0))
    await cluster.sleep(5)
    await client.get(DEPLOYMENTS, "web", "default")
    with recorded() as found["GET of a Deployment"]:
        await client.get(DEPLOYMENTS, "web", "default")
    for image, repeated in (("nginx:1", False), ("nginx:2", True)):
        patch = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}
        with recorded() as files:
            await client.patch(DEPLOYMENTS, "web", patch, "default", kind="strategic")
        if repeated:
            found["strategic merge PATCH of a Deployment"] = files
    await client.delete(DEPLOYMENTS, "web", "default")
    await cluster.sleep(30)
    with recorded() as found["Deployment of two replicas, until its Pods run"]:
        await client.create(deployment("nginx", 2))
        await cluster.sleep(15)
    return found


def main() -> None:
    found: dict[str, set[str]] = {}

    @virtual(nodes=2)
    async def run(cluster: VirtualCluster) -> None:
        found.update(await measure(cluster))

    run()
    for what, files in found.items():
        print(f"{len(files):4}  {what}")
        if "--list" in sys.argv:
            print("".join(f"        {name}\n" for name in sorted(files)), end="")


if __name__ == "__main__":
    main()
