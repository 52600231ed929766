"""Format a probe as one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from setpoint.meta.goformat import plain

Item = Mapping[str, Any]

_SAFE_IN_PATH = "$&+,/:;=@"
_SAFE_IN_HOST = "!$&'()*+,;=:[]<>\""


def probe_text(probe: Item, minor: int) -> str:
    marks = ("successThreshold", "failureThreshold") if minor >= 37 else ("#success", "#failure")
    times = (
        f"delay={probe.get('initialDelaySeconds', 0)}s timeout={probe.get('timeoutSeconds', 0)}s "
        f"period={probe.get('periodSeconds', 0)}s {marks[0]}={probe.get('successThreshold', 0)} "
        f"{marks[1]}={probe.get('failureThreshold', 0)}"
    )
    return f"{_action(probe)} {times}"


def _action(probe: Item) -> str:
    if probe.get("exec") is not None:
        return f"exec {plain(probe['exec'].get('command') or [])}"
    if probe.get("httpGet") is not None:
        return f"http-get {_address(probe['httpGet'])}"
    if probe.get("tcpSocket") is not None:
        socket = probe["tcpSocket"]
        return f"tcp-socket {socket.get('host', '')}:{socket.get('port', 0)}"
    if probe.get("grpc") is not None:
        call = probe["grpc"]
        return f"grpc <pod>:{call.get('port', 0)} {call.get('service') or ''}"
    return "unknown"


def _address(get: Item) -> str:
    host, port = get.get("host", ""), str(get.get("port", 0))
    if port:
        host = f"[{host}]:{port}" if ":" in host or "%" in host else f"{host}:{port}"
    path = quote(get.get("path", ""), safe=_SAFE_IN_PATH)
    if path and host and not path.startswith("/"):
        path = "/" + path
    scheme = get.get("scheme", "").lower()
    return f"{scheme}:" * bool(scheme) + f"//{quote(host, safe=_SAFE_IN_HOST)}{path}"
