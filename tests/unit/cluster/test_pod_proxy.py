"""Requests through the API server to servers in simulated Pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from setpoint.apiserver.handlers.node_proxy import rewrite_answer, rewrite_html, rewrite_link
from setpoint.node.runtime.images import NGINX_PAGE
from setpoint.testing import VirtualCluster, virtual
from setpoint.wire.message import StreamResponse, StreamWriter

AGNHOST = "registry.k8s.io/e2e-test-images/agnhost:2.62.0"


async def a_pod(cluster: VirtualCluster, name: str, image: str = AGNHOST, **container: Any) -> None:
    meta = {"name": name, "namespace": "default", "labels": {"app": name}}
    spec = {"containers": [{"name": "c", "image": image, **container}]}
    await cluster.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


async def request(cluster: VirtualCluster, what: str, rest: str = "/", method: str = "GET", query: str = "") -> Any:
    path = f"/api/v1/namespaces/default/{what}/proxy{rest}"
    return await cluster.client.sender.transport.request(method, path, query, [], b"")


@virtual(nodes=1)
async def test_servers_answer_through_the_proxy(cluster: VirtualCluster) -> None:
    ports = [{"name": "www", "containerPort": 9376}]
    await a_pod(cluster, "host", args=["serve-hostname"], ports=ports)
    await a_pod(cluster, "web", "nginx")
    env = [{"name": "SERVE_PORT_80", "value": '<a href="/x">here</a>'}, {"name": "SERVE_TLS_PORT_443", "value": "tls"}]
    await a_pod(cluster, "porter", command=["/agnhost", "porter"], env=env)
    await a_pod(cluster, "unknown", "example.com/server")
    service = {"selector": {"app": "host"}, "ports": [{"port": 80, "targetPort": "www"}]}
    await cluster.client.create(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "default"}, "spec": service}
    )
    await cluster.sleep(3)
    for what, expected in (
        ("pods/host", "host"),
        ("pods/host:9376", "host"),
        ("pods/host:www", "host"),
        ("services/s", "host"),
        ("services/s:80", "host"),
        ("pods/https:porter:443", "tls"),
        ("pods/porter", '<a href="/api/v1/namespaces/default/pods/porter/proxy/x">here</a>'),
        ("pods/web", NGINX_PAGE),
    ):
        answer = await request(cluster, what)
        assert (answer.status, bytes(answer.body).decode()) == (200, expected), what
    assert (await request(cluster, "pods/web", "/missing")).status == 404
    answer = await request(cluster, "pods/web", "", query="a=b")
    location = {name.lower(): value for name, value in answer.headers}["location"]
    assert (answer.status, location) == (
        301,
        "/api/v1/namespaces/default/pods/web/proxy/?a=b",
    )
    assert (await request(cluster, "pods/host", "", "POST")).status == 200
    assert (await request(cluster, "pods/host", "", "OPTIONS")).status == 200
    for what, why in (("pods/host:81", b"do not listen there"), ("pods/unknown", b"not known")):
        answer = await request(cluster, what)
        assert answer.status == 503 and why in bytes(answer.body)


@virtual(nodes=2)
async def test_hooks_and_programs_send_requests_to_other_pods(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "server", args=["netexec"], ports=[{"containerPort": 8080}])
    await cluster.sleep(1)
    address = (await cluster.client.get(("v1", "Pod"), "server", "default"))["status"]["podIP"]
    hooks = {
        "postStart": {"httpGet": {"host": address, "port": 8080, "path": "/echo?msg=begun"}},
        "preStop": {"exec": {"command": ["sh", "-c", f"curl -s http://{address}:8080/echo?msg=ending"]}},
    }
    await a_pod(cluster, "client", "nginx", lifecycle=hooks)
    refused = {"postStart": {"httpGet": {"host": address, "port": 9999}}}
    await a_pod(cluster, "refused", "nginx", lifecycle=refused)
    url = f"http://{address}:8080/hostname"
    script = f"wget -qO- {url}; curl -s -o /dev/null -w '%{{http_code}}' {address}:8080/no; curl {address}:1; echo $?"
    dial = f"curl -s 'http://{address}:8080/dial?host={address}&port"
    questions = f"{dial}=8081&protocol=udp&request=hostname&tries=2'; {dial}=1&request=x'; "
    questions += f"echo hostName | nc -w 1 -u {address} 8081; nc -z {address} 8080 && nc -z {address} 9 || echo shut"
    await a_pod(cluster, "dialling", "busybox", command=["sh", "-c", questions])
    await a_pod(cluster, "asking", "busybox", command=["sh", "-c", script])
    await cluster.sleep(2)
    await cluster.client.delete(("v1", "Pod"), "client", "default")
    await cluster.sleep(5)
    path = "/api/v1/namespaces/default/pods/{}/log"
    output = (await cluster.client.sender.request("GET", path.format("server"))).body.decode()
    assert "GET /echo?msg=begun" in output and "GET /echo?msg=ending" in output
    output = (await cluster.client.sender.request("GET", path.format("asking"))).body.decode()
    answers = (await cluster.client.sender.request("GET", path.format("dialling"))).body.decode()
    refused_there = f'{{"errors":["dial tcp {address}:1: connect: connection refused"]}}'
    shut = f"nc: {address} ({address}:9): Connection refused\nshut\n"
    assert answers == f'{{"responses":["server","server"]}}{refused_there}server{shut}'
    failure = f"curl: (7) Failed to connect to {address} port 1 after 0 ms: Could not connect to server\n"
    assert output == f"server404{failure}7\n"
    assert ("Warning", "FailedPostStartHook", "PostStartHook failed") in await cluster.events("refused")


@virtual(nodes=2)
async def test_a_server_logs_the_request_of_a_hook(cluster: VirtualCluster) -> None:
    await a_pod(cluster, "server", args=["nettest"], ports=[{"containerPort": 8080}])
    await cluster.sleep(1)
    address = (await cluster.client.get(("v1", "Pod"), "server", "default"))["status"]["podIP"]
    command = ["wget", "-O-", '--post-data={"Source": "prestop"}', f"http://{address}:8080/write"]
    await a_pod(
        cluster, "tester", "busybox", command=["sleep", "600"], lifecycle={"preStop": {"exec": {"command": command}}}
    )
    await cluster.sleep(2)
    assert json.loads(bytes((await request(cluster, "pods/server:8080", "/read")).body))["Received"] == {}
    await cluster.client.delete(("v1", "Pod"), "tester", "default")
    await cluster.sleep(2)
    found = json.loads(bytes((await request(cluster, "pods/server:8080", "/read")).body))
    assert (found["Hostname"], found["Received"], found["Errors"]) == ("server", {"prestop": 1}, [])


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("/x", "/p/x"),
        ("/x/?a=b#c", "/p/x/?a=b#c"),
        ("x", "x"),
        ("/p/x", "/p/x"),
        ("http://other/x", "http://other/x"),
        ("http://here/x", "http://here/p/x"),
        ("mailto:a@b", "mailto:a@b"),
        ("http://[", "http://["),
    ],
)
def test_links_are_rewritten(link: str, expected: str) -> None:
    assert rewrite_link(link, "/p", "here") == expected


class Written:
    """A StreamWriter that collects what is written."""

    buffered = 0

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(data)

    def write_chunks(self, chunks: bytes) -> None:
        raise AssertionError("nothing is encoded")

    async def drained(self) -> None:
        return

    async def closed(self) -> None:
        return


def streamed(headers: dict[str, str], *pieces: bytes) -> StreamResponse:
    async def run(writer: StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)

    return StreamResponse(200, [*headers.items()], run)


async def written(answer: object) -> bytes:
    assert isinstance(answer, StreamResponse)
    writer = Written()
    await answer.run(writer)
    return b"".join(writer.pieces)


async def test_links_in_streamed_answers_are_rewritten() -> None:
    page, pieces = {"Content-Type": "text/html; charset=utf-8"}, (b"<a hr", b'ef="/x">', b"here</a>")
    assert await written(rewrite_answer(streamed(page, *pieces), "/p", "here")) == b'<a href="/p/x">here</a>'
    for headers in ({"Content-Type": "text/plain"}, {**page, "Content-Encoding": "gzip"}):
        assert await written(rewrite_answer(streamed(headers, *pieces), "/p", "here")) == b"".join(pieces)
    large = b" " * (1 << 20)
    assert await written(rewrite_answer(streamed(page, *pieces, large), "/p", "here")) == b"".join(pieces) + large
    moved = rewrite_answer(streamed({"Location": "/y"}), "/p", "here")
    assert isinstance(moved, StreamResponse) and moved.headers == [("Location", "/p/y")]


def test_pages_are_served() -> None:
    page = '<p class=a>/x</p><img src=\'/i.png\' alt="/x"/><A HREF=/y>z</a><script src="/s.js" async></script>'
    assert rewrite_html(page, "/p", "here") == (
        '<p class=a>/x</p><img src="/p/i.png" alt="/x"/><A HREF="/p/y">z</a><script src="/p/s.js" async></script>'
    )
