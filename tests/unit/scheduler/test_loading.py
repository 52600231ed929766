"""An idle cluster loads few modules: each of them takes memory in every cluster."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from setpoint.testing import run_virtual, virtual_cluster

def loaded():
    return [name for name in ("numpy", "tarfile", "html.entities") if name in sys.modules]

def pod(name, **meta):
    spec = {"containers": [{"name": "c", "image": "nginx"}]}
    if meta:
        spec["nodeName"] = "node-1"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", **meta}, "spec": spec}

async def main():
    async with virtual_cluster() as cluster:
        node = await cluster.client.get(("v1", "Node"), "node-1")
        owner = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": node["metadata"]["uid"]}
        await cluster.client.create(pod("static", ownerReferences=[{**owner, "controller": True}]))
        await cluster.sleep(60)
        print("idle", loaded())
        async with cluster.fork() as restarted:
            await restarted.sleep(60)
            print("restarted", loaded())
            await restarted.client.create(pod("first"))
            await restarted.settle()
            print("bound", bool((await restarted.client.get(("v1", "Pod"), "first", "default"))["spec"]["nodeName"]))
            print("with a Pod", loaded())

run_virtual(main)
"""


def test_a_cluster_without_pods_to_schedule_does_not_load_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["idle []", "restarted []", "bound True", "with a Pod ['numpy']"], done.stderr
