"""What has ended is freed by reference counting alone: the garbage collector is off, and live objects are counted
against what exists. A short soak; `bench/soak.py` is the long one."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
import uvloop
from live_objects import collector_off, live

from setpoint.apiserver.admission.plugin import Attributes
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.watch_cache import ResourceCache, Watch
from setpoint.client import Client
from setpoint.client.https import connect
from setpoint.client.kubeconfig import Access
from setpoint.cluster.apiserver import RunningApiServer, apiserver
from setpoint.cluster.config import ApiServerConfig
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj
from setpoint.node.pod_worker import PodWorker
from setpoint.node.runtime.containers import Container, Process
from setpoint.node.runtime.files import Volume
from setpoint.system import SystemClock
from setpoint.testing import VirtualCluster, virtual
from setpoint.wire.client_connection import ClientConnection
from setpoint.wire.message import Request
from setpoint.wire.request_parser import RequestParser
from setpoint.wire.server_connection import ServerConnection

PODS, JOBS, DEPLOYMENTS = ("v1", "Pod"), ("batch/v1", "Job"), ("apps/v1", "Deployment")
DEFINITIONS = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
SCRIPT = "trap 'exit 0' TERM; while true; do echo still here; sleep 1; done"


def template(labels: dict[str, str], **container: Any) -> Obj:
    return {
        "metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": 5, "containers": [{"name": "main", "image": "busybox", **container}]},
    }


def deployment(name: str, **container: Any) -> Obj:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template(labels, **container)},
    }


def job(name: str, command: list[str]) -> Obj:
    pods = template({"app": name}, command=command)
    pods["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"completions": 2, "parallelism": 2, "backoffLimit": 1, "template": pods},
    }


async def workloads(cluster: VirtualCluster, name: str) -> None:
    """Create, scale and delete workloads whose containers run, end, fail, are probed, and read volumes."""
    client = cluster.client
    await client.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"},
            "data": {"a": "b"},
        }
    )
    web = deployment(
        f"{name}-web",
        image="nginx",
        envFrom=[{"configMapRef": {"name": name}}],
        readinessProbe={"httpGet": {"port": 80}},
        livenessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1},
        lifecycle={"postStart": {"exec": {"command": ["sleep", "1"]}}, "preStop": {"sleep": {"seconds": 1}}},
        volumeMounts=[{"name": "settings", "mountPath": "/settings"}],
    )
    web["spec"]["template"]["spec"]["volumes"] = [{"name": "settings", "configMap": {"name": name}}]
    await client.create(web)
    await client.create(deployment(f"{name}-loop", command=["sh", "-c", SCRIPT]))
    await client.create(deployment(f"{name}-crash", command=["sh", "-c", "cat /etc/hostname; exit 3"]))
    await client.create(job(f"{name}-good", ["sh", "-c", "echo done > /tmp/a; cat /tmp/a"]))
    await client.create(job(f"{name}-bad", ["false"]))
    await cluster.sleep(15)
    await client.patch(DEPLOYMENTS, f"{name}-loop", {"spec": {"replicas": 1}}, "default")
    await cluster.sleep(10)
    for kind, names in ((DEPLOYMENTS, ("web", "loop", "crash")), (JOBS, ("good", "bad"))):
        for each in names:
            await client.delete(kind, f"{name}-{each}", "default", propagation="Background")
    await client.delete(("v1", "ConfigMap"), name, "default")
    await cluster.sleep(60)


@virtual(nodes=2)
async def test_memory_of_a_deleted_pod_is_freed(cluster: VirtualCluster) -> None:
    await cluster.sleep(0.5)  # requests are counted between the whole seconds at which Leases are renewed
    await cluster.client.create(deployment("stays", command=["sh", "-c", SCRIPT]))
    await workloads(cluster, "first")  # what is loaded and remembered once
    with collector_off():
        tasks, calls = len(asyncio.all_tasks()), live(RequestContext)  # of the components' watches
        for number in range(6):
            await workloads(cluster, f"next-{number}")
        assert len(await cluster.all(PODS)) == 3
        assert live(PodWorker, Container, Process) == {"PodWorker": 3, "Container": 3, "Process": 3}
        assert live(RequestContext) == calls and live(Attributes) == {}
        assert len(asyncio.all_tasks()) < tasks + 6  # fewer than one each time: controllers start workers when needed


@virtual(nodes=1)
async def test_memory_of_rejected_and_ended_requests_is_freed(cluster: VirtualCluster) -> None:
    await cluster.sleep(0.5)  # requests are counted between the whole seconds at which Leases are renewed

    async def rejected() -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "brief"}}
        await cluster.client.create(namespace)
        await cluster.client.create(deployment("held") | {"metadata": {"name": "held", "namespace": "brief"}})
        with pytest.raises(ApiError):
            await cluster.client.create(deployment("none") | {"metadata": {"name": "a", "namespace": "none"}})
        watch = cluster.client.watch(PODS, "brief")
        async with watch, asyncio.timeout(5):
            await anext(watch)
        await cluster.client.delete(("v1", "Namespace"), "brief")
        await cluster.sleep(60)

    await rejected()
    with collector_off():
        before = live(Watch, RequestContext, Request)
        for _ in range(3):
            await rejected()
        assert live(Watch, RequestContext, Request) == before and live(Attributes) == {}


def definition(number: int) -> Obj:
    plural, schema = (
        f"things{number}",
        {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    )
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.memory.example.com"},
        "spec": {
            "group": "memory.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": f"thing{number}", "kind": f"Thing{number}"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


@virtual(nodes=1)
async def test_memory_of_a_deleted_definition_is_freed(cluster: VirtualCluster) -> None:
    async def defined(number: int) -> None:
        await cluster.client.create(definition(number))
        await cluster.sleep(10)
        await cluster.client.create(
            {
                "apiVersion": "memory.example.com/v1",
                "kind": f"Thing{number}",
                "metadata": {"name": "one", "namespace": "default"},
            }
        )
        await cluster.sleep(40)
        await cluster.client.delete(DEFINITIONS, f"things{number}.memory.example.com")
        await cluster.sleep(120)

    await defined(0)
    with collector_off():
        before, tasks = live(Registry, ResourceCache, Watch), len(asyncio.all_tasks())
        for number in range(1, 4):
            await defined(number)
        assert live(Registry, ResourceCache, Watch) == before
        assert len(asyncio.all_tasks()) < tasks + 3  # none for each round; one or two may be at some work just now


# -- tables -----------------------------------------------------------------------------------------------------------


@virtual(nodes=1)
async def test_the_data_of_a_deleted_claim_is_freed(cluster: VirtualCluster) -> None:
    """Also when a claim of the same name follows."""

    async def run(name: str, script: str) -> str:
        mounts = [{"name": "data", "mountPath": "/data"}]
        pod = template({}, command=["sh", "-c", script], volumeMounts=mounts)
        pod["spec"] |= {"restartPolicy": "Never"}
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        await cluster.client.create(
            {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {"name": name, "namespace": "default"}}
        )
        await cluster.until(lambda: ended(name))
        status = (await cluster.client.get(PODS, name, "default"))["status"]
        await cluster.client.delete(PODS, name, "default")
        await cluster.sleep(60)
        return str(status["phase"])

    async def ended(name: str) -> bool:
        return (await cluster.client.get(PODS, name, "default"))["status"].get("phase") in ("Succeeded", "Failed")

    async def claimed() -> None:
        await cluster.client.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data", "namespace": "default"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }
        )

    await claimed()
    assert await run("writes", "echo kept > /data/file") == "Succeeded"
    assert await run("reads", "cat /data/file") == "Succeeded"
    with collector_off():
        before = live(Volume)
        await cluster.client.delete(("v1", "PersistentVolumeClaim"), "data", "default")
        await cluster.sleep(60)
        assert live(Volume).get("Volume", 0) == before["Volume"] - 1
    await claimed()
    assert await run("reads-again", "cat /data/file") == "Failed"


@virtual(nodes=1)
async def test_the_series_of_a_deleted_kind_are_removed(cluster: VirtualCluster) -> None:
    await cluster.client.create(definition(1))
    await cluster.sleep(10)
    await cluster.client.create(
        {
            "apiVersion": "memory.example.com/v1",
            "kind": "Thing1",
            "metadata": {"name": "one", "namespace": "default"},
        }
    )
    metrics = cluster.embedded.api.resources.metrics
    assert b'resource="things1"' in metrics.text()
    await cluster.client.delete(DEFINITIONS, "things1.memory.example.com")
    await cluster.sleep(120)
    assert b'resource="things1"' not in metrics.text()


# -- connections ------------------------------------------------------------------------------------------------------

CONNECTIONS = (
    ServerConnection,
    RequestParser,
    ClientConnection,
    "SSLProtocol",
    "_SSLProtocolTransport",
    "StreamReader",
)


async def short_command(client: Client) -> None:
    """What `kubectl get` does: a connection of its own, a few requests, the end."""
    await client.list(PODS, "default")
    with pytest.raises(NotFound):
        await client.get(PODS, "none", "default")
    await client.close()


async def broken_off_watch(client: Client) -> None:
    """Cancelled while it waits for an event."""
    async with client.watch(PODS, "default") as watch:
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.wait([waiting])
    await client.close()


async def raw(server: RunningApiServer, context: ssl.SSLContext | None, sent: bytes) -> None:
    """Send some bytes, read what comes back, and hang up."""
    host, _, port = server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    writer.write(sent.replace(b"TOKEN", server.loopback_token.encode()))
    await asyncio.wait([asyncio.ensure_future(reader.read(64))], timeout=0.05)
    writer.transport.abort()


async def all_closed() -> None:
    """Both ends have seen the end of every connection, or ten seconds have passed."""
    for _ in range(100):
        await asyncio.sleep(0.1)
        if not live(*CONNECTIONS):
            return


def test_memory_of_a_closed_connection_is_freed(tmp_path: Path) -> None:
    uvloop.run(connections_come_and_go(tmp_path))  # as servers run: the TLS of asyncio itself leaves cycles behind


async def connections_come_and_go(directory: Path) -> None:
    async with apiserver(ApiServerConfig(directory, port=0, store="memory"), alone=True) as server:
        assert server.certificates is not None
        access = Access(server.url, ca=server.certificates.ca.read_bytes(), token=server.loopback_token)
        context = ssl.create_default_context(cafile=str(server.certificates.ca))

        async def everybody() -> None:
            for act in (short_command, broken_off_watch):
                await act(connect(access, SystemClock()))
            head = b" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer TOKEN\r\n"
            for sent in (
                b"GET /api/v1/pods?watch=1" + head + b"\r\n",
                b"GET /api/v1/po",
                b"\x00garbage\r\n\r\n",
                b"GET /version HTTP/1.1\r\n\r\n",
                b"POST /api/v1/namespaces/default/pods" + head + b"Content-Length: 999999999\r\n\r\n",
                b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer none\r\n\r\n",
            ):
                await raw(server, context, sent)
            await raw(server, None, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

        await everybody()
        await all_closed()
        with collector_off():
            tasks, before = len(asyncio.all_tasks()), live(RequestContext, Request, Watch)
            for _ in range(3):
                await everybody()
            await all_closed()
            assert live(*CONNECTIONS) == {}
            assert live(RequestContext, Request, Watch) == before and len(asyncio.all_tasks()) < tasks + 3
