"""`setpoint why` in clusters where things happen: the exact answers, as people read them.

Each scenario plays in one cluster and asks many questions; its answers are in `why_texts/`. Names that are generated,
times and revisions are replaced by stable ones. To write the answers anew after a change of the wording, run the tests
with SETPOINT_WRITE_TEXTS=1 and read the difference.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from why_scenarios import World, changed, job, plain, pod, workload

from setpoint.client import Client, Unreachable
from setpoint.client.interface import ResourceRef, WatchEvent
from setpoint.cluster.components import MASTERS
from setpoint.cluster.virtual.link import EventInterceptor, Proceed, Write
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj
from setpoint.sdk import Context, Controller, Kind, Object, Operator, Result
from setpoint.testing import run_virtual, virtual_cluster
from setpoint.wire.message import HttpAnswer, Request, Response

TEXTS = Path(__file__).parent / "why_texts"
DEPLOYMENT: ResourceRef = ("apps/v1", "Deployment")
POD: ResourceRef = ("v1", "Pod")
NODE: ResourceRef = ("v1", "Node")

Scenario = Callable[[World], Coroutine[Any, Any, None]]


async def deployments(world: World) -> None:
    """A Deployment is created, scaled, updated, rolled back, paused, changed by accident and deleted."""
    cluster, alice, bob = world.cluster, world.alice, world.user("bob")
    web = workload("Deployment", "web", 3)
    await alice.create(web)
    await cluster.settle()
    first = (await world.pods("web"))[0]["metadata"]["name"]
    await world.why("deployment/web")
    await world.why("replicaset/" + world.name((await cluster.all(("apps/v1", "ReplicaSet")))[0], "web-rs-1"))
    await world.why(f"pod/{first}")
    await world.why(f"pod/{first} spec.nodeName")
    await world.why(f"pod/{first} Ready")
    await world.why("deployment/web Available")
    await world.why("deployment/web status.readyReplicas")
    await world.why("not deployment/web")
    await cluster.sleep(5)
    await changed(bob, web, lambda obj: obj["spec"].update(replicas=2))
    before = await world.pods("web")
    await cluster.settle()
    gone = {each["metadata"]["name"] for each in before} - {
        each["metadata"]["name"] for each in await world.pods("web")
    }
    await world.why(f"pod/{gone.pop()}")
    await world.why("deployment/web")
    await world.why("deployment web spec.replicas")
    await world.why("replicaset/" + (await cluster.all(("apps/v1", "ReplicaSet")))[0]["metadata"]["name"])
    await cluster.sleep(5)
    # A person deletes a Pod; another one takes its place.
    victim, *_ = await world.pods("web")
    await bob.delete(POD, victim["metadata"]["name"], "default")
    await cluster.settle()
    await world.why(f"pod/{victim['metadata']['name']}")
    known = {victim["metadata"]["name"], *(each["metadata"]["name"] for each in before)}
    newest = next(each for each in await world.pods("web") if each["metadata"]["name"] not in known)
    await world.why(f"pod/{newest['metadata']['name']}")
    await cluster.sleep(5)
    # A new image, and the old one again.
    await changed(alice, web, lambda obj: obj["spec"]["template"]["spec"]["containers"][0].update(image="nginx:1.28"))
    await cluster.settle()
    await world.pods("web")
    await world.why(f"pod/{newest['metadata']['name']}")
    await world.why("deployment/web image")
    await world.why("deployment/web spec.template.spec.containers[0].image")
    await world.why("deployment/web Progressing")
    await world.why(f"pod/{(await world.pods('web'))[-1]['metadata']['name']}")
    await cluster.sleep(5)
    await changed(
        world.user("ci", "helm"),
        web,
        lambda obj: obj["spec"]["template"]["spec"]["containers"][0].update(image="nginx:1.27"),
    )
    await cluster.settle()
    await world.pods("web")
    await world.why("deployment/web spec.template --since 1h")
    await world.why("deployment/web spec.template --all")
    await changed(bob, web, lambda obj: obj["metadata"].setdefault("labels", {}).update(team="blue"))
    await world.why("deployment/web metadata.labels")
    await world.why("deployment/web spec.paused")
    await changed(bob, web, lambda obj: obj["spec"].update(paused=True))
    await changed(alice, web, lambda obj: obj["spec"]["template"]["spec"]["containers"][0].update(image="nginx:1.29"))
    await cluster.sleep(20)
    await world.why("deployment/web")
    await world.why("deployment/web spec.paused")
    await changed(bob, web, lambda obj: obj["spec"].update(paused=False))
    await cluster.settle()
    last = (await world.pods("web"))[0]["metadata"]["name"]
    await cluster.sleep(3)
    await bob.delete(DEPLOYMENT, "web", "default")
    await cluster.settle()
    await world.why("deployment/web")
    await world.why(f"pod/{last}")
    await world.why("deployment/never-there")


async def pods_that_wait(world: World) -> None:
    """Pods that are not scheduled, not started, not ready, or not gone."""
    cluster, alice = world.cluster, world.alice
    big = {"resources": {"requests": {"cpu": "500", "memory": "1Gi"}}}
    await alice.create(pod("huge", container=big))
    await alice.create(pod("picky", nodeSelector={"disk": "ssd"}))
    await alice.create(pod("gated", schedulingGates=[{"name": "example.com/quota"}]))
    await alice.create(pod("foreign", schedulerName="my-scheduler"))
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}
    await alice.create(pod("claimless", volumes=[claim]))
    await alice.create(pod("typo", image="nginx:no-such-tag", annotations={"simulate.setpoint.dev/pull": "fail"}))
    await alice.create(pod("held", finalizers=["example.com/backup"]))
    probe = {"httpGet": {"port": 80}}
    unready = {"simulate.setpoint.dev/readiness": "false", "simulate.setpoint.dev/startup": "false"}
    await alice.create(pod("unready", container={"readinessProbe": probe}, annotations=unready))
    await alice.create(pod("slow", container={"startupProbe": probe}, annotations=unready))
    await alice.create(pod("waiting", readinessGates=[{"conditionType": "example.com/ready"}]))
    crash = {"simulate.setpoint.dev/exit-code": "1"}
    await alice.create(pod("crashing", annotations=crash))
    await alice.create(pod("once", restartPolicy="Never", annotations=crash))
    dead = {"livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}}
    await alice.create(pod("dead", container=dead))
    config = {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "absent", "key": "a"}}}]}
    await alice.create(pod("unconfigured", container=config))
    await alice.create(pod("initial", initContainers=[{"name": "prepare", "image": "busybox:no-such-tag"}]))
    await cluster.sleep(20)
    for value in ("2", "3"):
        patch = {"metadata": {"annotations": {"simulate.setpoint.dev/exit-code": value}}}
        await alice.patch(POD, "crashing", patch, "default")
        await cluster.sleep(25 if value == "2" else 0.5)
    await alice.delete(POD, "held", "default")
    await cluster.sleep(2)
    for name in [
        "huge",
        "picky",
        "gated",
        "foreign",
        "claimless",
        "typo",
        "held",
        "unready",
        "slow",
        "waiting",
        "crashing",
        "once",
        "dead",
        "unconfigured",
        "initial",
    ]:
        await world.why(f"pod/{name}")
    await alice.patch(NODE, "node-1", {"spec": {"unschedulable": True}})
    taint = [{"key": "maintenance", "value": "true", "effect": "NoSchedule"}]
    await alice.patch(NODE, "node-2", {"spec": {"taints": taint}})
    await alice.patch(NODE, "node-3", {"spec": {"unschedulable": True}})
    await alice.create(pod("homeless"))
    await cluster.sleep(5)
    await world.why("pod/homeless")
    await world.why("node/node-1")
    await world.why("node/node-2 spec.taints")
    # A node takes new Pods again: the waiting one is scheduled.
    await world.user("bob").patch(NODE, "node-3", {"spec": {"unschedulable": None}})
    await cluster.sleep(15)
    await world.why("pod/homeless spec.nodeName")
    await world.why("not pod/homeless")
    await world.why("pod/gated PodScheduled")
    await alice.patch(POD, "gated", {"spec": {"schedulingGates": None}}, "default")
    await cluster.sleep(5)
    await world.why("pod/gated spec.nodeName")


async def jobs(world: World) -> None:
    """Jobs and CronJobs: run, fail, are suspended, wait for their time."""
    cluster, alice = world.cluster, world.alice
    await alice.create(job("fine", 0))
    await alice.create(job("failing", 1, backoffLimit=0))
    await alice.create(job("idle", suspend=True))
    await alice.create(job("none", parallelism=0))
    await alice.create(job("cleaned", 0, ttlSecondsAfterFinished=5))
    template = {"spec": job("x", 0)["spec"]}
    nightly = plain("batch/v1", "CronJob", "minutely", spec={"schedule": "* * * * *", "jobTemplate": template})
    await alice.create(nightly)
    long = {"spec": job("x", suspend=True)["spec"]}
    forbidding = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": long}
    await alice.create(plain("batch/v1", "CronJob", "one-at-a-time", spec=forbidding))
    yearly = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": template}
    await alice.create(plain("batch/v1", "CronJob", "yearly", spec=yearly))
    await cluster.sleep(70)
    for found in await cluster.all(("batch/v1", "Job")):
        owner = (found["metadata"].get("ownerReferences") or [{}])[0].get("name")
        if owner:
            world.name(found, f"{owner}-run")
    for found in await cluster.all(POD):
        owner = (found["metadata"].get("ownerReferences") or [{}])[0].get("name")
        world.name(found, f"{world.stable(str(owner))}-pod")
    await world.why("job/fine Complete")
    await world.why("job/fine")
    await world.why("job/failing")
    await world.why("job/idle")
    await world.why("job/none")
    await world.why("job/cleaned")
    for found in await cluster.all(("batch/v1", "Job")):
        if world.stable(found["metadata"]["name"]) in ("minutely-run", "one-at-a-time-run"):
            await world.why(f"job/{found['metadata']['name']}")
    await world.why("not cronjob/minutely")
    await world.why("cronjob/minutely status.lastScheduleTime")
    await world.why("cronjob/one-at-a-time")
    await world.why("cronjob/yearly")
    await world.why("not job/fine")
    await alice.patch(("batch/v1", "Job"), "idle", {"spec": {"suspend": False}}, "default")
    await cluster.sleep(2)
    await world.why("job/idle Suspended")


async def services_and_storage(world: World) -> None:
    """Services, budgets, autoscalers and claims."""
    cluster, alice = world.cluster, world.alice
    ports = [{"port": 80}]
    await alice.create(plain("v1", "Service", "orphan", spec={"selector": {"app": "nothing"}, "ports": ports}))
    await alice.create(plain("v1", "Service", "front", spec={"selector": {"app": "front"}, "ports": ports}))
    probe = {"readinessProbe": {"httpGet": {"port": 80}}}
    unready = {"annotations": {"simulate.setpoint.dev/readiness": "false"}}
    await alice.create(workload("Deployment", "front", 2, container=probe, template_metadata=unready))
    await alice.create(workload("Deployment", "back", 2))
    await alice.create(plain("v1", "Service", "back", spec={"selector": {"app": "back"}, "ports": ports}))
    selector = {"matchLabels": {"app": "back"}}
    await alice.create(
        plain("policy/v1", "PodDisruptionBudget", "back", spec={"minAvailable": 2, "selector": selector})
    )
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "missing"}
    hpa = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3}
    await alice.create(plain("autoscaling/v2", "HorizontalPodAutoscaler", "broken", spec=hpa))
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await alice.create(plain("v1", "PersistentVolumeClaim", "no-class", spec={**size, "storageClassName": "fast"}))
    await alice.create(plain("v1", "PersistentVolumeClaim", "manual", spec={**size, "storageClassName": ""}))
    late = plain("storage.k8s.io/v1", "StorageClass", "late", "", provisioner="example.com/disk")
    await alice.create({**late, "volumeBindingMode": "WaitForFirstConsumer"})
    await alice.create(plain("storage.k8s.io/v1", "StorageClass", "soon", "", provisioner="example.com/disk"))
    await alice.create(plain("v1", "PersistentVolumeClaim", "later", spec={**size, "storageClassName": "late"}))
    await alice.create(plain("v1", "PersistentVolumeClaim", "sooner", spec={**size, "storageClassName": "soon"}))
    await cluster.sleep(40)
    await world.pods("front")
    back = await world.pods("back")
    await world.why("service/orphan")
    await world.why("service/front")
    await world.why("deployment/front")
    await world.why("not service/back")
    await world.why("not pdb/back")
    await world.why("hpa/broken")
    await world.why("pvc/no-class")
    await world.why("pvc/manual")
    await world.why("pvc/later")
    await world.why("pvc/sooner")
    slices = await cluster.all(("discovery.k8s.io/v1", "EndpointSlice"), selector="kubernetes.io/service-name=back")
    world.name(slices[0], "back-slice")
    await world.why(f"endpointslice/{slices[0]['metadata']['name']}")
    with pytest.raises(ApiError, match="disruption budget"):
        name = back[0]["metadata"]["name"]
        eviction = plain("policy/v1", "Eviction", name)
        await alice.create(eviction, resource=POD, name=name, subresource="eviction")
    await world.why(f"pod/{name}")
    await world.why("pdb/back DisruptionAllowed")
    backend = {"service": {"name": "back", "port": {"number": 80}}}
    await alice.create(plain("networking.k8s.io/v1", "Ingress", "front", spec={"defaultBackend": backend}))
    await cluster.settle()
    await world.why("not ingress/front")
    await alice.delete(("v1", "Service"), "back", "default")
    await cluster.sleep(5)
    await world.why("endpointslice/" + slices[0]["metadata"]["name"])
    # A claim that is in use cannot be deleted.
    volume = plain("v1", "PersistentVolume", "disk", "", spec={})
    volume["spec"] = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/tmp/disk"},
        "storageClassName": "",
    }
    await alice.create(volume)
    await cluster.sleep(20)
    await world.why("pvc/manual status.phase")
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "manual"}}
    await alice.create(pod("user", volumes=[data]))
    await cluster.sleep(5)
    await alice.delete(("v1", "PersistentVolumeClaim"), "manual", "default")
    await cluster.sleep(5)
    await world.why("pvc/manual")
    # Pods that wait for claims.
    for claim in ("no-class", "sooner"):
        waiting = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        await alice.create(pod(f"uses-{claim}", volumes=[waiting]))
    await cluster.sleep(5)
    await world.why("pod/uses-no-class")
    await world.why("pod/uses-sooner")


async def selectors(world: World) -> None:
    """Objects that do not find each other by their labels, and Pods that change their controller."""
    cluster, alice, bob = world.cluster, world.alice, world.user("bob")
    await alice.create(workload("ReplicaSet", "web", 2))
    await alice.create(plain("v1", "Namespace", "shop", ""))
    await cluster.settle()
    ports = [{"port": 80}]
    await alice.create(plain("v1", "Service", "typo", spec={"selector": {"app": "wep"}, "ports": ports}))
    frontend = {"app": "web", "tier": "frontend"}
    await alice.create(plain("v1", "Service", "tiered", spec={"selector": frontend, "ports": ports}))
    await alice.create(plain("v1", "Service", "elsewhere", "shop", spec={"selector": {"app": "web"}, "ports": ports}))
    rule = {"podSelector": {"matchLabels": {"app": "webb"}}}
    await alice.create(plain("networking.k8s.io/v1", "NetworkPolicy", "typo", spec=rule))
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "Web"}}}
    await alice.create(plain("policy/v1", "PodDisruptionBudget", "typo", spec=budget))
    # A second ReplicaSet with the same selector does not adopt the Pods of the first.
    rival = workload("ReplicaSet", "rival", 1)
    rival["spec"]["selector"]["matchLabels"] = rival["spec"]["template"]["metadata"]["labels"] = {"app": "web"}
    await alice.create(rival)
    # The name of a Pod of a StatefulSet is taken.
    await alice.create(pod("db-0", labels={"app": "other"}))
    await alice.create(workload("StatefulSet", "db", 2))
    await cluster.sleep(20)
    first = next(each for each in await world.pods("web") if controller_of(each).startswith("web"))["metadata"]["name"]
    for each in await world.pods("web"):
        if not controller_of(each).startswith("web"):
            world.name(each, "rival-pod")
    await world.why("service/typo")
    await world.why("service/tiered")
    await world.why("-n shop service/elsewhere")
    await world.why("not networkpolicy/typo")
    await world.why("not pdb/typo")
    await world.why("not replicaset/rival")
    await world.why("replicaset/rival")
    await world.why("statefulset/db")
    # Carol may read StatefulSets, and not the Pods that an error of their loop names.
    rules = [{"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["get", "list"]}]
    await alice.create(plain("rbac.authorization.k8s.io/v1", "ClusterRole", "sets-only", "", rules=rules))
    await allow(alice, "carol", "sets-only", "setpoint:why")
    await cluster.settle()
    await world.why("not statefulset/db", world.user("carol", groups=()))
    # A person changes the labels of a Pod: its controller releases and replaces it.
    await bob.patch(POD, first, {"metadata": {"labels": {"app": "debug"}}}, "default")
    await cluster.sleep(5)
    await world.why(f"not pod/{first}")
    await world.why(f"pod/{first}")
    await world.why("not pod/db-0")


def controller_of(obj: Obj) -> str:
    return str((obj["metadata"].get("ownerReferences") or [{"name": ""}])[0]["name"])


async def autoscaling(world: World) -> None:
    """An autoscaler and a person set the number of replicas."""
    cluster, alice = world.cluster, world.alice
    requests = {"resources": {"requests": {"cpu": "100m"}}}
    busy = {"annotations": {"simulate.setpoint.dev/cpu": "90m"}}
    web = workload("Deployment", "web", 1, container=requests, template_metadata=busy)
    await alice.create(web)
    await cluster.settle()
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 30}}
    metrics = [{"type": "Resource", "resource": cpu}]
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3, "metrics": metrics}
    await alice.create(plain("autoscaling/v2", "HorizontalPodAutoscaler", "web", spec=spec))
    await cluster.sleep(60)
    await world.pods("web")
    await world.why("deployment/web spec.replicas")
    await world.why("not hpa/web")
    await changed(world.user("carol"), web, lambda obj: obj["spec"].update(replicas=1))
    await cluster.sleep(40)
    await world.pods("web")
    await world.why("deployment/web spec.replicas")
    await world.why("deployment/web spec.replicas --conflicts")
    await world.why("hpa/web status.desiredReplicas")


async def nodes(world: World) -> None:
    """A node stops: its Pods are evicted and replaced. Another one is removed."""
    cluster, alice = world.cluster, world.alice
    quick = [
        {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 20}
        for why in ("not-ready", "unreachable")
    ]
    await alice.create(workload("Deployment", "web", 3, template={"tolerations": quick}))
    await alice.create(workload("DaemonSet", "agent"))
    await cluster.settle()
    found = await world.pods("web")
    lost = next(each["metadata"]["name"] for each in found if each["spec"]["nodeName"] == "node-2")
    patch = {"metadata": {"annotations": {"simulate.setpoint.dev/state": "stopped"}}}
    await world.user("bob").patch(NODE, "node-2", patch)
    await cluster.sleep(62)
    await world.why("node/node-2")
    await world.why("node/node-2 Ready")
    await world.why(f"pod/{lost}")
    await world.why(f"pod/{lost} Ready")
    await cluster.sleep(30)
    known = {each["metadata"]["name"] for each in found}
    new = next(each for each in await world.pods("web") if each["metadata"]["name"] not in known)
    await world.why(f"pod/{lost}")
    await world.why(f"pod/{new['metadata']['name']}")
    await world.why("node/node-2 metadata.annotations")
    await world.why("daemonset/agent")
    # The machine is gone for good.
    await alice.delete(NODE, "node-2")
    await cluster.sleep(50)
    await world.why("node/node-2")
    await world.why(f"pod/{lost}")
    gone = await cluster.all(POD, selector="app=agent")
    for each in gone:
        world.name(each, f"agent-on-{each['spec']['nodeName']}")
    await world.why("not daemonset/agent")
    await world.why("daemonset/agent status.desiredNumberScheduled")


async def stateful(world: World) -> None:
    """A StatefulSet whose first Pod is not ready, and one with a partition."""
    cluster, alice = world.cluster, world.alice
    probe = {"readinessProbe": {"httpGet": {"port": 80}}}
    unready = {"annotations": {"simulate.setpoint.dev/readiness": "false"}}
    await alice.create(workload("StatefulSet", "db", 3, container=probe, template_metadata=unready))
    rolling = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}
    parted = workload("StatefulSet", "parted", 3, **rolling)
    await alice.create(parted)
    await alice.create(workload("StatefulSet", "manual", 1, updateStrategy={"type": "OnDelete"}))
    await alice.create(workload("DaemonSet", "nowhere", template={"nodeSelector": {"gpu": "yes"}}))
    await alice.create(workload("ReplicaSet", "bare", 1))
    slow = workload("Deployment", "slow", 1, minReadySeconds=60)
    await alice.create(slow)
    stuck = workload("Deployment", "stuck", 1, image="app:no-such-tag", progressDeadlineSeconds=30)
    await alice.create(stuck)
    await cluster.sleep(40)
    for name in ("parted", "manual"):
        image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "nginx:1.28"}]
        await alice.patch(("apps/v1", "StatefulSet"), name, image, "default", kind="json")
    await cluster.sleep(5)
    for app in ("slow", "stuck", "bare"):
        await world.pods(app)
    await world.why("statefulset/db")
    await world.why("pod/db-0")
    await world.why("statefulset/parted")
    await world.why("pod/parted-2")
    await world.why("statefulset/manual")
    await world.why("not daemonset/nowhere")
    await world.why("replicaset/bare")
    await world.why("deployment/slow")
    await world.why("deployment/stuck")
    await world.why("deployment/stuck Progressing")
    owner = [{"op": "remove", "path": "/metadata/ownerReferences"}]
    bare = (await world.pods("bare"))[0]["metadata"]["name"]
    await alice.patch(POD, bare, owner, "default", kind="json")
    await cluster.sleep(2)
    await world.why(f"pod/{bare} metadata.ownerReferences")
    annotation = {"metadata": {"annotations": {"simulate.setpoint.dev/readiness": "true"}}}
    await alice.patch(POD, "db-0", annotation, "default")
    await cluster.sleep(20)
    await world.why("pod/db-0 Ready")
    await world.why("pod/db-1")


async def allow(client: Client, user: str, *roles: str) -> None:
    """Bind ClusterRoles to a user."""
    group = "rbac.authorization.k8s.io"
    subjects = [{"apiGroup": group, "kind": "User", "name": user}]
    for role in roles:
        reference = {"apiGroup": group, "kind": "ClusterRole", "name": role}
        content = {"roleRef": reference, "subjects": subjects}
        await client.create(plain(f"{group}/v1", "ClusterRoleBinding", f"{user}:{role}", "", **content))


async def rights_and_refusals(world: World) -> None:
    """Writes that the server refuses, objects that the asker may not read, and namespaces that are deleted."""
    cluster, alice = world.cluster, world.alice
    await alice.create(plain("v1", "Namespace", "shop", ""))
    await alice.create(plain("v1", "ResourceQuota", "few", "shop", spec={"hard": {"pods": "1"}}))
    await cluster.settle()
    await alice.create(workload("Deployment", "web", 3, namespace="shop"))
    deny = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ]
        },
        "validations": [{"expression": "object.metadata.namespace != 'strict'", "message": "no Pods in strict"}],
    }
    group = "admissionregistration.k8s.io/v1"
    await alice.create(plain(group, "ValidatingAdmissionPolicy", "strict", "", spec=deny))
    binding = {"policyName": "strict", "validationActions": ["Deny"]}
    await alice.create(plain(group, "ValidatingAdmissionPolicyBinding", "strict", "", spec=binding))
    await alice.create(plain("v1", "Namespace", "strict", ""))
    await cluster.sleep(2)
    await alice.create(workload("ReplicaSet", "refused", 1, namespace="strict"))
    await cluster.sleep(15)
    await world.pods("web", "shop")
    await world.why("-n shop deployment/web")
    await world.why("-n strict replicaset/refused")
    extra = {**pod("extra"), "metadata": {"name": "extra", "namespace": "shop"}}
    with pytest.raises(ApiError, match="exceeded quota"):
        await alice.sender.request("POST", "/api/v1/namespaces/shop/pods", "", json.dumps(extra).encode())
    await world.why("-n shop pod/extra")
    # A reconcile of the ReplicaSet says nothing about another object with its name.
    await world.why("-n strict configmap/refused")
    # Carol may read Pods, and ask why.
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    role = plain("rbac.authorization.k8s.io/v1", "ClusterRole", "pods-only", "", rules=rules)
    await alice.create(role)
    await allow(alice, "carol", "pods-only", "setpoint:why")
    await cluster.settle()
    carol, dave = world.user("carol", groups=()), world.user("dave", groups=())
    only = (await world.pods("web", "shop"))[0]["metadata"]["name"]
    await world.why(f"-n shop pod/{only}", carol)
    await world.why("-n shop deployment/web", carol)
    await world.why(f"-n shop pod/{only}", dave)
    # Of a namespace that is deleted, an object with a finalizer remains.
    kept = plain("v1", "ConfigMap", "kept", "shop", metadata={"finalizers": ["example.com/export"]}, data={"a": "1"})
    await alice.create(kept)
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = plain("v1", "PersistentVolumeClaim", "data", "shop", metadata={"finalizers": ["example.com/a"]}, spec=size)
    await alice.create(claim)
    await alice.delete(("v1", "Namespace"), "shop")
    await cluster.sleep(30)
    await world.why("namespace/shop")
    await world.why("-n shop configmap/kept")
    await world.why("-n shop deployment/web")
    release = [{"op": "remove", "path": "/metadata/finalizers"}]
    await world.user("bob").patch(("v1", "ConfigMap"), "kept", release, "shop", kind="json")
    await alice.patch(("v1", "PersistentVolumeClaim"), "data", release, "shop", kind="json")
    await cluster.sleep(30)
    await world.why("-n shop configmap/kept")
    await world.why("namespace/shop")
    with pytest.raises(ApiError):
        await world.user("eve", groups=()).patch(("v1", "ConfigMap"), "mine", {"data": {"a": "1"}}, "default")
    await world.why("not configmap/mine")
    await world.why("pod/x a b")
    await world.why("pod/x -o yaml")
    await world.why("pod")
    await world.why("deployment/web --at 13:99")


async def clients(world: World) -> None:
    """Custom kinds, operators with and without the header, and clients that revert each other's changes."""
    cluster, alice = world.cluster, world.alice
    names = {"plural": "teapots", "singular": "teapot", "kind": "Teapot", "listKind": "TeapotList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    crd = {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]}
    definition = plain("apiextensions.k8s.io/v1", "CustomResourceDefinition", "teapots.example.com", "", spec=crd)
    await alice.create(definition)
    await cluster.settle()
    teapot = ("example.com/v1", "Teapot")
    await alice.create(plain("example.com/v1", "Teapot", "green", spec={"cups": 2}))
    await cluster.settle()
    await world.why("teapot/green")
    # An operator that names no trigger, and watches its kind.
    operator = world.user("system:serviceaccount:tea:kettle", "kettle")
    async with operator.watch(teapot, "default") as events:
        await cluster.sleep(1)
        await cluster.sleep(1)
        await changed(alice, plain("example.com/v1", "Teapot", "green"), lambda obj: obj["spec"].update(cups=4))
        await cluster.sleep(0.2)
        found = await operator.get(teapot, "green", "default")
        owner = {
            "apiVersion": "example.com/v1",
            "kind": "Teapot",
            "name": "green",
            "uid": found["metadata"]["uid"],
            "controller": True,
        }
        await operator.create(plain("v1", "ConfigMap", "green-cups", metadata={"ownerReferences": [owner]}, data={}))
        found["status"] = {
            "conditions": [{"type": "Ready", "status": "False", "reason": "NoWater", "message": "add water"}]
        }
        await operator.update(found, subresource="status")
        await world.why("configmap/green-cups")
        await world.why("teapot/green Ready")
        await world.why("teapot/green")
        # The same operator, with the header of one line.
        revision = found["metadata"]["resourceVersion"]
        linked = world.user("system:serviceaccount:tea:kettle", "kettle")
        claim = f"t={revision};k=default/green;why=4 cups are wanted"
        await world.create_with(
            linked, claim, plain("v1", "ConfigMap", "green-plates", metadata={"ownerReferences": [owner]}, data={})
        )
        await world.why("configmap/green-plates")
        # One that claims a trigger of the future, and one that claims nothing readable.
        await world.create_with(linked, "t=99999999;why=no such revision", plain("v1", "ConfigMap", "future", data={}))
        await world.why("configmap/future")
        await world.create_with(linked, "?????", plain("v1", "ConfigMap", "unreadable", data={}))
        await world.why("configmap/unreadable")
        del events
    # A client that watches nothing.
    robot = world.user("robot", "robot")
    await robot.create(plain("v1", "ConfigMap", "settings", data={"level": "info"}))
    await world.why("configmap/settings")
    await world.why("configmap/settings data.level --conflicts")
    other = world.user("debug-operator", "debug")
    for _ in range(4):
        for client, level in ((other, "debug"), (robot, "info")):
            await cluster.sleep(5)
            await client.patch(("v1", "ConfigMap"), "settings", {"data": {"level": level}}, "default")
    await world.why("configmap/settings data.level --conflicts")
    await world.why("configmap/settings data.level")
    applied = plain("v1", "ConfigMap", "settings", data={"level": "warn"})
    await alice.apply(applied, field_manager="kubectl", force=True)
    await world.why("configmap/settings data.level --depth 1")
    await world.why("configmap/settings data")


async def manifests(world: World) -> None:
    """Fields that were applied, and written by others since: what does the next apply do?"""
    cluster, carol, bob = world.cluster, world.user("carol"), world.user("bob")
    web = workload("Deployment", "web", 5, container={"resources": {"limits": {"cpu": "1000m"}}})
    file = world.home / "web.yaml"
    file.write_text(json.dumps(web))
    code, _, err = await world.typed(f"apply -f {file}", carol)
    assert code == 0, err
    await world.why("deployment/web spec.replicas")
    await changed(bob, web, lambda obj: obj["spec"].update(replicas=3))
    await world.why("deployment/web spec.replicas")

    async def change_container(**fields: Any) -> None:
        await changed(bob, web, lambda obj: obj["spec"]["template"]["spec"]["containers"][0].update(fields))

    await change_container(image="nginx:1.29")
    await world.why("deployment/web image")
    await world.why("deployment/web spec")
    await world.why("deployment/web spec.paused")
    # Another value, and the same value in another form.
    for cpu in ("2", "1"):
        await change_container(resources={"limits": {"cpu": cpu}})
        await world.why("deployment/web spec.template.spec.containers[0].resources")
    code, _, err = await world.typed(f"apply -f {file}", carol)
    assert code == 0, err
    await world.why("deployment/web spec.replicas")
    # Applied on the server, by two field managers and by a patch.
    robot = world.user("robot", "robot")
    settings = plain("v1", "ConfigMap", "settings", data={"level": "info", "mode": "a"})
    await robot.apply(settings, field_manager="gitops")
    await bob.patch(("v1", "ConfigMap"), "settings", {"data": {"level": "debug"}}, "default")
    await world.why("configmap/settings data.level")
    with pytest.raises(ApiError, match="conflict"):
        await robot.apply(settings, field_manager="gitops")
    await robot.apply(settings, field_manager="gitops", force=True)
    await world.why("configmap/settings data.level")
    # A manager that does not want the field any more has not lost it.
    await robot.apply(plain("v1", "ConfigMap", "settings", data={"mode": "a"}), field_manager="gitops")
    await world.why("configmap/settings data.level")
    await cluster.settle()


def shell(script: str) -> dict[str, Any]:
    return {"image": "busybox", "command": ["sh", "-c", script]}


class SilentNode:
    """The connection to a kubelet that accepts requests and never answers."""

    async def request_node(self, node: Obj, request: Request) -> HttpAnswer:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    def request_pod(self, pod: Obj, port: int, tls: bool, request: Request) -> Response | None:
        raise LookupError


async def exits(world: World) -> None:
    """Containers that have exited: the answer shows the end of what they wrote, with the rights of the asker."""
    cluster, alice = world.cluster, world.alice
    long = "x" * 3000
    counting = "for n in 1 2 3 4 5 6 7; do echo line $n; done; exit 3"
    await alice.create(workload("Deployment", "web", 2, container=shell("echo no database at db:5432 >&2; exit 1")))
    await alice.create(pod("counting", restartPolicy="Never", container=shell(counting)))
    await alice.create(pod("odd", container=shell(f"printf '\\033[31mred\\033[0m \\001\\r\\n{long}'; exit 4")))
    await alice.create(pod("silent", container=shell("exit 5")))
    two = [{"name": "app", "image": "nginx"}, {"name": "side", **shell("echo the side ends; exit 6")}]
    await alice.create(pod("two", containers=two))
    prepare = {"name": "prepare", **shell("echo cannot prepare; exit 7")}
    await alice.create(pod("initial", initContainers=[prepare]))
    await alice.create(pod("given-up", restartPolicy="Never", initContainers=[prepare]))
    await cluster.sleep(25)
    await world.pods("web")
    await world.why("deployment/web")
    for name in ("counting", "odd", "silent", "two", "initial", "given-up"):
        await world.why(f"pod/{name}")
    (finding,) = (await world.asked(resource="pods", namespace="default", name="two"))["findings"]
    assert finding["log"] == {
        "namespace": "default",
        "pod": "two",
        "container": "side",
        "previous": True,
        "lines": ["the side ends"],
    }
    (finding,) = (await world.asked(resource="pods", namespace="default", name="two", logs="false"))["findings"]
    assert finding["log"]["lines"] == []
    # Carol may read Pods and not their logs; she is not helped by acting for somebody who may not either.
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"nonResourceURLs": ["/setpoint/v1/why"], "verbs": ["get"]},
    ]
    rbac = "rbac.authorization.k8s.io/v1"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pods-only"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol"}]
    await alice.create(plain(rbac, "ClusterRole", "pods-only", "", rules=rules))
    await alice.create(plain(rbac, "ClusterRoleBinding", "pods-only", "", roleRef=reference, subjects=subjects))
    await world.why("pod/two", world.user("carol", groups=()))
    headers = [("impersonate-user", "carol"), ("user-agent", "kubectl")]
    query = "resource=pods&namespace=default&name=two"
    reply = await alice.sender.transport.request("GET", "/setpoint/v1/why", query, headers, b"")
    assert json.loads(reply.body)["findings"][0]["log"]["lines"] == []
    # The answer does not wait for a kubelet that is silent.
    routes = cluster.embedded.api.parts.nodes._in_process
    routes.insert(0, (lambda name: name.startswith("node-"), SilentNode()))
    before = cluster.clock.monotonic()
    await world.why("pod/counting")
    await world.why("deployment/web")
    assert cluster.clock.monotonic() - before <= 4  # each question is asked twice
    del routes[0]


