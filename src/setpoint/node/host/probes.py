"""Runs probes of containers: commands, HTTP requests, TCP connections, and gRPC health checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from setpoint.meta.clock import Clock
from setpoint.meta.goformat import quote
from setpoint.meta.objects import ObjView
from setpoint.meta.times import format_duration
from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.environment import expand
from setpoint.node.host.http_get import RequestFailed, connect_tcp, get, join_host_port, port_number, request_of
from setpoint.node.runtime.interface import ProbeResult
from setpoint.tasks import within
from setpoint.wire.grpc import Channel, Code, GrpcError

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

KUBERNETES_VERSION: Final = "1.37"
MAX_OUTPUT: Final = 10 * 1024
_ATTEMPTS: Final = 3
"""How often a probe that could not be carried out is tried."""
_EXEC_CLEANUP: Final = 120.0
"""Seconds that the runtime has, beyond the timeout of a command, to end it."""
_RECONNECT_PAUSE: Final = 1.0
_HEALTH: Final = "grpc.health.v1.Health"
_SERVING: Final = 1
_HEALTH_STATES: Final = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


class ProbeError(Exception):
    """A probe could not be carried out."""


class HostProber:
    """Runs the probes of a node's containers."""

    def __init__(self, client: CriClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def probe(
        self, container: ObjView, spec: ObjView, pod: Pod, ip: str, container_id: Callable[[], str]
    ) -> ProbeResult:
        """Run a probe once; one that cannot be carried out is tried three times. `container_id` returns the id of the
        running container, or an empty string. A success with an output is a warning."""
        problem = ""
        for _ in range(_ATTEMPTS):
            try:
                return await self._probe(container, spec, pod, ip, container_id)
            except ProbeError as error:
                problem = str(error)
        return ProbeResult(False, problem, errored=True)

    async def _probe(
        self, container: ObjView, spec: ObjView, pod: Pod, ip: str, container_id: Callable[[], str]
    ) -> ProbeResult:
        timeout = float(spec.get("timeoutSeconds") or 1)
        try:
            if (action := spec.get("exec")) is not None:
                return await self._exec(container, action, timeout, container_id())
            if (action := spec.get("httpGet")) is not None:
                return await self._http(container, action, timeout, ip)
            if (action := spec.get("tcpSocket")) is not None:
                port = port_number(container, action.get("port"))
                problem = await connect_tcp(action.get("host") or ip, port, self._clock, timeout)
                return ProbeResult(not problem, problem)
            if (action := spec.get("grpc")) is not None:
                return await self._grpc(action, timeout, ip)
        except ValueError as error:
            raise ProbeError(str(error)) from None
        meta = pod["metadata"]
        name = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
        raise ProbeError(f"missing probe handler for {name}:{container['name']}")

    async def _exec(self, container: ObjView, action: ObjView, timeout: float, container_id: str) -> ProbeResult:
        if not container_id:
            raise ProbeError(f"container {container['name']} is not running")
        values = {each["name"]: each.get("value") or "" for each in container.get("env") or ()}
        command = [expand(each, values) for each in action.get("command") or ()]
        request = {"container_id": container_id, "cmd": command, "timeout": int(timeout)}
        try:
            answer = await self._client.call("ExecSync", request, timeout=timeout + _EXEC_CLEANUP)
        except CriError as error:
            if error.code == Code.DEADLINE_EXCEEDED:
                return ProbeResult(False, timed_out(command, timeout))
            raise ProbeError(str(error)) from None
        if answer.exit_code == 0:
            return ProbeResult(True)
        output = bytes(answer.stdout) + bytes(answer.stderr)
        return ProbeResult(False, output[:MAX_OUTPUT].decode("utf-8", "replace"))

    async def _http(self, container: ObjView, action: ObjView, timeout: float, ip: str) -> ProbeResult:
        request = request_of(action, container, ip, f"kube-probe/{KUBERNETES_VERSION}")
        try:
            response = await get(request, self._clock, timeout)
        except RequestFailed as error:
            return ProbeResult(False, str(error))
        if response.is_redirect:
            return ProbeResult(True, f"Probe terminated redirects, Response body: {response.body}")
        if 200 <= response.status < 300:
            return ProbeResult(True)
        return ProbeResult(False, f"HTTP probe failed with statuscode: {response.status}")

    async def _grpc(self, action: ObjView, timeout: float, ip: str) -> ProbeResult:
        address = join_host_port(ip, int(action.get("port") or 0))
        limit = duration(timeout)
        deadline = self._clock.monotonic() + timeout
        try:
            channel = await within(self._clock, timeout, self._connected(address, timeout))
        except TimeoutError:
            text = f"timeout: failed to connect service {quote(address)} within {limit}: context deadline exceeded"
            return ProbeResult(False, text)
        try:
            left = max(deadline - self._clock.monotonic(), 0.001)
            check: Awaitable[bytes] = channel.unary(
                f"/{_HEALTH}/Check", _health_request(action.get("service") or ""), timeout=left
            )
            status = _health_status(await check)
        except GrpcError as error:
            return ProbeResult(False, _health_problem(error, limit))
        finally:
            channel.close()
        if status == _SERVING:
            return ProbeResult(True)
        name = _HEALTH_STATES[status] if status < len(_HEALTH_STATES) else str(status)
        return ProbeResult(False, f"service unhealthy (responded with {quote(name)})")

    async def _connected(self, address: str, timeout: float) -> Channel:
        """Return a connection to a gRPC server, which is tried again as long as it cannot be established."""
        agent: Mapping[str, str] = {"user-agent": f"kube-probe/{KUBERNETES_VERSION}"}
        while True:
            try:
                return await Channel.connect(f"http://{address}", timeout=timeout, metadata={_HEALTH: agent})
            except GrpcError:
                await self._clock.sleep(_RECONNECT_PAUSE)


def timed_out(command: list[str], timeout: float) -> str:
    """Return the kubelet's message for a command that took too long."""
    return f"command timed out: {quote(' '.join(command))} timed out after {duration(timeout)}"


def duration(seconds: float) -> str:
    return format_duration(int(seconds * 1e9))


def _health_problem(error: GrpcError, limit: str) -> str:
    if error.code == Code.UNIMPLEMENTED:
        missing = f"error: this server does not implement the grpc health protocol ({_HEALTH})"
        return f"{missing}: {error.message}"
    if error.code == Code.DEADLINE_EXCEEDED:
        return f"timeout: health rpc did not complete within {limit}"
    return f"error: health rpc probe failed: {CriError(error.code, error.message)}"


def _health_request(service: str) -> bytes:
    """Return the message HealthCheckRequest: field 1 is the name of the service."""
    name = service.encode()
    if not name:
        return b""
    size, length = len(name), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return b"\x0a" + bytes(length) + name


def _health_status(message: Any) -> int:
    """Return field 1 of the message HealthCheckResponse, the status."""
    data = bytes(message)
    return data[1] if len(data) >= 2 and data[0] == 0x08 else 0
