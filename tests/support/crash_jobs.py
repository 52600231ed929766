"""What users do with Jobs, CronJobs, budgets and quotas, to be run again with something going wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from crashing import Crashing
from kubelet_by_hand import Kubelet

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.meta.times import parse_time
from setpoint.testing import VirtualCluster

CRON_JOBS, MAPS, PODS = builtin("cronjobs", "batch"), builtin("configmaps"), builtin("pods")
INDEX = "batch.kubernetes.io/job-completion-index"
BARE: Obj = {"nodes": 0, "scheduler": False}
_LASTS = 15.0
"""Seconds that a Pod works."""


def obj(api: str, kind: str, name: str, **more: Any) -> Obj:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "default"}, **more}


def template(**meta: Any) -> Obj:
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": meta, "spec": spec} if meta else {"spec": spec}


@asynccontextmanager
async def kubelet(cluster: VirtualCluster, failing: str = "") -> AsyncIterator[None]:
    """Every Pod works for a while and ends well, but for the index that fails."""
    hands = Kubelet(cluster.client, cluster.clock)

    async def work() -> None:
        while True:
            await cluster.sleep(1)
            now = cluster.clock.now()
            for pod in await hands.pods():
                if (now - parse_time(pod["metadata"]["creationTimestamp"])).total_seconds() >= _LASTS:
                    index = (pod["metadata"].get("annotations") or {}).get(INDEX)
                    await hands.end(pod, 1 if failing and index == failing else 0)

    working = asyncio.ensure_future(work())
    try:
        yield
    finally:
        working.cancel()


async def counted(cluster: VirtualCluster) -> None:
    async with kubelet(cluster):
        spec = {"parallelism": 2, "completions": 3, "template": template()}
        await cluster.client.create(obj("batch/v1", "Job", "three", spec=spec))
        await cluster.sleep(90)


async def indexed(cluster: VirtualCluster) -> None:
    async with kubelet(cluster, failing="1"):
        spec = {
            "completionMode": "Indexed",
            "parallelism": 2,
            "completions": 3,
            "backoffLimitPerIndex": 1,
            "template": template(),
        }
        await cluster.client.create(obj("batch/v1", "Job", "parts", spec=spec))
        await cluster.sleep(120)


async def scheduled(cluster: VirtualCluster) -> None:
    async with kubelet(cluster):
        spec = {
            "schedule": "* * * * *",
            "successfulJobsHistoryLimit": 1,
            "jobTemplate": {"spec": {"template": template()}},
        }
        await cluster.client.create(obj("batch/v1", "CronJob", "tick", spec=spec))
        await cluster.sleep(150)
        await cluster.client.patch(CRON_JOBS, "tick", {"spec": {"suspend": True}}, "default")
        await cluster.sleep(60)


async def bounded(cluster: VirtualCluster) -> None:
    hard = {"configmaps": "10", "pods": "5"}
    await cluster.client.create(obj("v1", "ResourceQuota", "share", spec={"hard": hard}))
    selector = {"matchLabels": {"app": "web"}}
    spec: Obj = {"replicas": 3, "selector": selector, "template": template(labels={"app": "web"})}
    spec["template"]["spec"]["restartPolicy"] = "Always"
    await cluster.sleep(2)
    await cluster.client.create(obj("apps/v1", "ReplicaSet", "web", spec=spec))
    budget = {"maxUnavailable": 1, "selector": selector}
    await cluster.client.create(obj("policy/v1", "PodDisruptionBudget", "web", spec=budget))
    for number in range(4):
        await cluster.client.create(obj("v1", "ConfigMap", f"m{number}"))
    await cluster.sleep(20)
    hands = Kubelet(cluster.client, cluster.clock)
    for pod in await hands.pods():
        await hands.ready(pod)
    await cluster.sleep(5)
    await cluster.client.delete(MAPS, "m0", "default")
    await cluster.client.delete(MAPS, "m1", "default")
    (name, *_) = [pod["metadata"]["name"] for pod in await hands.pods()]
    await cluster.client.delete(PODS, name, "default")
    await cluster.sleep(60)


JOBS = Crashing((counted, indexed, scheduled, bounded), "controllers", **BARE)