async def informers(world: World) -> None:
    """Nothing happens, because the watch of a component is late, fails, or has not begun."""
    cluster, alice = world.cluster, world.alice
    web = workload("Deployment", "web", 1)
    await alice.create(web)
    await cluster.settle()
    await world.pods("web")
    released = asyncio.Event()

    def late(held: str) -> EventInterceptor:
        async def deliver(component: str, kind: str, event: WatchEvent) -> Sequence[WatchEvent]:
            if kind == held:
                await released.wait()
            return [event]

        return deliver

    async def failing(component: str, kind: str, event: WatchEvent) -> Sequence[WatchEvent]:
        if kind == "Deployment":
            raise Unreachable("connection reset by peer")
        return [event]

    def refused(component: str, options: dict[str, Any]) -> dict[str, Any]:
        raise Unreachable("connection refused")

    controllers, scheduler = cluster.links["controllers"], cluster.links["scheduler"]
    controllers.event_interceptor = late("Deployment")
    await changed(alice, web, lambda obj: obj["spec"].update(replicas=2))
    await cluster.sleep(0.5)
    await world.why("deployment/web")
    await cluster.sleep(5)
    await changed(alice, web, lambda obj: obj["metadata"].setdefault("labels", {}).update(team="blue"))
    await cluster.sleep(6)
    await world.why("deployment/web")
    released.set()
    await cluster.settle()
    await world.why("not deployment/web")
    # A resource that the controller reads besides its own.
    released.clear()
    controllers.event_interceptor = late("Pod")
    gone = (await world.pods("web"))[0]["metadata"]["name"]
    await alice.delete(POD, gone, "default")
    await cluster.sleep(20)
    await world.why("not " + "replicaset/" + (await cluster.all(("apps/v1", "ReplicaSet")))[0]["metadata"]["name"])
    released.set()
    await cluster.settle()
    # The watch breaks off again and again.
    controllers.event_interceptor = failing
    await changed(alice, web, lambda obj: obj["spec"].update(replicas=3))
    await cluster.sleep(20)
    await world.why("deployment/web")
    controllers.event_interceptor = None
    await cluster.settle()
    # The scheduler does not see the Pod.
    released.clear()
    scheduler.event_interceptor = late("Pod")
    await alice.create(pod("unseen"))
    await cluster.sleep(30)
    await world.why("pod/unseen")
    released.set()
    scheduler.event_interceptor = None
    await cluster.settle()
    # A component that has started and cannot list.
    await cluster.stop("controllers")
    controllers.list_interceptor = refused
    starting = asyncio.ensure_future(cluster.start("controllers"))
    await changed(alice, web, lambda obj: obj["spec"].update(replicas=1))
    await cluster.sleep(40)
    await world.why("deployment/web")
    reply = await cluster.client.sender.request("GET", "/setpoint/v1/loops", "informers=true")
    states = [each for each in json.loads(reply.body)["informers"] if each["component"] == "kube-controller-manager"]
    assert states and all(each["error"] == "connection refused" and not each["synced"] for each in states)
    assert all(each["failingSince"] < each["retry"] and not each["revision"] for each in states)
    controllers.clear()
    await cluster.sleep(40)
    await starting
    await cluster.settle()
    await world.why("not deployment/web")
    reply = await cluster.client.sender.request("GET", "/setpoint/v1/loops", "informers=true")
    states = json.loads(reply.body)["informers"]
    assert not any(each["error"] or each["failingSince"] or each["retry"] for each in states)
    # A write that is not answered: the reconcile goes on, and a change of the object waits for its end.
    answered = asyncio.Event()

    async def unanswered(write: Write, proceed: Proceed) -> Any:
        if write.resource in ("ReplicaSet", "replicasets"):
            await answered.wait()
        return await proceed()

    controllers.write_interceptor = unanswered
    await changed(alice, web, lambda obj: obj["spec"].update(replicas=2))
    await cluster.sleep(12)
    await world.why("deployment/web")
    answered.set()
    await cluster.settle()
    newest = cluster.embedded.store.revision
    assert all(each["synced"] and 0 < each["revision"] <= newest for each in states)
    assert next(each["objects"] for each in states if each["resource"] == "deployments.apps") == 1


