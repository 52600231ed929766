"""Probes of simulated containers: their result follows from annotations, from commands, or from simulated servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from setpoint.meta.objects import ObjView
from setpoint.node.container_ports import resolve_port
from setpoint.node.runtime.interface import NoSuchContainer, ProbeResult
from setpoint.node.runtime.network import PodRequest
from setpoint.node.runtime.servers import SimulatedServers
from setpoint.node.simulation_annotations import simulation_annotation

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_SUCCESS = ProbeResult(True)
ExecSync = Callable[[str, str, Sequence[str], float], tuple[int | None, str]]
"""Executes a command: Pod uid, container, command line and limit in seconds; see `SimulatedRuntime.exec_sync`."""


def simulated_probe(
    uid: str,
    container: ObjView,
    kind: str,
    spec: Mapping[str, Any],
    pod: Pod,
    address: str,
    servers: SimulatedServers,
    exec_sync: ExecSync,
) -> ProbeResult:
    forced = simulation_annotation(pod, kind, container["name"])
    if forced == "true":
        return _SUCCESS
    command = (spec.get("exec") or {}).get("command")
    if command and forced != "false":
        return _exec_probe(uid, container["name"], spec, command, exec_sync)
    if forced == "false":
        return ProbeResult(False, _forced_failure_output(spec, address))
    return _probe_server(uid, container, spec, address, servers)


def _probe_server(
    uid: str, container: ObjView, spec: Mapping[str, Any], address: str, servers: SimulatedServers
) -> ProbeResult:
    http_get, grpc = spec.get("httpGet"), spec.get("grpc")
    target = http_get or grpc
    if not target or target.get("host"):
        return _SUCCESS
    path, _, query = str(target.get("path") or "/").partition("?")
    port = resolve_port(container, target.get("port"))
    request = PodRequest(port, path, query, "GET", target.get("scheme") == "HTTPS")
    status = servers.probe_status(uid, container["name"], request, grpc=bool(grpc))
    if 200 <= status < 400:
        return _SUCCESS
    if status:
        return ProbeResult(False, f"HTTP probe failed with statuscode: {status}")
    if grpc:
        limit = spec.get("timeoutSeconds") or 1
        return ProbeResult(
            False, f'timeout: failed to connect service "{address}:{port}" within {limit}s: context deadline exceeded'
        )
    refused = f"dial tcp {address}:{port}: connect: connection refused"
    return ProbeResult(False, f'Get "http://{address}:{port}{target.get("path") or "/"}": {refused}')


def _exec_probe(
    uid: str, container: str, spec: Mapping[str, Any], command: list[str], exec_sync: ExecSync
) -> ProbeResult:
    limit = float(spec.get("timeoutSeconds") or 1)
    try:
        code, output = exec_sync(uid, container, command, limit)
    except NoSuchContainer:
        return ProbeResult(False, "container not running")
    if code is None:
        return ProbeResult(False, f'command timed out: "{" ".join(command)}" timed out after {limit:g}s')
    return ProbeResult(code == 0, output if code else "")


def _forced_failure_output(spec: Mapping[str, Any], address: str) -> str:
    if spec.get("httpGet"):
        return "HTTP probe failed with statuscode: 503"
    if spec.get("tcpSocket"):
        port = spec["tcpSocket"].get("port")
        return f"dial tcp {address}:{port}: connect: connection refused"
    if spec.get("grpc"):
        return 'service unhealthy (responded with "NOT_SERVING")'
    return ""
