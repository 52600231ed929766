"""An idle cluster loads few modules: each of them takes memory in every cluster."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from setpoint.testing import run_virtual, virtual_cluster

SLOW = (
    *("numpy", "re2", "tarfile", "html.entities", "email.utils", "difflib", "_strptime"),
    *("setpoint.node.runtime.shell.interpreter", "setpoint.node.kubelet_api.interface"),
)

def loaded():
    return [name for name in SLOW if name in sys.modules]

def pod(name, *command, **meta):
    spec = {"containers": [{"name": "c", "image": "nginx", "command": command}]}
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
            await restarted.client.create(pod("shell", "sh", "-c", "echo this; sleep 60"))
            await restarted.settle()
            print("with a shell", loaded())
            log = "/api/v1/namespaces/default/pods/shell/log"
            print((await restarted.client.sender.request("GET", log)).body.decode().strip())
            print("with a log", loaded())

run_virtual(main)
"""


def test_a_cluster_loads_what_it_needs_when_it_does() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    with_shell = ["numpy", "re2", "difflib", "setpoint.node.runtime.shell.interpreter"]
    assert done.stdout.splitlines() == [
        "idle []",
        "restarted []",
        "bound True",
        "with a Pod ['numpy']",
        f"with a shell {with_shell}",
        "this",
        f"with a log {[*with_shell, 'setpoint.node.kubelet_api.interface']}",
    ], done.stderr
