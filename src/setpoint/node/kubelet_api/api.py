"""From the path of a request to the one who answers it."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.meta.clock import Clock
from setpoint.node.kubelet_api import metrics, stats
from setpoint.node.kubelet_api.commands import attach_to_container, exec_in_container
from setpoint.node.kubelet_api.container_logs import container_logs
from setpoint.node.kubelet_api.host import NodeHost
from setpoint.node.kubelet_api.messages import NodeAnswer, NodeRequest, Refused, Whole
from setpoint.node.kubelet_api.port_forwarding import port_forward

Answerer = Callable[[NodeRequest, NodeHost, Clock, list[str]], NodeAnswer]

_ROUTES: dict[tuple[str, int], Answerer] = {
    ("containerLogs", 3): container_logs,
    ("exec", 3): exec_in_container,
    ("attach", 3): attach_to_container,
    ("portForward", 2): port_forward,
    ("healthz", 0): stats.healthz,
    ("pods", 0): stats.pods,
    ("stats", 1): stats.summary,
    ("metrics", 0): metrics.metrics,
    ("metrics", 1): metrics.metrics,
}
"""By the first part of the path and how many follow."""


def _is_served(first: str, rest: list[str]) -> bool:
    return rest == ["summary"] if first == "stats" else first != "metrics" or metrics.served(rest)


class KubeletApi:
    def __init__(self, host: NodeHost, clock: Clock) -> None:
        self._host = host
        self._clock = clock

    def handle(self, request: NodeRequest) -> NodeAnswer:
        first, *rest = request.path.strip("/").split("/")
        answerer = _ROUTES.get((first, len(rest)))
        if answerer is None or not _is_served(first, rest):
            return Whole(404, b"404 page not found\n")
        try:
            return answerer(request, self._host, self._clock, rest)
        except Refused as error:
            return Whole(error.status, error.text.encode())
