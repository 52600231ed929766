"""What users do with workloads, to be run again with something going wrong."""

from __future__ import annotations

from typing import Any

from crashing import Crashing

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster

DEPLOYMENTS, SETS, PODS = builtin("deployments", "apps"), builtin("replicasets", "apps"), builtin("pods")
STATEFUL, DAEMONS, NAMESPACES = builtin("statefulsets", "apps"), builtin("daemonsets", "apps"), builtin("namespaces")


def obj(api: str, kind: str, name: str, namespace: str = "default", **more: Any) -> Obj:
    meta = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("meta", {})}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **more}


def template(app: str, image: str = "nginx:1") -> Obj:
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": image}]}}


def selecting(app: str) -> Obj:
    return {"matchLabels": {"app": app}}


async def rollout(cluster: VirtualCluster) -> None:
    spec = {"replicas": 3, "selector": selecting("web"), "template": template("web")}
    await cluster.client.create(obj("apps/v1", "Deployment", "web", spec=spec))
    await cluster.sleep(20)
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"template": template("web", "nginx:2")}}, "default")
    await cluster.sleep(30)
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}}, "default")
    await cluster.sleep(60)


async def adoption(cluster: VirtualCluster) -> None:
    await cluster.client.create(obj("v1", "Pod", "alone", meta={"labels": {"app": "a"}}, spec=template("a")["spec"]))
    spec = {"replicas": 2, "selector": selecting("a"), "template": template("a")}
    await cluster.client.create(obj("apps/v1", "ReplicaSet", "a", spec=spec))
    await cluster.sleep(20)
    await cluster.client.patch(PODS, "alone", {"metadata": {"labels": {"app": "b"}}}, "default")
    await cluster.sleep(60)


async def cascades(cluster: VirtualCluster) -> None:
    for name in ("back", "front", "left"):
        spec = {"replicas": 2, "selector": selecting(name), "template": template(name)}
        await cluster.client.create(obj("apps/v1", "Deployment", name, spec=spec))
    await cluster.sleep(20)
    await cluster.client.delete(DEPLOYMENTS, "back", "default")
    await cluster.client.delete(DEPLOYMENTS, "front", "default", propagation="Foreground")
    await cluster.client.delete(DEPLOYMENTS, "left", "default", propagation="Orphan")
    await cluster.sleep(90)


async def namespace_ends(cluster: VirtualCluster) -> None:
    await cluster.client.create(obj("v1", "Namespace", "team", ""))
    await cluster.sleep(5)
    spec = {"replicas": 2, "selector": selecting("web"), "template": template("web")}
    await cluster.client.create(obj("apps/v1", "Deployment", "web", "team", spec=spec))
    await cluster.client.create(obj("v1", "ConfigMap", "settings", "team", data={"a": "1"}))
    await cluster.sleep(20)
    await cluster.client.delete(NAMESPACES, "team")
    await cluster.sleep(120)


async def stateful(cluster: VirtualCluster) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    spec = {
        "replicas": 3,
        "serviceName": "db",
        "selector": selecting("db"),
        "template": template("db"),
        "volumeClaimTemplates": [claim],
    }
    await cluster.client.create(obj("apps/v1", "StatefulSet", "db", spec=spec))
    await cluster.sleep(60)
    await cluster.client.patch(STATEFUL, "db", {"spec": {"template": template("db", "nginx:2")}}, "default")
    await cluster.sleep(240)
    await cluster.client.patch(STATEFUL, "db", {"spec": {"replicas": 1}}, "default")
    await cluster.sleep(120)


async def daemons(cluster: VirtualCluster) -> None:
    spec = {"selector": selecting("agent"), "template": template("agent")}
    await cluster.client.create(obj("apps/v1", "DaemonSet", "agent", spec=spec))
    await cluster.sleep(30)
    await cluster.client.patch(DAEMONS, "agent", {"spec": {"template": template("agent", "nginx:2")}}, "default")
    await cluster.sleep(240)


async def service(cluster: VirtualCluster) -> None:
    spec = {"replicas": 2, "selector": selecting("web"), "template": template("web")}
    await cluster.client.create(obj("apps/v1", "Deployment", "web", spec=spec))
    port = [{"port": 80, "targetPort": 8080}]
    await cluster.client.create(obj("v1", "Service", "web", spec={"selector": {"app": "web"}, "ports": port}))
    budget = {"minAvailable": 1, "selector": selecting("web")}
    await cluster.client.create(obj("policy/v1", "PodDisruptionBudget", "web", spec=budget))
    await cluster.client.create(obj("v1", "ResourceQuota", "web", spec={"hard": {"pods": "10", "services": "5"}}))
    await cluster.sleep(30)
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}}, "default")
    await cluster.sleep(60)


WORKLOADS = Crashing((rollout, adoption, cascades, namespace_ends, stateful, daemons, service))
