"""Stories of storage: a claim gets a volume, keeps it while it is used, and each replica of a StatefulSet its own (C3).

In virtual time first; then the same with `setpoint up` and the real kubectl, where it is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

CLAIMS, VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
PODS, SETS = builtin("pods"), builtin("statefulsets", "apps")
NAMESPACE = ("v1", "Namespace")

WISH: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
CLAIM: Obj = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": WISH}
POD: Obj = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "user"},
    "spec": {
        "containers": [{"name": "c", "image": "nginx", "volumeMounts": [{"name": "v", "mountPath": "/data"}]}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
    },
}
DB: Obj = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "db"},
    "spec": {
        "serviceName": "db",
        "replicas": 3,
        "selector": {"matchLabels": {"app": "db"}},
        "template": {
            "metadata": {"labels": {"app": "db"}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "nginx", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}],
            },
        },
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": WISH}],
    },
}


def within(namespace: str, obj: Obj) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


async def runs(cluster: VirtualCluster, name: str, namespace: str = "default") -> bool:
    pod = await cluster.find(PODS, name, namespace)
    return pod is not None and (pod.get("status") or {}).get("phase") == "Running"


async def homes(cluster: VirtualCluster, namespace: str = "default") -> dict[str, tuple[str, str]]:
    """Of every Pod of the set: its claim's volume and its node."""
    found = {}
    for pod in await cluster.all(PODS, namespace):
        name = pod["metadata"]["name"]
        claim = await cluster.client.get(CLAIMS, f"data-{name}", namespace)
        found[name] = (claim["spec"]["volumeName"], pod["spec"]["nodeName"])
    return found


@virtual(nodes=3)
async def test_a_claim_gets_a_volume_on_its_pods_node_and_releases_it(cluster: VirtualCluster) -> None:
    await cluster.client.create(within("default", CLAIM))
    await cluster.sleep(30)
    assert (await cluster.client.get(CLAIMS, "data", "default"))["status"]["phase"] == "Pending"
    await cluster.client.create(within("default", POD))
    await cluster.until(lambda: runs(cluster, "user"), within=30)
    claim, pod = await cluster.client.get(CLAIMS, "data", "default"), await cluster.client.get(PODS, "user", "default")
    volume = await cluster.client.get(VOLUMES, claim["spec"]["volumeName"])
    assert (claim["status"]["phase"], volume["status"]["phase"]) == ("Bound", "Bound")
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == [pod["spec"]["nodeName"]]
    await cluster.client.delete(CLAIMS, "data", "default")
    await cluster.sleep(60)
    assert await cluster.find(CLAIMS, "data") is not None, "the Pod still uses it"
    await cluster.client.delete(PODS, "user", "default")
    await cluster.sleep(60)
    assert await cluster.find(CLAIMS, "data") is None
    assert not await cluster.all(VOLUMES, "")


@virtual(nodes=3)
async def test_each_replica_keeps_its_claim(cluster: VirtualCluster) -> None:
    await cluster.client.create(within("default", DB))

    async def complete() -> bool:
        status = (await cluster.client.get(SETS, "db", "default")).get("status") or {}
        return status.get("readyReplicas") == 3

    await cluster.until(complete, within=60)
    before = await homes(cluster)
    assert list(before) == ["db-0", "db-1", "db-2"]
    assert len({volume for volume, _ in before.values()}) == 3
    await cluster.client.patch(SETS, "db", {"spec": {"replicas": 0}}, "default")
    await cluster.sleep(120)
    assert not await cluster.all(PODS)
    assert [claim["status"]["phase"] for claim in await cluster.all(CLAIMS)] == ["Bound"] * 3
    await cluster.client.patch(SETS, "db", {"spec": {"replicas": 3}}, "default")
    await cluster.until(complete, within=60)
    assert await homes(cluster) == before, "the same volumes, and so the same nodes"
    await cluster.client.delete(PODS, "db-1", "default")
    await cluster.sleep(60)
    await cluster.until(complete, within=60)
    assert await homes(cluster) == before


@virtual(nodes=3)
async def test_deleting_a_namespace_deletes_its_claims_and_volumes(cluster: VirtualCluster) -> None:
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    await cluster.instant()
    await cluster.client.create(within("team", DB))
    await cluster.until(lambda: runs(cluster, "db-2", "team"), within=60)
    await cluster.client.delete(NAMESPACE, "team")
    await cluster.sleep(120)
    assert await cluster.find(NAMESPACE, "team", "") is None
    assert not await cluster.all(VOLUMES, "")


# -- the real thing ---------------------------------------------------------------------------------------------------


@contextmanager
def up(directory: Path) -> Iterator[Path]:
    """A running cluster's kubeconfig."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [sys.executable, "-m", "setpoint", "up", "--data-dir", str(directory), "--port", port]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert any(line.startswith("Ctrl-C") for line in process.stdout)
        yield directory / "admin.kubeconfig"
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_kubectl_shows_claims_and_volumes(tmp_path: Path) -> None:
    with up(tmp_path / "cluster") as kubeconfig:

        def kubectl(*words: str, given: list[Obj] | None = None) -> str:
            done = subprocess.run(
                ["kubectl", *words],
                text=True,
                capture_output=True,
                env={**os.environ, "KUBECONFIG": str(kubeconfig)},
                input=json.dumps({"apiVersion": "v1", "kind": "List", "items": given}) if given else None,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        (row,) = kubectl("get", "storageclass", "--no-headers").splitlines()
        assert row.split()[:5] == ["standard", "(default)", "setpoint.dev/local", "Delete", "WaitForFirstConsumer"]
        kubectl("apply", "-f", "-", given=[CLAIM, POD])
        kubectl("wait", "--for=condition=Ready", "pod/user", "--timeout=30s")
        (row,) = kubectl("get", "pvc", "--no-headers").splitlines()
        name, phase, volume, size, modes, storage_class, *_ = row.split()
        assert (name, phase, size, modes, storage_class) == ("data", "Bound", "1Gi", "RWO", "standard")
        (row,) = kubectl("get", "pv", "--no-headers").splitlines()
        assert row.split()[:7] == [volume, "1Gi", "RWO", "Delete", "Bound", "default/data", "standard"]
        told = kubectl("describe", "pvc", "data")
        assert "Used By:       user" in told
        assert f"Successfully provisioned volume {volume}" in told
        kubectl("patch", "pvc", "data", "-p", '{"spec": {"resources": {"requests": {"storage": "2Gi"}}}}')
        kubectl("wait", "pvc/data", "--for=jsonpath={.status.capacity.storage}=2Gi", "--timeout=20s")
        kubectl("delete", "pvc", "data", "--wait=false")
        assert kubectl("get", "pvc", "--no-headers").split()[1] == "Terminating"
        kubectl("delete", "pod", "user", "--grace-period=1")
        kubectl("wait", "--for=delete", "pvc/data", "--timeout=20s")
        kubectl("wait", "--for=delete", f"pv/{volume}", "--timeout=20s")