@dataclass
class Pages:
    pages: int = 1


Website = Kind("example.com/v1", "Website", spec=Pages)
ConfigMap = Kind("v1", "ConfigMap")


async def check_trace(world: World) -> None:
    """The answer as a trace: what alice wrote is linked from the reconcile of the operator."""
    code, out, _ = await world.typed("why configmap/page -o otlp")
    again = await world.typed("why configmap/page -o otlp")
    assert (code, again[1]) == (0, out)
    writes, reconciles = (each["scopeSpans"][0]["spans"] for each in json.loads(out)["resourceSpans"])
    assert [each["name"] for each in (*writes, *reconciles)] == ["created configmap", "created website", "reconcile"]
    assert writes[0]["parentSpanId"] == reconciles[0]["spanId"]
    assert [each["spanId"] for each in reconciles[0]["links"]] == [writes[1]["spanId"]]
    namespace = await world.cluster.client.get(("v1", "Namespace"), "kube-system")
    resource = json.loads(out)["resourceSpans"][0]["resource"]["attributes"]
    assert resource[1]["value"]["stringValue"] == namespace["metadata"]["uid"]


async def operators(world: World) -> None:
    """An operator on the SDK: its writes name their triggers and reasons."""
    cluster, alice = world.cluster, world.alice

    async def publish(ctx: Context[Any, Any], website: Object[Any, Any]) -> None:
        ctx.because(f"{website.spec.pages} pages are wanted")
        page = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "page"}}
        await ctx.apply({**page, "data": {"pages": str(website.spec.pages)}})

    home = plain("example.com/v1", "Website", "home", spec={})
    async with cluster.running(Operator("website", Controller(Website, publish, owns=(ConfigMap,)))):
        await alice.create(home)
        await cluster.settle()
        await world.why("configmap/page")
        await check_trace(world)
        await alice.patch(Website.ref, "home", {"spec": {"pages": 2}}, "default")
        await cluster.settle()
        await world.why("configmap/page data.pages")
        await alice.delete(ConfigMap.ref, "page", "default")
        await cluster.settle()
        await world.why("configmap/page")
        await world.why("website/home")
    await alice.patch(Website.ref, "home", {"spec": {"pages": 3}}, "default")
    await cluster.sleep(5)
    await world.why("not website/home")
    async with cluster.running(Operator("website", Controller(Website, publish, owns=(ConfigMap,)))):
        await cluster.settle()
        await world.why("configmap/page data.pages")


