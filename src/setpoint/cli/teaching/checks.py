"""Check the task of a lesson in the cluster, with helpful messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from setpoint.client.interface import Reader, ResourceRef
from setpoint.client.resources import builtin
from setpoint.meta.errors import NotFound

Obj = dict[str, Any]
PODS, DEPLOYMENTS, SETS = builtin("pods"), builtin("deployments", "apps"), builtin("replicasets", "apps")
_REVISION = "deployment.kubernetes.io/revision"


class Verdict(NamedTuple):
    ok: bool
    text: str


class ClusterView(NamedTuple):
    """The cluster as seen from one namespace."""

    reader: Reader
    namespace: str

    async def get(self, resource: ResourceRef, name: str, *, cluster_scoped: bool = False) -> Obj | None:
        try:
            return await self.reader.get(resource, name, "" if cluster_scoped else self.namespace)
        except NotFound:
            return None

    async def list(self, resource: ResourceRef) -> list[Obj]:
        return (await self.reader.list(resource, self.namespace)).items


def _labels(obj: Obj) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def _ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def anatomy(view: ClusterView) -> list[Verdict]:
    pod = await view.get(PODS, "first")
    if pod is None:
        return [Verdict(False, f"there is no Pod called first in the namespace {view.namespace}")]
    return [
        Verdict(_ready(pod), "the Pod first is ready"),
        Verdict(_labels(pod).get("lesson") == "one", "it has the label lesson=one"),
    ]


async def loop(view: ClusterView) -> list[Verdict]:
    deployment = await view.get(DEPLOYMENTS, "loop")
    if deployment is None:
        return [Verdict(False, f"there is no Deployment called loop in the namespace {view.namespace}")]
    ready = (deployment.get("status") or {}).get("readyReplicas", 0)
    return [
        Verdict(deployment["spec"].get("replicas") == 5, "the Deployment loop has 5 desired replicas"),
        Verdict(ready == 5, f"5 of them are ready (now: {ready})"),
    ]


async def drift(view: ClusterView) -> list[Verdict]:
    aside = [pod for pod in await view.list(PODS) if _labels(pod).get("state") == "aside"]
    owned = [pod for pod in await view.list(PODS) if _labels(pod).get("app") == "loop" and _ready(pod)]
    return [
        Verdict(bool(aside), "a Pod has the label state=aside"),
        Verdict(bool(aside) and all("app" not in _labels(pod) for pod in aside), "it no longer has the label app"),
        Verdict(
            bool(aside) and not any(pod["metadata"].get("ownerReferences") for pod in aside), "it has no owner any more"
        ),
        Verdict(len(owned) == 5, f"5 ready Pods belong to the Deployment (now: {len(owned)})"),
    ]


async def rollouts(view: ClusterView) -> list[Verdict]:
    deployment = await view.get(DEPLOYMENTS, "loop")
    if deployment is None:
        return [Verdict(False, f"there is no Deployment called loop in the namespace {view.namespace}")]
    images = [container["image"] for container in deployment["spec"]["template"]["spec"]["containers"]]
    revision = int((deployment["metadata"].get("annotations") or {}).get(_REVISION, "0"))
    status = deployment.get("status") or {}
    done = status.get("updatedReplicas") == deployment["spec"].get("replicas") == status.get("readyReplicas")
    return [
        Verdict(images == ["nginx:1.27"], f"its image is nginx:1.27 (now: {', '.join(images)})"),
        Verdict(revision >= 4, f"it has been through at least four revisions (now: {revision})"),
        Verdict(done, "the rollout is complete"),
    ]


async def failure(view: ClusterView) -> list[Verdict]:
    crash, greedy = await view.get(PODS, "crash"), await view.get(PODS, "greedy")
    statuses = ((crash or {}).get("status") or {}).get("containerStatuses") or ()
    restarts = sum(one.get("restartCount", 0) for one in statuses)
    waits = [
        one
        for one in ((greedy or {}).get("status") or {}).get("conditions") or ()
        if one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable"
    ]
    return [
        Verdict(crash is not None, "there is a Pod called crash"),
        Verdict(restarts > 0, f"it has been restarted (so far: {restarts} times)"),
        Verdict(greedy is not None, "there is a Pod called greedy"),
        Verdict(bool(waits), "it cannot be scheduled" + (f": {waits[0].get('message', '')}" if waits else "")),
    ]


async def operators(view: ClusterView) -> list[Verdict]:
    definitions = builtin("customresourcedefinitions", "apiextensions.k8s.io")
    definition = await view.get(definitions, "teapots.example.com", cluster_scoped=True)
    if definition is None:
        return [Verdict(False, "there is no CustomResourceDefinition teapots.example.com")]
    conditions = (definition.get("status") or {}).get("conditions") or ()
    established = any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
    verdicts = [Verdict(established, "the API server serves Teapots")]
    if established:
        teapot = await view.get(("example.com", "v1", "teapots"), "brown")
        cups = ((teapot or {}).get("spec") or {}).get("cups")
        verdicts.append(Verdict(teapot is not None, "there is a Teapot called brown"))
        verdicts.append(Verdict(cups == 4, "it has four cups"))
    return verdicts
