"""Descriptions of Pods and their events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from command_line import Typed
from local_server import LocalServer

from setpoint.cli.describe import DescribeContext, describe
from setpoint.client.resources import builtin

Described = Callable[..., Awaitable[str]]

BARE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "nginx"}]},
}


async def test_a_running_pod(described: Described) -> None:
    pod = {
        **BARE,
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "nodeName": "node-1",
            "containers": [
                {
                    "name": "c",
                    "image": "nginx",
                    "ports": [{"containerPort": 80, "name": "http"}],
                    "env": [{"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                }
            ],
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
        },
        "status": {
            "phase": "Running",
            "hostIP": "192.0.2.7",
            "podIP": "10.0.0.7",
            "podIPs": [{"ip": "10.0.0.7"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {
                    "name": "c",
                    "image": "nginx",
                    "imageID": "i",
                    "containerID": "x",
                    "ready": True,
                    "restartCount": 1,
                    "state": {"running": {"startedAt": "2029-12-31T23:00:00Z"}},
                    "lastState": {
                        "terminated": {
                            "exitCode": 1,
                            "reason": "Error",
                            "startedAt": "2029-12-31T22:00:00Z",
                            "finishedAt": "2029-12-31T22:59:00Z",
                        }
                    },
                }
            ],
        },
    }
    assert await described(pod) == (
        "Name:         web\n"
        "Namespace:    default\n"
        "Priority:     0\n"
        "Node:         node-1/192.0.2.7\n"
        "Labels:       app=web\n"
        "Annotations:  <none>\n"
        "Status:       Running\n"
        "IP:           10.0.0.7\n"
        "IPs:\n"
        "  IP:  10.0.0.7\n"
        "Containers:\n"
        "  c:\n"
        "    Container ID:   x\n"
        "    Image:          nginx\n"
        "    Image ID:       i\n"
        "    Port:           80/TCP (http)\n"
        "    Host Port:      0/TCP (http)\n"
        "    State:          Running\n"
        "      Started:      Mon, 31 Dec 2029 23:00:00 +0000\n"
        "    Last State:     Terminated\n"
        "      Reason:       Error\n"
        "      Exit Code:    1\n"
        "      Started:      Mon, 31 Dec 2029 22:00:00 +0000\n"
        "      Finished:     Mon, 31 Dec 2029 22:59:00 +0000\n"
        "    Ready:          True\n"
        "    Restart Count:  1\n"
        "    Environment:\n"
        "      ME:    web (v1:metadata.name)\n"
        "    Mounts:  <none>\n"
        "Conditions:\n"
        "  Type    Status\n"
        "  Ready   True \n"
        "Volumes:\n"
        "  scratch:\n"
        "    Type:        EmptyDir (a temporary directory that shares a pod's lifetime)\n"
        "    Medium:      \n"
        "    SizeLimit:   1Gi\n"
        "QoS Class:       BestEffort\n"
        "Node-Selectors:  <none>\n"
        "Tolerations:     node.kubernetes.io/not-ready:NoExecute op=Exists for 300s\n"
        "                 node.kubernetes.io/unreachable:NoExecute op=Exists for 300s\n"
        "Events:          <none>\n"
    )


async def test_a_terminating_pod(typed: Typed, local_server: LocalServer) -> None:
    client = local_server.client
    await client.create({**BARE, "spec": {**BARE["spec"], "nodeName": "node-1"}})
    await client.delete(("v1", "Pod"), "web", "default")
    await local_server.clock.advance(100)
    text = await typed("describe pod web")
    assert "Status:                    Terminating (lasts 70s)\nTermination Grace Period:  30s\n" in text


async def test_the_qos_class_is_computed_if_the_status_has_none(ctx: DescribeContext) -> None:
    pod = {**BARE, "metadata": {**BARE["metadata"], "uid": "u"}}
    assert "QoS Class:        BestEffort\n" in await describe(pod, builtin("pods"), ctx)


async def test_a_scheduling_group(ctx: DescribeContext) -> None:
    pod = {**BARE, "metadata": {**BARE["metadata"], "uid": "u"}}
    pod["spec"] = {**BARE["spec"], "schedulingGroup": {"podGroupName": "pg"}}
    assert "SchedulingGroup:\n  PodGroupName:  pg\n" in await describe(pod, builtin("pods"), ctx)
    assert "SchedulingGroup" not in await describe(pod, builtin("pods"), ctx._replace(minor=35))


def event(name: str, uid: str, **more: Any) -> dict[str, Any]:
    about = {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": "default", "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "type": "Normal",
        "reason": name.title(),
        "message": "  it happened \n",
        **more,
        "involvedObject": {**about, **more.get("involvedObject", {})},
    }


async def test_events_are_in_order_and_of_this_object(
    local_server: LocalServer, ctx: DescribeContext, typed: Typed
) -> None:
    client = local_server.client
    uid = (await client.create(BARE))["metadata"]["uid"]
    hour, day = "2029-12-31T23:00:00Z", "2029-12-31T00:00:00Z"
    for one in (
        event("last", uid, firstTimestamp=hour, lastTimestamp=hour, count=1, source={"component": "kubelet"}),
        event(
            "often",
            uid,
            firstTimestamp=day,
            lastTimestamp="2029-12-31T22:00:00Z",
            count=7,
            involvedObject={"fieldPath": "spec.containers{c}"},
        ),
        event(
            "series",
            uid,
            eventTime="2029-12-31T00:00:00.000000Z",
            action="a",
            reportingComponent="x.y/z",
            reportingInstance="i",
            series={"count": 3, "lastObservedTime": "2029-12-31T23:59:00.000000Z"},
        ),
        event("untimed", uid),
        event("unrelated", "11111111-2222-3333-4444-555555555555"),
    ):
        await client.create(one)
    text = await typed("describe pod web")
    assert text.partition("Events:\n")[2] == (
        "  Type    Reason   Age                 From     Message\n"
        "  ----    ------   ----                ----     -------\n"
        "  Normal  Series   60s (x3 over 24h)   x.y/z    it happened\n"
        "  Normal  Untimed  <unknown>                    it happened\n"
        "  Normal  Often    120m (x7 over 24h)           spec.containers{c}: it happened\n"
        "  Normal  Last     60m                 kubelet  it happened\n"
    )
    assert "Events" not in await typed("describe pod web --show-events=false")


@pytest.mark.parametrize("minor", [33, 37])
async def test_events_of_older_servers(described: Described, ctx: DescribeContext, minor: int) -> None:
    container = {
        "name": "c",
        "image": "x",
        "ports": [{"containerPort": 80, "name": "http"}],
        "livenessProbe": {"exec": {"command": ["a"]}},
    }
    text = await described({**BARE, "spec": {"containers": [container]}}, ctx._replace(minor=minor))
    assert ("80/TCP (http)" in text) == (minor == 37)
    assert ("#success=1 #failure=3" in text) == (minor == 33)