async def hold(world: World, action: str, loop: str = "") -> None:
    body = json.dumps({"action": action, **({"loop": loop} if loop else {})}).encode()
    reply = await world.alice.sender.request("POST", "/setpoint/v1/loops", "", body)
    assert reply.status == 200, reply.body


async def finalizers(world: World) -> None:
    """Deletions that wait for finalizers: of an operator, of a client without the SDK, and of a built-in controller."""
    cluster, alice = world.cluster, world.alice
    done = asyncio.Event()

    async def sell(ctx: Context[Any, Any], website: Object[Any, Any]) -> Result | None:
        return None if done.is_set() else Result(requeue_after=30)

    async def publish(ctx: Context[Any, Any], website: Object[Any, Any]) -> None:
        pass

    async with cluster.running(
        Operator("website", Controller(Website, publish, finalizer="example.com/sold", finalize=sell))
    ):
        for name in ("home", "shop"):
            await alice.create(plain("example.com/v1", "Website", name, spec={}))
        await cluster.settle()
        await alice.delete(Website.ref, "home", "default")
        await cluster.sleep(20)
        await world.why("website/home")
        done.set()
        await cluster.sleep(30)
        await world.why("website/home")
    await alice.delete(Website.ref, "shop", "default")
    await cluster.sleep(5)
    await world.why("website/shop")
    # A client without the SDK has added one; another one was there from the beginning.
    backup = world.user("system:serviceaccount:ops:backup", "backup")
    await alice.create(plain("v1", "ConfigMap", "data", data={}, metadata={"finalizers": ["example.com/audit"]}))
    await changed(
        backup, plain("v1", "ConfigMap", "data"), lambda obj: obj["metadata"]["finalizers"].append("ops/save")
    )
    await cluster.sleep(60)
    await alice.delete(("v1", "ConfigMap"), "data", "default")
    await world.why("configmap/data")
    # Dependents of a foreground deletion.
    kept = workload("Deployment", "kept", 1, template_metadata={"finalizers": ["ops/save"]})
    await alice.create(kept)
    await cluster.settle()
    await world.pods("kept")
    await alice.delete(DEPLOYMENT, "kept", "default", propagation="Foreground")
    await cluster.sleep(60)
    await world.why("deployment/kept")
    await world.why("replicaset/" + (await cluster.all(("apps/v1", "ReplicaSet")))[0]["metadata"]["name"])
    # A volume that is bound.
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}
    volume: Obj = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/tmp/disk"},
        "storageClassName": "",
    }
    await alice.create(plain("v1", "PersistentVolume", "disk", "", spec=volume))
    await alice.create(plain("v1", "PersistentVolumeClaim", "disk", spec=claim))
    await cluster.sleep(30)
    await alice.delete(("v1", "PersistentVolume"), "disk")
    await cluster.sleep(5)
    await world.why("pv/disk")


