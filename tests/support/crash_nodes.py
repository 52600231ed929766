"""Nodes that are lost, endpoints and what namespaces are given, to be run again with something going wrong."""

from __future__ import annotations

from typing import Any

from crashing import Crashing
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster

PODS, NODES, SERVICES = builtin("pods"), builtin("nodes"), builtin("services")
ENDPOINTS, ACCOUNTS, ROLES = (
    builtin("endpoints"),
    builtin("serviceaccounts"),
    builtin("clusterroles", "rbac.authorization.k8s.io"),
)
SECRETS, CIDRS = builtin("secrets"), builtin("servicecidrs", "networking.k8s.io")
PEM = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)
OPTIONS = ControllerOptions(
    root_ca="certificate",
    service_account_private_key=PEM.decode(),
    allocate_node_cidrs=True,
    cluster_cidr="10.244.0.0/16",
)
WITH: Obj = {"nodes": 3, "controller_options": OPTIONS}


def obj(api: str, kind: str, name: str, **more: Any) -> Obj:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "default"}, **more}


async def put(cluster: VirtualCluster, state: str) -> None:
    change = {"metadata": {"annotations": {"simulate.setpoint.dev/state": state}}}
    await cluster.client.patch(NODES, "node-1", change)


def deployment(replicas: int) -> Obj:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return obj("apps/v1", "Deployment", "web", spec=spec)


async def lost_and_found(cluster: VirtualCluster) -> None:
    port = [{"port": 80, "targetPort": 8080}]
    await cluster.client.create(obj("v1", "Service", "web", spec={"selector": {"app": "web"}, "ports": port}))
    await cluster.client.create(deployment(4))
    await cluster.sleep(20)
    await put(cluster, "partitioned")
    await cluster.sleep(500)
    await put(cluster, "running")
    await cluster.sleep(120)


async def lost_for_good(cluster: VirtualCluster) -> None:
    await cluster.client.create(deployment(4))
    await cluster.sleep(20)
    await put(cluster, "stopped")
    await cluster.sleep(120)
    await cluster.client.delete(NODES, "node-1")
    await cluster.sleep(180)


async def mirrored(cluster: VirtualCluster) -> None:
    def written(*ips: str) -> Obj:
        subset = {"addresses": [{"ip": ip} for ip in ips], "ports": [{"port": 5432}]}
        return obj("v1", "Endpoints", "db", subsets=[subset])

    await cluster.client.create(obj("v1", "Service", "db", spec={"ports": [{"port": 5432}]}))
    await cluster.client.create(written("192.0.2.1", "192.0.2.2"))
    await cluster.sleep(10)
    await cluster.client.update(written("192.0.2.2", "fd00::1"))
    await cluster.sleep(10)
    await cluster.client.create(obj("v1", "Service", "gone", spec={"selector": {"a": "b"}, "ports": [{"port": 1}]}))
    await cluster.sleep(10)
    await cluster.client.delete(SERVICES, "gone", "default")
    await cluster.sleep(60)


async def given(cluster: VirtualCluster) -> None:
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    for name in ("robot", "brief"):
        await cluster.client.create(obj("v1", "ServiceAccount", name))
        secret = obj("v1", "Secret", f"{name}-token", type="kubernetes.io/service-account-token")
        secret["metadata"]["annotations"] = {"kubernetes.io/service-account.name": name}
        await cluster.client.create(secret)
    for name in ("more", "less"):
        cidr = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": name}}
        await cluster.client.create({**cidr, "spec": {"cidrs": ["10.77.0.0/24" if name == "more" else "10.78.0.0/24"]}})
    await cluster.sleep(15)
    await cluster.client.delete(ACCOUNTS, "brief", "default")
    await cluster.client.delete(CIDRS, "less")
    await cluster.sleep(60)
    # No two signatures are alike: they are looked at here.
    filled = await cluster.client.get(SECRETS, "robot-token", "default")
    assert sorted(filled["data"]) == ["ca.crt", "namespace", "token"]
    await cluster.client.delete(SECRETS, "robot-token", "default")


NODE_LOSS = Crashing((lost_and_found, lost_for_good, mirrored, given), **WITH)
