"""A cluster at work, described by the real kubectl and by `describe`: the statuses and events are those that the loops
write, not those that a test thought of."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from describing import Comparison, Named, View
from kubectl_runner import Kubectl, kubectls
from up_process import up_process

from setpoint.client.cluster_choice import find_access
from setpoint.client.https import connect
from setpoint.system import SystemClock

LEAST = 33
BINARIES = [path for path in kubectls() if Kubectl(path, Path(), Path(), "").minor >= LEAST]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason=f"no kubectl 1.{LEAST} or newer on the path, nor in SETPOINT_TEST_KUBECTL"),
]
WORKLOADS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: nginx, readinessProbe: {httpGet: {port: 80}}, resources: {requests: {cpu: 10m, memory: 10Mi}}}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: postgres, volumeMounts: [{name: data, mountPath: /d}]}]}
  volumeClaimTemplates:
  - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: agent}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: ["true"]}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: lost}
spec: {containers: [{name: c, image: registry.example/does-not-exist}]}
---
apiVersion: v1
kind: Pod
metadata: {name: crash}
spec: {containers: [{name: c, image: busybox, command: ["false"]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: huge}
spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 999}}}]}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {pods: "50"}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
"""
LEFT_OUT = frozenset({"Event", "PodMetrics"})
OUTSIDE = frozenset(
    {"Node", "Namespace", "PersistentVolume", "StorageClass", "CSINode", "PriorityClass", "ServiceCIDR"}
)
"""Kinds without a namespace. Of roles and policies there are many, and loops do not touch them."""


async def differences(kubectl: Kubectl) -> dict[str, str]:
    """By object, of all that is in the namespace or in none."""
    client = connect(find_access(str(kubectl.kubeconfig)), SystemClock())
    comparison = Comparison(client, kubectl)
    few = asyncio.Semaphore(4)
    found: dict[str, str] = {}

    async def compare(one: Named) -> None:
        async with few:
            described = await comparison.one(one, View(()))
        found[f"{one.resource.kind} {one.namespace}/{one.name}"] = described.difference()

    async with asyncio.TaskGroup() as tasks:
        for resource in await client.discovery.resources():
            wanted = resource.kind not in LEFT_OUT if resource.namespaced else resource.kind in OUTSIDE
            if wanted and {"get", "list"} <= set(resource.verbs):
                place = kubectl.namespace if resource.namespaced else ""
                for obj in (await client.list(resource, place)).items:
                    tasks.create_task(compare(Named(obj["metadata"]["name"], place, resource)))
    await client.close()
    return found


def test_descriptions_of_a_running_cluster_are_equal(tmp_path: Path) -> None:
    with up_process(tmp_path, "--nodes", "2") as kubeconfig:
        kubectl = Kubectl(BINARIES[-1], kubeconfig, tmp_path, "default")
        kubectl("apply", "-f", "-", stdin=WORKLOADS)
        for workload in ("deployment/web", "statefulset/db", "daemonset/agent"):
            kubectl("rollout", "status", workload, "--timeout=30s")
        kubectl("wait", "job/once", "--for=condition=Complete", "--timeout=30s")
        found = asyncio.run(differences(kubectl))
    assert len(found) > 30
    assert not {name: difference for name, difference in found.items() if difference}
