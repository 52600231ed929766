"""Logs among the findings: read by ordinary requests with the rights of the asker, in bounded time and size."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from audit_harness import audit
from server_harness import LIMITED_TOKEN, ServerHarness, settle

from setpoint.apiserver.node_connection import NodeUnreachable
from setpoint.meta.objects import Obj
from setpoint.wire.message import HttpAnswer, Peer, Request, Response, StreamResponse, StreamWriter

PODS = "/api/v1/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
WHY = "/setpoint/v1/why?resource=pods&namespace=default&name=p"
TERMINATED = {"exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}


class Kubelet:
    """A node that answers requests for logs in this way."""

    def __init__(self) -> None:
        self.answer: Callable[[Request], Awaitable[HttpAnswer]] = self.ends
        self.seen: list[Request] = []

    async def ends(self, request: Request) -> HttpAnswer:
        return Response(200, b"one\ntwo\n")

    async def request_node(self, node: Obj, request: Request) -> HttpAnswer:
        self.seen.append(request)
        return await self.answer(request)

    def request_pod(self, pod: Obj, port: int, tls: bool, request: Request) -> Response | None:
        raise LookupError


@pytest.fixture
async def kubelet(harness: ServerHarness) -> Kubelet:
    """A node with a Pod whose container keeps exiting."""
    kubelet = Kubelet()
    harness.api.parts.nodes.connect(lambda name: name == "n1", kubelet)
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    await harness.make("/api/v1/nodes", {"metadata": {"name": "n1"}})
    assert (await harness.patch("/api/v1/nodes/n1/status", {"status": ready})).status == 200
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}
    await harness.make(PODS, {"metadata": {"name": "p"}, "spec": spec})
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    container = {"name": "c", "image": "i", "imageID": "", "restartCount": 2, "ready": False, "state": state}
    container["lastState"] = {"terminated": TERMINATED}
    status = {"status": {"phase": "Running", "containerStatuses": [container]}}
    assert (await harness.patch(f"{PODS}/p/status", status)).status == 200
    return kubelet


async def finding(harness: ServerHarness, **how: Any) -> dict[str, Any]:
    reply = await harness.get(WHY, **how)
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json["findings"][0]
    assert found["rule"] == "crash"
    return found


async def test_a_log_is_requested_like_any_other(harness: ServerHarness, kubelet: Kubelet) -> None:
    sink = audit(harness, {"level": "Metadata"})
    harness.peer = Peer("10.0.0.7", 1)
    found = await finding(harness, headers={"user-agent": "kubectl/v1"})
    assert found["log"]["lines"] == ["one", "two"] and found["help"] == ["`setpoint logs --previous p`"]
    (request,) = kubelet.seen
    assert (request.method, request.path) == ("GET", "/containerLogs/default/p/c")
    assert request.query == "previous=true&tailLines=5&limitBytes=4096"
    (event,) = [each for each in sink.drain() if each["requestURI"].startswith(PODS) and each["stage"][-1] == "e"]
    assert event["verb"] == "get" and event["objectRef"]["subresource"] == "log"
    assert (event["user"]["username"], event["userAgent"], event["sourceIPs"]) == ("admin", "kubectl/v1", ["10.0.0.7"])
    assert event["responseStatus"]["code"] == 200
    assert (await harness.get(f"{WHY}&logs=false")).json["findings"][0]["log"]["lines"] == []
    assert len(kubelet.seen) == 1


async def test_the_rights_are_those_of_the_asker(harness: ServerHarness, kubelet: Kubelet) -> None:
    rules: list[dict[str, Any]] = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"nonResourceURLs": ["/setpoint/v1/why"], "verbs": ["get"]},
    ]
    await harness.make(f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": rules})
    subject = {"kind": "User", "name": "limited", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "r"}, "subjects": [subject], "roleRef": role}
    await harness.make(f"{RBAC}/clusterrolebindings", binding)
    refused = ["the right to get pods/log, to see the end of its log"]
    sink = audit(harness, {"level": "Metadata"})
    impersonating = {"impersonate-user": "limited"}
    for how in ({"token": LIMITED_TOKEN}, {"headers": impersonating}):
        found = await finding(harness, **how)
        assert (found["log"]["lines"], found["help"]) == ([], refused)
    assert not kubelet.seen
    events = [each for each in sink.drain() if each["requestURI"].startswith(PODS) and each["stage"][-1] == "e"]
    assert [each["responseStatus"]["code"] for each in events] == [403, 403]
    authors = [(each["user"]["username"], each.get("impersonatedUser", {}).get("username")) for each in events]
    assert authors == [("limited", None), ("admin", "limited")]
    # With the right, both see it.
    rules[0]["resources"] = ["pods", "pods/log"]
    await harness.put(f"{RBAC}/clusterroles/r", {"metadata": {"name": "r"}, "rules": rules})
    for how in ({"token": LIMITED_TOKEN}, {"headers": impersonating}):
        assert (await finding(harness, **how))["log"]["lines"] == ["one", "two"]


async def test_a_silent_node_delays_the_answer_by_a_second(harness: ServerHarness, kubelet: Kubelet) -> None:
    async def never(request: Request) -> HttpAnswer:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    kubelet.answer = never
    asking = asyncio.ensure_future(finding(harness))
    await harness.clock.advance(0.9)
    assert kubelet.seen and not asking.done()
    await harness.clock.advance(0.2)
    await settle()
    found = await asking
    assert found["log"]["lines"] == [] and found["evidence"][-1] == "its node did not send its log within 1 s"


async def test_a_node_that_sends_without_end_is_read_up_to_the_limit(harness: ServerHarness, kubelet: Kubelet) -> None:
    async def endless(request: Request) -> HttpAnswer:
        async def run(writer: StreamWriter) -> None:
            while True:
                writer.write(b"x" * 1000 + b"\n")
                await asyncio.sleep(0)

        return StreamResponse(200, [], run)

    kubelet.answer = endless
    lines = (await finding(harness))["log"]["lines"]
    assert [len(each) for each in lines] == [240] * 4 + [95]
    assert all(each.endswith("...") for each in lines)


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_without_a_log_the_answer_is_as_before(harness: ServerHarness, kubelet: Kubelet, status: int) -> None:
    async def refuse(request: Request) -> HttpAnswer:
        return Response(status, b"previous terminated container not found")

    async def unreachable(request: Request) -> HttpAnswer:
        raise NodeUnreachable("no route")

    for kubelet.answer in (refuse, unreachable):
        found = await finding(harness)
        assert found["log"]["lines"] == [] and found["help"] == ["`setpoint logs --previous p`"]
        assert not any("log" in each for each in found["evidence"])
