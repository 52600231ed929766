"""Groups that another server answers."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import orjson
import pytest
from front_door import LIMITED_TOKEN, FrontDoor, settle
from mutation_detector import MutationDetector

from setpoint.apiserver.far_server import FarReply, FarServer, FarServerProblem
from setpoint.apiserver.http.message import ObjectRequest, ObjectResponse, Peer, Request, Response, StreamResponse
from setpoint.apiserver.upkeep.api_services import ApiServices
from setpoint.cluster.streaming import sender

GROUP, PATH = "far.example.com", "/apis/far.example.com/v1"
SERVICES, SLICES = "/api/v1/namespaces/default/services", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
LEGACY = {
    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/v1",
    "resources": [
        {"name": "stars", "singularName": "star", "namespaced": True, "kind": "Star", "verbs": ["get", "list"]},
        {"name": "stars/status", "singularName": "", "namespaced": True, "kind": "Star", "verbs": ["get"]},
    ],
}  # fmt: skip
STAR = "com.example.far.v1.Star"
OPENAPI = {"openapi": "3.0.0", "paths": {f"{PATH}/stars": {}}, "components": {"schemas": {STAR: {}}}}
SWAGGER = {"swagger": "2.0", "paths": {f"{PATH}/stars": {"get": {}}}, "definitions": {STAR: {}}}


class Far:
    """A server with one kind."""

    def __init__(self) -> None:
        self.asked: list[tuple[FarServer, Request]] = []
        self.problem = ""
        self.status = 200

    async def ask(self, server: FarServer, request: Request, timeout: float) -> FarReply:
        if self.problem:
            raise FarServerProblem(self.problem)
        self.asked.append((server, request))
        answer = {"kind": "StarList", "items": [], "path": request.path, "query": request.query}
        watched = b'{"type":"ADDED","object":{"kind":"Star","metadata":{"name":"a"}}}\n'
        body = watched if "watch=" in request.query else orjson.dumps(answer)

        async def pieces() -> AsyncGenerator[bytes, None]:
            yield body[:9]
            yield body[9:]

        return StreamResponse(self.status, [("Content-Type", "application/json")], sender(pieces()))

    async def post(self, server: FarServer, request: Request, timeout: float) -> Response:
        if self.problem:
            raise FarServerProblem(self.problem)
        self.asked.append((server, request))
        found = {PATH: LEGACY, f"/openapi/v3{PATH}": OPENAPI, "/openapi/v2": SWAGGER}.get(request.path)
        return Response(404 if found is None else self.status, orjson.dumps(found or {}))


@pytest.fixture
def far() -> Far:
    return Far()


@pytest.fixture
async def door(
    mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture, far: Far
) -> AsyncIterator[FrontDoor]:
    opened = await FrontDoor.open(servers=far)
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
        "group": GROUP, "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 10,
        "service": {"namespace": "default", "name": "far"}, "caBundle": b64encode(b"pem").decode(),
    }  # fmt: skip
    await opened.make(API_SERVICES, {"metadata": {"name": f"v1.{GROUP}"}, "spec": spec})
    yield opened
    await opened.close()


async def check(door: FrontDoor) -> dict[str, Any]:
    """One look at the server behind the APIService; its condition after that."""
    await ApiServices(door.api, door.api.probe).sync(f"v1.{GROUP}")
    await settle()
    found = (await door.get(f"{API_SERVICES}/v1.{GROUP}")).json["status"]["conditions"][0]
    return {name: found[name] for name in ("status", "reason", "message")}


async def test_a_server_that_was_not_found_yet_is_unavailable(door: FrontDoor, far: Far) -> None:
    reply = await door.get(f"{PATH}/namespaces/default/stars")
    assert (reply.status, reply.body) == (503, b"service unavailable\n")
    assert GROUP not in {group["name"] for group in (await door.get("/apis")).json["groups"]}
    far.problem = "dial tcp 10.1.1.2:8443: connect: connection refused"
    url = f"https://far.default.svc:443{PATH}"
    assert await check(door) == {
        "status": "False",
        "reason": "FailedDiscoveryCheck",
        "message": f'failing or missing response from {url}: Get "{url}": {far.problem}',
    }
    far.problem, far.status = "", 500
    assert (await check(door))["message"] == f"failing or missing response from {url}: bad status from {url}: 500"


async def test_requests_are_handed_on_with_the_users_name(door: FrontDoor, far: Far) -> None:
    assert await check(door) == {"status": "True", "reason": "Passed", "message": "all checks passed"}
    headers = {"x-remote-user": "root", "x-remote-extra-a": "b", "accept": "application/json", "x-more": "yes"}
    reply = await door.get(f"{PATH}/namespaces/default/stars?limit=5", headers=headers)
    assert (reply.status, reply.json["query"]) == (200, "limit=5")
    server, request = far.asked[-1]
    assert (server.host, server.port, server.name, server.authority) == ("10.1.1.2", 8443, "far.default.svc", b"pem")
    assert request.headers["x-remote-user"] == "admin"
    assert request.repeated["x-remote-group"] == ["system:masters", "system:authenticated"]
    assert request.headers["x-more"] == "yes"
    assert not {"authorization", "x-remote-extra-a"} & set(request.headers)
    watcher = await door.watch(f"{PATH}/namespaces/default/stars")
    await settle()
    assert watcher.summary == [("ADDED", "a")]


async def test_who_may_not_does_not_get_there(door: FrontDoor, far: Far) -> None:
    await check(door)
    asked = len(far.asked)
    reply = await door.get(f"{PATH}/namespaces/default/stars", token=LIMITED_TOKEN)
    assert (reply.status, reply.json["details"]["group"]) == (403, GROUP)
    assert len(far.asked) == asked


async def test_redirects_are_not_passed_on(door: FrontDoor, far: Far) -> None:
    """CVE-2022-3172."""
    await check(door)
    far.status = 302
    reply = await door.get(f"{PATH}/namespaces/default/stars")
    assert (reply.status, reply.body) == (
        502, b"the backend attempted to redirect this request, which is not permitted\n",
    )  # fmt: skip


async def test_its_documents_are_shown_with_ours(door: FrontDoor, far: Far) -> None:
    await check(door)
    assert (await door.get(f"/apis/{GROUP}")).json["preferredVersion"] == {
        "groupVersion": f"{GROUP}/v1",
        "version": "v1",
    }
    assert (await door.get(PATH)).json["path"] == PATH  # it says itself which resources it has
    accept = {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    group = (await door.get("/apis", headers=accept)).json["items"][-1]
    assert (group["metadata"]["name"], group["versions"][0]["freshness"]) == (GROUP, "Current")
    star = group["versions"][0]["resources"][0]
    assert (star["resource"], star["scope"], star["subresources"][0]["subresource"]) == (
        "stars",
        "Namespaced",
        "status",
    )
    assert f"apis/{GROUP}/v1" in (await door.get("/openapi/v3")).json["paths"]
    assert (await door.get(f"/openapi/v3/apis/{GROUP}/v1")).json == OPENAPI
    merged = (await door.get("/openapi/v2")).json
    assert f"{PATH}/stars" in merged["paths"]
    assert STAR in merged["definitions"]
    far.problem = "gone"
    await check(door)
    stale = (await door.get("/apis", headers=accept)).json["items"][-1]
    assert stale["versions"][0]["freshness"] == "Stale"
    await door.delete(f"{API_SERVICES}/v1.{GROUP}")
    await settle()
    assert (await door.get(f"/apis/{GROUP}")).status == 404
    assert f"apis/{GROUP}/v1" not in (await door.get("/openapi/v3")).json["paths"]


async def test_components_of_our_own_process_get_objects(door: FrontDoor, far: Far) -> None:
    await check(door)
    headers = {"authorization": "Bearer admin-token-of-the-tests"}
    request = ObjectRequest("GET", f"{PATH}/stars", "", headers, None, Peer())
    answer = await door.api.handle(request)
    assert isinstance(answer, ObjectResponse)
    assert answer.value["kind"] == "StarList"
