"""`/containerLogs/{namespace}/{pod}/{container}`: the log of one run of a container, as a whole or followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.meta.clock import Clock
from setpoint.meta.objects import ObjView
from setpoint.meta.times import parse_time
from setpoint.node.kubelet_api.interface import (
    BufferedResponse,
    KubeletApiError,
    LogOptions,
    NodeHost,
    NodeRequest,
    NodeResponse,
    StreamedResponse,
)
from setpoint.node.runtime.interface import STDERR, STDOUT, NoSuchContainer

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_ALL = "All"
_STREAMS = {_ALL: (STDOUT, STDERR), "Stdout": (STDOUT,), "Stderr": (STDERR,)}
_STATUS_FIELDS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_SPEC_FIELDS = ("containers", "initContainers", "ephemeralContainers")
_WAITING_TEXTS = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


def parse_log_options(request: NodeRequest, now: float) -> LogOptions:
    """Parse the query of a request. Raise KubeletApiError."""
    numbers = {name: _number(request, name) for name in ("tailLines", "sinceSeconds", "limitBytes")}
    tail, seconds, limit = numbers.values()
    since_time = request.option("sinceTime")
    wanted = request.option("stream") or _ALL
    if (
        (tail is not None and tail < 0)
        or (limit is not None and limit < 1)
        or (seconds is not None and (seconds < 1 or since_time))
        or wanted not in _STREAMS
        or (wanted != _ALL and tail is not None)
    ):
        raise KubeletApiError(422, '{"message": "Invalid request."}')
    since = now - seconds if seconds is not None else None
    if since_time:
        try:
            since = parse_time(since_time).timestamp()
        except ValueError:
            raise KubeletApiError(400, '{"message": "Unable to decode query."}') from None
    return LogOptions(
        request.flag("follow"),
        request.flag("previous"),
        request.flag("timestamps"),
        tail,
        since,
        limit,
        _STREAMS[wanted],
    )


def _number(request: NodeRequest, name: str) -> int | None:
    text = request.option(name)
    if name == "tailLines" and request.option("tail"):
        # The deprecated name of tailLines.
        text = "" if request.option("tail") == "all" else request.option("tail")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise KubeletApiError(400, '{"message": "Unable to decode query."}') from None


async def container_logs(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    namespace, name, container = parts
    options = parse_log_options(request, clock.now().timestamp())
    pod = require_pod(host, namespace, name)
    require_container(pod, container)
    container_id = container_id_of(pod, container, options.previous)
    try:
        log = await host.read_log(pod, container, container_id, options)
    except NoSuchContainer:
        raise KubeletApiError(400, f"unable to retrieve container logs for {container_id}") from None
    return BufferedResponse(200, log) if isinstance(log, bytes) else StreamedResponse(log)


def require_pod(host: NodeHost, namespace: str, name: str) -> Pod:
    pod = host.pod(namespace, name)
    if pod is None:
        raise KubeletApiError(404, f'pod "{name}" does not exist')
    return pod


def require_container(pod: Pod, container: str) -> ObjView:
    spec: ObjView = pod["spec"]
    for field in _SPEC_FIELDS:
        for each in spec.get(field) or ():
            if each["name"] == container:
                found: ObjView = each
                return found
    name = pod["metadata"]["name"]
    raise KubeletApiError(404, f'container "{container}" not found in pod "{name}"')


def container_id_of(pod: Pod, container: str, previous: bool) -> str:
    """Return the id of the run whose log is requested. Raise KubeletApiError with the kubelet's messages."""
    name = pod["metadata"]["name"]
    status: ObjView = pod.get("status") or {}
    found = next(
        (each for field in _STATUS_FIELDS for each in status.get(field) or () if each["name"] == container), None
    )
    if found is None:
        raise KubeletApiError(400, f'container "{container}" in pod "{name}" is not available')
    state = found.get("state") or {}
    last = (found.get("lastState") or {}).get("terminated")
    last_id: str = (last or {}).get("containerID") or ""
    if previous:
        if not last_id:
            raise KubeletApiError(400, f'previous terminated container "{container}" in pod "{name}" not found')
        return last_id
    if "running" in state:
        return str(found.get("containerID") or "")
    if "terminated" in state or last is not None:
        ended: str = (state.get("terminated") or {}).get("containerID") or last_id
        if not ended:
            raise KubeletApiError(400, f'container "{container}" in pod "{name}" is terminated')
        return ended
    if "waiting" in state:
        reason = state["waiting"].get("reason", "")
        why = _WAITING_TEXTS.get(reason, reason)
        raise KubeletApiError(400, f'container "{container}" in pod "{name}" is waiting to start: {why}')
    raise KubeletApiError(400, f'container "{container}" in pod "{name}" is waiting to start - no logs yet')
