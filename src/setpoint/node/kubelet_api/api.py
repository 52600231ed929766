"""Routes requests by their path to the handlers of the kubelet's API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from setpoint.meta.clock import Clock
from setpoint.node.kubelet_api import metrics, node_info
from setpoint.node.kubelet_api.interface import (
    BufferedResponse,
    KubeletApiError,
    NodeHost,
    NodeRequest,
    NodeResponse,
)
from setpoint.node.kubelet_api.logs import container_logs
from setpoint.node.kubelet_api.port_forward import port_forward
from setpoint.node.kubelet_api.remote_command import attach_to_container, exec_in_container

Handler = Callable[[NodeRequest, NodeHost, Clock, list[str]], Awaitable[NodeResponse]]

_ROUTES: dict[tuple[str, int], Handler] = {
    ("containerLogs", 3): container_logs,
    ("exec", 3): exec_in_container,
    ("attach", 3): attach_to_container,
    ("portForward", 2): port_forward,
    ("healthz", 0): node_info.healthz,
    ("pods", 0): node_info.pods,
    ("runningpods", 0): node_info.running_pods,
    ("stats", 1): node_info.summary,
    ("configz", 0): node_info.configz,
    ("checkpoint", 3): node_info.checkpoint,
    ("metrics", 0): metrics.metrics,
    ("metrics", 1): metrics.metrics,
}
"""Handlers by the first segment of the path and the number of segments that follow."""


def _is_served(first: str, rest: list[str]) -> bool:
    return rest == ["summary"] if first == "stats" else first != "metrics" or metrics.is_served(rest)


class KubeletApi:
    """The request handler of the kubelet's API for one or more nodes."""

    def __init__(self, host: NodeHost, clock: Clock) -> None:
        self._host = host
        self._clock = clock

    async def handle(self, request: NodeRequest) -> NodeResponse:
        first, *rest = request.path.strip("/").split("/")
        handler = node_info.node_logs if first == "logs" else _ROUTES.get((first, len(rest)))
        if handler is None or not _is_served(first, rest):
            return BufferedResponse(404, b"404 page not found\n")
        try:
            return await handler(request, self._host, self._clock, rest)
        except KubeletApiError as error:
            return BufferedResponse(error.status, error.text.encode())
