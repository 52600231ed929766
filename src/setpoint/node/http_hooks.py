"""Requests that the kubelet makes itself: hooks, and the ports they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from setpoint.node.runtime.network import Failure
from setpoint.node.runtime.web_messages import WebAnswer, WebRequest

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker

Obj = Mapping[str, Any]


def answered(worker: PodWorker, container: Obj, hook: Obj) -> bool:
    """Whether the request was answered; it is taken to be where nobody knows what is there."""
    path, _, query = str(hook.get("path") or "/").partition("?")
    request = WebRequest(port_number(container, hook.get("port")), path, query, "GET", hook.get("scheme") == "HTTPS")
    found = worker.tools.runtime.request(worker.uid, container["name"], hook.get("host") or "", request)
    return found is Failure.CLOSED or (isinstance(found, WebAnswer) and 200 <= found.status < 400)


def port_number(container: Obj, wanted: Any) -> int:
    if isinstance(wanted, int):
        return wanted
    ports = container.get("ports") or ()
    named = next((each["containerPort"] for each in ports if each.get("name") == wanted), None)
    if named is not None:
        return int(named)
    return int(wanted) if str(wanted).isdigit() else 80
