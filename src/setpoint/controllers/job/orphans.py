"""Removes the tracking finalizer from Pods that no Job will count."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.controllers.job.job_conditions import is_finished
from setpoint.controllers.job.job_pods import is_tracked
from setpoint.controllers.job.manage import RELEASE
from setpoint.controllers.pod_control import PODS
from setpoint.meta.errors import NotFound
from setpoint.reconcile import Informer
from setpoint.reconcile.keys import controller_of

Obj = dict[str, Any]


class OrphanPods:
    def __init__(self, client: Client, jobs: Informer, pods: Informer) -> None:
        self._client = client
        self._jobs = jobs
        self._pods = pods

    async def reconcile(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or not is_tracked(pod) or self._has_job(pod):
            return
        meta = pod["metadata"]
        with suppress(NotFound):
            await self._client.patch(PODS, meta["name"], RELEASE, meta["namespace"], kind="strategic")

    def _has_job(self, pod: Obj) -> bool:
        owner = controller_of(pod)
        if owner is None:
            return False
        if owner["kind"] != "Job" or owner["apiVersion"] != "batch/v1":
            return True
        job = self._jobs.get(f"{pod['metadata']['namespace']}/{owner['name']}")
        if job is None or job["metadata"]["uid"] != owner["uid"]:
            return False
        return not is_finished(job) or job["spec"].get("managedBy") not in (None, "kubernetes.io/job-controller")
