"""`/proxy` of nodes, Pods and Services."""

from __future__ import annotations

import json

from setpoint.testing import VirtualCluster, virtual


async def read(cluster: VirtualCluster, path: str, *headers: tuple[str, str]) -> tuple[int, str]:
    reply = await cluster.client.sender.transport.request("GET", path, "", list(headers), b"")
    body = reply.body.decode()
    return reply.status, json.loads(body)["message"] if reply.status >= 400 and body.startswith("{") else body


async def web(cluster: VirtualCluster) -> None:
    container = {"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}
    meta = {"name": "web", "namespace": "default", "labels": {"app": "web"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
    await cluster.client.create(pod)
    for name, selector in (("web", {"app": "web"}), ("empty", {"app": "none"})):
        spec = {"selector": selector, "ports": [{"name": "http", "port": 8080, "targetPort": 80}]}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}}
        await cluster.client.create({**service, "spec": spec})
    await cluster.sleep(12)


@virtual(nodes=2)
async def test_the_kubelet_endpoints_of_a_node(cluster: VirtualCluster) -> None:
    await web(cluster)
    pod = await cluster.client.get(("v1", "Pod"), "web", "default")
    here = pod["spec"]["nodeName"]
    other = "node-2" if here == "node-1" else "node-1"
    assert await read(cluster, f"/api/v1/nodes/{here}/proxy/healthz") == (200, "ok")
    assert await read(cluster, f"/api/v1/nodes/https:{here}:10250/proxy/healthz") == (200, "ok")
    for node, names in ((here, ["web"]), (other, [])):
        _, body = await read(cluster, f"/api/v1/nodes/{node}/proxy/pods")
        assert [each["metadata"]["name"] for each in json.loads(body)["items"]] == names
        _, body = await read(cluster, f"/api/v1/nodes/{node}/proxy/stats/summary")
        summary = json.loads(body)
        assert summary["node"]["nodeName"] == node
        assert [each["podRef"]["name"] for each in summary["pods"]] == names
    text = ("accept", "text/plain;version=0.0.4")
    _, body = await read(cluster, f"/api/v1/nodes/{here}/proxy/metrics/resource", text)
    assert 'container_memory_working_set_bytes{container="c",namespace="default",pod="web"} 16777216\n' in body
    assert "# TYPE pod_cpu_usage_seconds_total counter\n" in body
    assert await read(cluster, f"/api/v1/nodes/{here}/proxy/nothing") == (404, "404 page not found\n")
    assert (await read(cluster, f"/api/v1/nodes/{here}:22/proxy/healthz"))[0] == 400
    assert await read(cluster, "/api/v1/nodes/none/proxy/healthz") == (404, 'nodes "none" not found')


@virtual(nodes=1)
async def test_servers_behind_pods_and_services(cluster: VirtualCluster) -> None:
    await web(cluster)
    base = "/api/v1/namespaces/default"
    for path in ("pods/web", "pods/http:web:80", "services/web", "services/web:http", "services/http:web:8080"):
        status, text = await read(cluster, f"{base}/{path}/proxy/index.html")
        assert (status, "Welcome to nginx!" in text) == (200, True), (path, text)
    status, text = await read(cluster, f"{base}/pods/web:81/proxy/")
    assert status == 503 and ":81: connect: connection refused" in text and "simulated" in text
    assert await read(cluster, f"{base}/services/empty/proxy/") == (503, 'no endpoints available for service "empty"')
    assert (await read(cluster, f"{base}/services/web:other/proxy/"))[0] == 503
    assert (await read(cluster, f"{base}/pods/none/proxy/"))[0] == 404
    for port, code in (("65536", 503), ("9" * 5000, 503), ("%C2%B2", 400), ("-1", 400)):
        assert (await read(cluster, f"{base}/pods/web:{port}/proxy/"))[0] == code, port