async def loops(world: World) -> None:
    """Nothing happens, because a component has stopped or a controller fails."""
    cluster, alice = world.cluster, world.alice
    await alice.create(workload("Deployment", "web", 1))
    await cluster.settle()
    await world.pods("web")
    await world.why("serviceaccount/default")
    await cluster.stop("scheduler")
    await alice.create(pod("unseen"))
    await cluster.sleep(5)
    await world.why("pod/unseen")
    await cluster.start("scheduler")
    await cluster.sleep(5)
    await world.why("pod/unseen spec.nodeName")
    await cluster.stop("controllers")
    await changed(alice, workload("Deployment", "web"), lambda obj: obj["spec"].update(replicas=2))
    await cluster.sleep(5)
    await world.why("deployment/web")
    await cluster.sleep(700)
    await world.why("deployment/web")
    await cluster.start("controllers")
    await cluster.settle()
    await world.pods("web")
    newest = max(await world.pods("web"), key=lambda each: str(each["metadata"]["creationTimestamp"]))
    await world.why("deployment/web")
    await world.why(f"pod/{newest['metadata']['name']}")
    await hold(world, "pause", "replicaset-controller")
    await changed(alice, workload("Deployment", "web"), lambda obj: obj["spec"].update(replicas=4))
    await cluster.sleep(5)
    await world.why("deployment/web")
    await hold(world, "pause")
    await changed(alice, workload("Deployment", "web"), lambda obj: obj["spec"].update(replicas=3))
    await alice.create(pod("held-back"))
    await cluster.sleep(5)
    await world.why("deployment/web")
    await world.why("pod/held-back")
    await hold(world, "resume")
    await cluster.settle()
    await world.pods("web")
    await world.why("not deployment/web")
    await cluster.stop("fleet")
    await alice.create(pod("unstarted"))
    await cluster.sleep(5)
    await world.why("pod/unstarted")
    found = [each for each in await cluster.all(("v1", "Event")) if each["involvedObject"]["name"] == "unstarted"]
    name = world.name(found[0], "the-event")
    await world.why(f"--event {name}")
    code, out, _ = await world.typed("why deployment/web -o dot")
    assert (code, out.partition("\n")[0]) == (0, "digraph why {")
    code, out, _ = await world.typed("why deployment/web -o json")
    assert (code, json.loads(out)["version"]) == (0, 1)


