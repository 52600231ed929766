"""Metrics of simulated nodes, and their extended resources."""

from __future__ import annotations

from setpoint.client.resources import builtin
from setpoint.testing import VirtualCluster, virtual

NODES, PODS = builtin("nodes"), builtin("pods")


async def read(cluster: VirtualCluster, path: str) -> str:
    reply = await cluster.client.sender.transport.request(
        "GET", f"/api/v1/nodes/node-1/proxy{path}", "", [("accept", "text/plain")], b""
    )
    assert reply.status == 200, (path, bytes(reply.body))
    return bytes(reply.body).decode()


@virtual(nodes=1)
async def test_metrics_are_those_of_a_kubelet(cluster: VirtualCluster) -> None:
    probe = {"httpGet": {"port": 80}, "periodSeconds": 5}
    limits = {"limits": {"cpu": "500m", "memory": "64Mi"}}
    container = {"name": "c", "image": "nginx", "readinessProbe": probe, "resources": limits}
    done = {"name": "done", "image": "busybox", "command": ["true"]}
    await cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"containers": [container], "initContainers": [done]},
        }
    )
    await cluster.sleep(22)
    own = await read(cluster, "/metrics")
    assert "# TYPE kubelet_running_pods gauge\nkubelet_running_pods 1\n" in own
    assert 'kubelet_running_containers{container_state="running"} 1\n' in own
    assert 'kubelet_running_containers{container_state="exited"} 1\n' in own
    assert 'kubelet_node_name{node="node-1"} 1\n' in own
    usage = await read(cluster, "/metrics/cadvisor")
    pod = await cluster.client.get(PODS, "web", "default")
    identity = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    labels = (
        f'container="c",id="/kubepods/pod{pod["metadata"]["uid"]}/{identity}",image="docker.io/library/nginx:latest",'
        f'name="{identity}",namespace="default",pod="web"'
    )
    assert f"container_spec_memory_limit_bytes{{{labels}}} 67108864\n" in usage
    assert f"container_spec_cpu_quota{{{labels}}} 50000\n" in usage
    assert f'container_cpu_usage_seconds_total{{{labels},cpu="total"}} ' in usage
    assert "machine_memory_bytes{" in usage and "} 34359738368\n" in usage
    resource = await read(cluster, "/metrics/resource")
    assert 'container_start_time_seconds{container="c",namespace="default",pod="web"} ' in resource
    probes = await read(cluster, "/metrics/probes")
    uid = pod["metadata"]["uid"]
    label = f'container="c",namespace="default",pod="web",pod_uid="{uid}",probe_type="Readiness",result="successful"'
    assert f"prober_probe_total{{{label}}} 5\n" in probes
    reply = await cluster.client.sender.transport.request("GET", "/api/v1/nodes/node-1/proxy/metrics/no", "", [], b"")
    assert reply.status == 404


async def patch_capacity(cluster: VirtualCluster, **amounts: str | None) -> None:
    await cluster.client.patch(
        NODES,
        "node-1",
        {"status": {"capacity": {f"example.com/{name}": value for name, value in amounts.items()}}},
        subresource="status",
    )


@virtual(nodes=1)
async def test_extended_resources_become_allocatable(cluster: VirtualCluster) -> None:
    await patch_capacity(cluster, dongle="4", cable="2")
    await cluster.sleep(21)
    status = (await cluster.client.get(NODES, "node-1"))["status"]
    assert (status["allocatable"]["example.com/dongle"], status["allocatable"]["example.com/cable"]) == ("4", "2")
    resources = {"limits": {"example.com/dongle": "3"}}
    await cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "nginx", "resources": resources}]},
        }
    )
    await patch_capacity(cluster, cable=None)
    await cluster.sleep(310)
    status = (await cluster.client.get(NODES, "node-1"))["status"]
    assert status["capacity"] == status["allocatable"]
    assert status["capacity"]["example.com/dongle"] == "4" and "example.com/cable" not in status["capacity"]
    assert (await cluster.client.get(PODS, "p", "default"))["status"]["phase"] == "Running"
    for state in ("stopped", None):
        annotations = {"simulate.setpoint.dev/state": state}
        await cluster.client.patch(NODES, "node-1", {"metadata": {"annotations": annotations}})
        await cluster.sleep(20)
    status = (await cluster.client.get(NODES, "node-1"))["status"]
    assert status["allocatable"]["example.com/dongle"] == "4", "a restart changes nothing"


@virtual(nodes=1)
async def test_a_node_corrects_native_resources(cluster: VirtualCluster) -> None:
    await cluster.client.patch(NODES, "node-1", {"status": {"capacity": {"cpu": "1"}}}, subresource="status")
    await cluster.sleep(310)
    assert (await cluster.client.get(NODES, "node-1"))["status"]["capacity"]["cpu"] == "8"
