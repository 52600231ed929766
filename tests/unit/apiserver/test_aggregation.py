"""API groups that another server serves."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import orjson
import pytest
from mutation_detector import MutationDetector
from server_harness import LIMITED_TOKEN, ServerHarness, settle

from setpoint.apiserver.remote_servers import RemoteServer, RemoteServerError
from setpoint.apiserver.upkeep.api_services import ApiServices
from setpoint.wire.forwarding import stream_pieces
from setpoint.wire.message import HttpAnswer, ObjectRequest, ObjectResponse, Peer, Request, Response, StreamResponse

GROUP, PATH = "far.example.com", "/apis/far.example.com/v1"
SERVICES, SLICES = "/api/v1/namespaces/default/services", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
LEGACY = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": f"{GROUP}/v1",
    "resources": [
        {"name": "stars", "singularName": "star", "namespaced": True, "kind": "Star", "verbs": ["get", "list"]},
        {"name": "stars/status", "singularName": "", "namespaced": True, "kind": "Star", "verbs": ["get"]},
    ],
}
STAR = "com.example.far.v1.Star"
OPENAPI = {"openapi": "3.0.0", "paths": {f"{PATH}/stars": {}}, "components": {"schemas": {STAR: {}}}}
SWAGGER = {"swagger": "2.0", "paths": {f"{PATH}/stars": {"get": {}}}, "definitions": {STAR: {}}}


class RemoteServerStub:
    """A server with one kind."""

    def __init__(self) -> None:
        self.asked: list[tuple[RemoteServer, Request]] = []
        self.problem = ""
        self.status = 200

    async def forward(self, server: RemoteServer, request: Request, timeout: float) -> HttpAnswer:
        if self.problem:
            raise RemoteServerError(self.problem)
        self.asked.append((server, request))
        answer = {"kind": "StarList", "items": [], "path": request.path, "query": request.query}
        watched = b'{"type":"ADDED","object":{"kind":"Star","metadata":{"name":"a"}}}\n'
        body = watched if "watch=" in request.query else orjson.dumps(answer)

        async def pieces() -> AsyncGenerator[bytes, None]:
            yield body[:9]
            yield body[9:]

        return StreamResponse(self.status, [("Content-Type", "application/json")], stream_pieces(pieces()))

    async def call(self, server: RemoteServer, request: Request, timeout: float) -> Response:
        if self.problem:
            raise RemoteServerError(self.problem)
        self.asked.append((server, request))
        found = {PATH: LEGACY, f"/openapi/v3{PATH}": OPENAPI, "/openapi/v2": SWAGGER}.get(request.path)
        return Response(404 if found is None else self.status, orjson.dumps(found or {}))


@pytest.fixture
def remote() -> RemoteServerStub:
    return RemoteServerStub()


@pytest.fixture
async def harness(
    mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture, remote: RemoteServerStub
) -> AsyncIterator[ServerHarness]:
    opened = await ServerHarness.open(servers=remote)
    port = {"name": "https", "port": 443, "targetPort": 8443}
    await opened.make(SERVICES, {"metadata": {"name": "far"}, "spec": {"ports": [port]}})
    await opened.make(
        SLICES,
        {
            "metadata": {"name": "far-1", "labels": {"kubernetes.io/service-name": "far"}},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": 8443}],
            "endpoints": [
                {"addresses": ["10.1.1.1"], "conditions": {"ready": False}},
                {"addresses": ["10.1.1.2"], "conditions": {"ready": True}},
            ],
        },
    )
    spec = {
        "group": GROUP,
        "version": "v1",
        "groupPriorityMinimum": 2000,
        "versionPriority": 10,
        "service": {"namespace": "default", "name": "far"},
        "caBundle": b64encode(b"pem").decode(),
    }
    await opened.make(API_SERVICES, {"metadata": {"name": f"v1.{GROUP}"}, "spec": spec})
    yield opened
    await opened.close()


async def check(harness: ServerHarness) -> dict[str, Any]:
    """Probe the server behind the APIService once, and return the condition."""
    await ApiServices(harness.api.resources, harness.api.parts.probe).sync(f"v1.{GROUP}")
    await settle()
    found = (await harness.get(f"{API_SERVICES}/v1.{GROUP}")).json["status"]["conditions"][0]
    return {name: found[name] for name in ("status", "reason", "message")}


async def test_a_server_is_unavailable_before_the_first_probe(harness: ServerHarness, remote: RemoteServerStub) -> None:
    reply = await harness.get(f"{PATH}/namespaces/default/stars")
    assert (reply.status, reply.body) == (503, b"service unavailable\n")
    assert GROUP not in {group["name"] for group in (await harness.get("/apis")).json["groups"]}
    remote.problem = "dial tcp 10.1.1.2:8443: connect: connection refused"
    url = f"https://far.default.svc:443{PATH}"
    assert await check(harness) == {
        "status": "False",
        "reason": "FailedDiscoveryCheck",
        "message": f'failing or missing response from {url}: Get "{url}": {remote.problem}',
    }
    remote.problem, remote.status = "", 500
    assert (await check(harness))["message"] == f"failing or missing response from {url}: bad status from {url}: 500"


async def test_requests_are_proxied_with_the_users_name(harness: ServerHarness, remote: RemoteServerStub) -> None:
    assert await check(harness) == {"status": "True", "reason": "Passed", "message": "all checks passed"}
    headers = {"x-remote-user": "root", "x-remote-extra-a": "b", "accept": "application/json", "x-more": "yes"}
    reply = await harness.get(f"{PATH}/namespaces/default/stars?limit=5", headers=headers)
    assert (reply.status, reply.json["query"]) == (200, "limit=5")
    server, request = remote.asked[-1]
    assert (server.host, server.port, server.server_name, server.ca_bundle) == (
        "10.1.1.2",
        8443,
        "far.default.svc",
        b"pem",
    )
    assert request.headers["x-remote-user"] == "admin"
    assert request.repeated["x-remote-group"] == ["system:masters", "system:authenticated"]
    assert request.headers["x-more"] == "yes"
    assert not {"authorization", "x-remote-extra-a"} & set(request.headers)
    watcher = await harness.watch(f"{PATH}/namespaces/default/stars")
    await settle()
    assert watcher.summary == [("ADDED", "a")]


async def test_unauthorized_requests_are_not_proxied(harness: ServerHarness, remote: RemoteServerStub) -> None:
    await check(harness)
    asked = len(remote.asked)
    reply = await harness.get(f"{PATH}/namespaces/default/stars", token=LIMITED_TOKEN)
    assert (reply.status, reply.json["details"]["group"]) == (403, GROUP)
    assert len(remote.asked) == asked


async def test_redirects_are_refused(harness: ServerHarness, remote: RemoteServerStub) -> None:
    """A redirect is not passed on to the client (CVE-2022-3172)."""
    await check(harness)
    remote.status = 302
    reply = await harness.get(f"{PATH}/namespaces/default/stars")
    assert (reply.status, reply.body) == (
        502,
        b"the backend attempted to redirect this request, which is not permitted\n",
    )


async def test_discovery_and_openapi_of_the_server_are_merged(harness: ServerHarness, remote: RemoteServerStub) -> None:
    await check(harness)
    assert (await harness.get(f"/apis/{GROUP}")).json["preferredVersion"] == {
        "groupVersion": f"{GROUP}/v1",
        "version": "v1",
    }
    assert (await harness.get(PATH)).json["path"] == PATH  # it says itself which resources it has
    accept = {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    group = (await harness.get("/apis", headers=accept)).json["items"][-1]
    assert (group["metadata"]["name"], group["versions"][0]["freshness"]) == (GROUP, "Current")
    star = group["versions"][0]["resources"][0]
    assert (star["resource"], star["scope"], star["subresources"][0]["subresource"]) == (
        "stars",
        "Namespaced",
        "status",
    )
    assert f"apis/{GROUP}/v1" in (await harness.get("/openapi/v3")).json["paths"]
    assert (await harness.get(f"/openapi/v3/apis/{GROUP}/v1")).json == OPENAPI
    merged = (await harness.get("/openapi/v2")).json
    assert f"{PATH}/stars" in merged["paths"]
    assert STAR in merged["definitions"]
    remote.problem = "gone"
    await check(harness)
    stale = (await harness.get("/apis", headers=accept)).json["items"][-1]
    assert stale["versions"][0]["freshness"] == "Stale"
    await harness.delete(f"{API_SERVICES}/v1.{GROUP}")
    await settle()
    assert (await harness.get(f"/apis/{GROUP}")).status == 404
    assert f"apis/{GROUP}/v1" not in (await harness.get("/openapi/v3")).json["paths"]


async def test_in_process_clients_get_objects(harness: ServerHarness, remote: RemoteServerStub) -> None:
    await check(harness)
    headers = {"authorization": "Bearer admin-token-of-the-tests"}
    request = ObjectRequest("GET", f"{PATH}/stars", "", headers, None, Peer())
    answer = await harness.api.handle(request)
    assert isinstance(answer, ObjectResponse)
    assert answer.value["kind"] == "StarList"
