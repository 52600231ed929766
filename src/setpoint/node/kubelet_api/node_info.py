"""`/healthz`, `/pods`, `/runningpods`, `/stats/summary`, `/configz`, `/logs` and `/checkpoint`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import orjson

from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.kubelet_api.interface import (
    JSON,
    BufferedResponse,
    KubeletApiError,
    NodeHost,
    NodeRequest,
    NodeResponse,
)
from setpoint.node.kubelet_api.logs import require_container, require_pod

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


async def healthz(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    return BufferedResponse(200, b"ok")


async def pods(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    return _pod_list([dict(pod) for pod in host.pods_on(requested_node(request))])


async def running_pods(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    """List the Pods with running containers, in the short form of what a container runtime knows of them."""
    found: list[Obj] = []
    for pod in host.pods_on(requested_node(request)):
        running = [each for each in statuses_of(pod) if "running" in (each.get("state") or {})]
        meta = pod["metadata"]
        if running:
            found.append(
                {
                    "metadata": {key: meta[key] for key in ("name", "namespace", "uid")},
                    "spec": {
                        "containers": [
                            {"name": each["name"], "image": each.get("imageID", ""), "resources": {}}
                            for each in running
                        ]
                    },
                    "status": {},
                }
            )
    return _pod_list(found)


def _pod_list(items: list[Obj]) -> NodeResponse:
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
    return BufferedResponse(200, orjson.dumps(body), [JSON])


async def summary(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    return BufferedResponse(200, orjson.dumps(await host.summary(requested_node(request))), [JSON])


async def configz(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    configuration = host.configuration()
    if configuration is None:
        return BufferedResponse(404, b"404 page not found\n")
    return BufferedResponse(200, orjson.dumps({"kubeletconfig": configuration}), [JSON])


async def node_logs(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    """Refuse access to the log files of the machine, as a kubelet does whose system log handler is disabled."""
    return BufferedResponse(405, b"logs endpoint is disabled.\n")


async def checkpoint(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    if request.method != "POST":
        return BufferedResponse(405, b"405: Method Not Allowed")
    namespace, name, container = parts
    pod = require_pod(host, namespace, name)
    require_container(pod, container)
    return BufferedResponse(200, orjson.dumps({"items": list(await host.checkpoint(pod, container))}), [JSON])


def requested_node(request: NodeRequest) -> str:
    """Return the name of the node that the request concerns. Raise KubeletApiError."""
    if not request.node:
        raise KubeletApiError(404, "this endpoint serves several nodes, and the request does not name one")
    return request.node


def statuses_of(pod: Pod) -> Iterator[ObjView]:
    status: ObjView = pod.get("status") or {}
    for field in _STATUSES:
        yield from status.get(field) or ()