async def addresses(world: World) -> None:
    """Persons and programs on other machines: the address of the connection is shown at the origin."""
    cluster = world.cluster
    alice = world.user("alice", address="10.0.0.7")
    await alice.create(workload("Deployment", "web", 2))
    await cluster.settle()
    await world.why("deployment/web")
    first = (await world.pods("web"))[0]["metadata"]["name"]
    await world.why(f"pod/{first}")
    await changed(alice, workload("Deployment", "web"), lambda obj: obj["spec"].update(replicas=1))
    await cluster.settle()
    await world.why("deployment/web spec.replicas")
    code, out, _ = await world.typed("why deployment/web -o dot")
    assert code == 0 and ', from 10.0.0.7"];' in out
    code, out, _ = await world.typed("why deployment/web -o otlp")
    assert code == 0 and '"client.address"' in out and '"10.0.0.7"' in out
    # One who acts for another, over IPv6; the address is that of the connection, whatever a header says.
    admin = world.user("admin", address="2001:db8::7")
    as_bob = {"impersonate-user": "bob", "impersonate-group": MASTERS, "x-forwarded-for": "192.0.2.1"}
    await world.create_with(admin, "", plain("v1", "ConfigMap", "settings", data={"a": "1"}), **as_bob)
    await world.why("configmap/settings")
    # A program without the SDK, and a controller on another machine, whose record names the reconcile instead.
    robot = world.user("system:serviceaccount:ops:robot", "robot", address="10.0.0.9")
    await robot.create(plain("v1", "ConfigMap", "backup", data={}))
    await world.why("configmap/backup")
    claim = "r=backup-controller/1f2e.7;k=default/db;b=schedule 13:05"
    await world.create_with(robot, claim, plain("v1", "ConfigMap", "nightly", data={}))
    await world.why("configmap/nightly")
    # Who may not read the Deployment learns nothing of who changed it.
    binding = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}]
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"nonResourceURLs": ["/setpoint/v1/why"], "verbs": ["get"]},
    ]
    rbac = "rbac.authorization.k8s.io/v1"
    await alice.create(plain(rbac, "ClusterRole", "reader", "", rules=rules))
    await alice.create(plain(rbac, "ClusterRoleBinding", "reader", "", subjects=subjects, **binding))
    left = next(each for each in await world.pods("web") if not each["metadata"].get("deletionTimestamp"))
    await world.why(f"pod/{left['metadata']['name']}", world.user("eve", groups=()))


SCENARIOS: dict[str, Scenario] = {
    each.__name__: each
    for each in (
        deployments,
        pods_that_wait,
        jobs,
        services_and_storage,
        selectors,
        autoscaling,
        nodes,
        stateful,
        rights_and_refusals,
        clients,
        addresses,
        exits,
        informers,
        manifests,
        operators,
        finalizers,
        loops,
    )
}


@pytest.mark.memory_store("the texts show one order of concurrent writes; test_why_chains.py checks other orders")
@pytest.mark.parametrize("name", SCENARIOS)
def test_answers(name: str, tmp_path: Path) -> None:
    found: list[str] = []

    async def main() -> None:
        async with virtual_cluster() as cluster:
            world = World(cluster, tmp_path)
            await SCENARIOS[name](world)
            found.extend(world.answers)

    run_virtual(main)
    text = "\n".join(found)
    path = TEXTS / f"{name}.txt"
    if os.environ.get("SETPOINT_WRITE_TEXTS"):
        path.write_text(text)
        return
    expected = path.read_text()
    difference = difflib.unified_diff(expected.splitlines(), text.splitlines(), "expected", "answered", lineterm="")
    assert text == expected, "\n".join(difference)
