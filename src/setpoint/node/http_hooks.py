"""Requests that the kubelet makes itself: hooks, and the ports they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from setpoint.node.runtime.interface import NoSuchContainer
from setpoint.node.runtime.web import WebRequest

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker

Obj = Mapping[str, Any]


def answered(worker: PodWorker, container: Obj, hook: Obj) -> bool:
    """Whether the request was answered; it is taken to be where nobody knows what is there."""
    own = worker.situation.pod_ips[0] if worker.situation.pod_ips else ""
    path, _, query = str(hook.get("path") or "/").partition("?")
    tls = hook.get("scheme") == "HTTPS"
    try:
        port = port_number(container, hook.get("port"))
        found = worker.tools.runtime.reach(hook.get("host") or own, WebRequest(port, path, query, "GET", tls))
    except NoSuchContainer:
        return True
    return found is not None and 200 <= found.status < 400


def port_number(container: Obj, wanted: Any) -> int:
    if isinstance(wanted, int):
        return wanted
    ports = container.get("ports") or ()
    named = next((each["containerPort"] for each in ports if each.get("name") == wanted), None)
    if named is not None:
        return int(named)
    return int(wanted) if str(wanted).isdigit() else 80
