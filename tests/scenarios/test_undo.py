"""Undo and restore in a cluster with all its control loops, in virtual time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from postgres_cluster import MANIFEST
from virtual_commands import Result, run_command

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, run_virtual, virtual_cluster

POD = {"containers": [{"name": "web", "image": "nginx:1.27"}]}
LABELS = {"app": "web"}


def manifests() -> list[Obj]:
    """Objects of many kinds in the namespace `shop`: 40 with what controllers create."""

    def made(api_version: str, kind: str, name: str, **fields: Any) -> Obj:
        return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}, **fields}

    template = {"metadata": {"labels": LABELS}, "spec": POD}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    found = [
        made(
            "apps/v1",
            "Deployment",
            "web",
            spec={"replicas": 3, "selector": {"matchLabels": LABELS}, "template": template},
        ),
        made("v1", "Service", "web", spec={"selector": LABELS, "ports": [{"port": 80}], "type": "NodePort"}),
        made(
            "apps/v1",
            "StatefulSet",
            "db",
            spec={
                "serviceName": "web",
                "replicas": 2,
                "selector": {"matchLabels": {"app": "db"}},
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": POD},
            },
        ),
        made("batch/v1", "CronJob", "report", spec=_cron(template)),
        made("batch/v1", "Job", "once", spec={"template": {"spec": {**POD, "restartPolicy": "Never"}}}),
        made("v1", "PersistentVolumeClaim", "disk", spec=claim),
        made("v1", "Pod", "alone", spec=POD),
        made("v1", "ResourceQuota", "limits", spec={"hard": {"pods": "50"}}),
        made("rbac.authorization.k8s.io/v1", "Role", "reader", rules=[]),
        made("v1", "Secret", "password", stringData={"password": "geheim"}),
    ]
    found += [made("v1", "ConfigMap", f"settings-{number:02}", data={"n": str(number)}) for number in range(14)]
    return found


def _cron(template: Obj) -> Obj:
    job = {"spec": {"template": {**template, "spec": {**POD, "restartPolicy": "Never"}}}}
    return {"schedule": "0 0 1 1 *", "jobTemplate": job}


async def states(client: Client, namespace: str = "") -> dict[str, Obj]:
    """The desired states of all objects that are not left to a controller."""
    found: dict[str, Obj] = {}
    for resource in await client.discovery.resources(fresh=True):
        if "list" not in resource.verbs or resource.group in ("metrics.k8s.io", "events.k8s.io"):
            continue
        if resource.plural in ("events", "leases", "ipaddresses", "componentstatuses", "endpoints"):
            continue
        if namespace and not resource.namespaced:
            continue
        for obj in (await client.list(resource, namespace)).items:
            meta = obj["metadata"]
            if any(each.get("controller") for each in meta.get("ownerReferences") or ()):
                continue
            state = {name: value for name, value in obj.items() if name not in ("metadata", "status")}
            if resource.plural == "jobs":
                state = {"spec": {"completions": state["spec"].get("completions")}}
            if resource.plural in ("pods", "persistentvolumeclaims"):
                for name in ("nodeName", "volumeName"):
                    state["spec"].pop(name, None)
            labels = {name: value for name, value in (meta.get("labels") or {}).items() if "controller-uid" not in name}
            found[f"{resource}/{meta.get('namespace', '')}/{meta['name']}"] = {**state, "labels": labels}
    return found


def steps(plan: str) -> list[str]:
    return [line for line in plan.splitlines() if line.startswith(("  + ", "  ~ ", "  - "))]


class World:
    def __init__(self, cluster: VirtualCluster, home: Path) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.home = home

    async def typed(self, line: str) -> str:
        done = await self.run(line)
        assert done.code == 0, f"setpoint {line}: {done.err or done.out}"
        return done.out

    async def run(self, line: str) -> Result:
        return await run_command(self.cluster, line, self.home)


def test_a_namespace_and_a_custom_kind_come_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with virtual_cluster() as cluster:
            world, client = World(cluster, tmp_path), cluster.client
            await client.create(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"l": "1"}}}
            )
            for obj in manifests():
                await client.create(obj)
            config = await client.get(builtin("configmaps"), "settings-00", "shop")
            owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "settings-00", "uid": config["metadata"]["uid"]}
            meta = {"name": "owned", "namespace": "shop", "ownerReferences": [owner]}
            await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
            await client.create(yaml.safe_load(MANIFEST.read_text()))
            await cluster.settle()
            orders = {"metadata": {"name": "orders", "namespace": "shop"}, "spec": {"engineVersion": "16"}}
            await client.create({"apiVersion": "db.example.com/v1", "kind": "PostgresCluster", **orders})
            await cluster.settle()
            before = await states(client, "shop")
            assert len(before) >= 27
            await world.typed("mark before")
            await client.delete(builtin("namespaces"), "shop")
            requested = (await client.get(builtin("namespaces"), "shop"))["metadata"]["resourceVersion"]
            early = await world.run(f"undo {requested} --yes")
            assert early.code == 1 and "namespace/shop: is still being deleted" in early.out
            await cluster.sleep(120)
            assert not await states(client, "shop")
            plan = await world.typed(f"undo {requested} --plan")
            assert "  + namespace/shop " in plan and "left to replicaset-controller" in plan
            assert "job.batch/once (shop): it runs again from the beginning" in plan
            assert "serviceaccount/default (shop): left to serviceaccount-controller" in plan
            # Its removal can be given, too; and restoring it is the same.
            removed = (await world.typed("history namespace/shop")).splitlines()[1].split()[0]
            other = await world.typed(f"undo {removed} --plan")
            restored = await world.typed("restore --at before -n shop --plan")
            assert steps(plan) == steps(other) == steps(restored)
            done = await world.typed(f"undo {requested} --yes")
            assert len(re.findall(r"created \(revision \d+\)$", done, re.MULTILINE)) == 27, done
            await cluster.settle()
            assert await states(client, "shop") == before
            owned = await client.get(builtin("configmaps"), "owned", "shop")
            config = await client.get(builtin("configmaps"), "settings-00", "shop")
            assert owned["metadata"]["ownerReferences"][0]["uid"] == config["metadata"]["uid"] != owner["uid"]
            pods = (await client.list(builtin("pods"), "shop")).items
            assert sum(each["status"].get("phase") == "Running" for each in pods) >= 6

            # A definition with its objects.
            definition = "customresourcedefinition/postgresclusters.db.example.com"
            await world.typed(f"delete {definition} --wait=false")
            await cluster.sleep(60)
            gone = (await world.typed(f"history {definition}")).splitlines()[1].split()[0]
            await world.typed(f"undo {gone} --yes")
            assert "orders" in await world.typed("get postgresclusters -n shop")

            # A Deployment that is deleted in the background: its Pods are left to its controllers.
            await world.typed("delete deployment web -n shop --wait=false")
            await cluster.settle()
            await world.typed("restore --at before deployment/web -n shop --yes")
            await cluster.settle()
            assert await states(client, "shop") == before

            # Everything, without what was created since; the system's own objects are left alone.
            everything = await states(client)
            revision = (await client.list(builtin("configmaps"), "shop")).resource_version
            unchanged = await world.typed(f"restore --at {revision} --all --prune --plan")
            assert "Nothing is to be done." in unchanged, unchanged
            await world.typed("create namespace extra")
            await world.typed("create deployment more -n extra --image=nginx:1.27")
            await world.typed("set image deployment/web -n shop web=nginx:1.28")
            await world.typed("taint node --all key=value:NoSchedule")
            await world.typed("delete statefulset db -n shop --wait=false")
            await world.typed("delete clusterrole view --wait=false")
            await cluster.settle()
            done = await world.typed(f"restore --at {revision} --all --prune --yes")
            assert "namespace/extra deleted" in done and "deployment.apps/more" not in "".join(steps(done))
            await cluster.sleep(60)
            await cluster.settle()
            assert await states(client) == everything

    run_virtual(main)
