"""`/containerLogs/{namespace}/{pod}/{container}`: what a run of a container has written, and goes on writing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, cast

from setpoint.meta.clock import Clock
from setpoint.node.kubelet_api.host import NodeHost, Obj
from setpoint.node.kubelet_api.log_options import LineWriter, LogOptions, log_options, rendered, tail_of
from setpoint.node.kubelet_api.messages import NodeAnswer, NodeRequest, Refused, Streamed, Whole
from setpoint.node.runtime.interface import ContainerLog, LogLine, NoSuchContainer

_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_SPECS = ("containers", "initContainers", "ephemeralContainers")
_WAITING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


def container_logs(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeAnswer:
    namespace, name, container = parts
    options = log_options(request, clock.now().timestamp())
    pod = named_pod(host, namespace, name)
    named_container(pod, container)
    container_id = container_id_of(pod, container, options.previous)
    try:
        log = host.log_of(pod, container, container_id)
    except NoSuchContainer:
        raise Refused(400, f"unable to retrieve container logs for {container_id}") from None
    if options.follow:
        return Streamed(followed(log, options))
    return Whole(200, b"".join(rendered(log.lines(), options)))


def named_pod(host: NodeHost, namespace: str, name: str) -> Obj:
    pod = host.pod(namespace, name)
    if pod is None:
        raise Refused(404, f'pod "{name}" does not exist')
    return pod


def named_container(pod: Obj, container: str) -> Mapping[str, Any]:
    for field in _SPECS:
        for each in pod["spec"].get(field) or ():
            if each["name"] == container:
                found: Mapping[str, Any] = each
                return found
    name = pod["metadata"]["name"]
    raise Refused(404, f'container "{container}" not found in pod "{name}"')


async def followed(log: ContainerLog, options: LogOptions) -> AsyncGenerator[bytes, None]:
    """What is there, as far as it is wanted, then what comes, until the run is over."""
    writer = LineWriter(options)
    there = log.lines()
    skip = len(there) - len(tail_of(there, options.tail))
    # All logs are followed by generators; one that is closed no longer waits for lines.
    async with aclosing(cast(AsyncGenerator[LogLine, None], log.follow())) as lines:
        async for line in lines:
            if skip:
                skip -= 1
                continue
            data = writer.write(line)
            if data:
                yield data
            if writer.full:
                return


def container_id_of(pod: Obj, container: str, previous: bool) -> str:
    """Of the run whose log is meant. Raises Refused, with the kubelet's reasons."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    found = next((each for field in _STATUSES for each in status.get(field) or () if each["name"] == container), None)
    if found is None:
        raise Refused(400, f'container "{container}" in pod "{name}" is not available')
    state = found.get("state") or {}
    last = (found.get("lastState") or {}).get("terminated")
    last_id: str = (last or {}).get("containerID") or ""
    if previous:
        if not last_id:
            raise Refused(400, f'previous terminated container "{container}" in pod "{name}" not found')
        return last_id
    if "running" in state:
        return str(found.get("containerID") or "")
    if "terminated" in state or last is not None:
        ended: str = (state.get("terminated") or {}).get("containerID") or last_id
        if not ended:
            raise Refused(400, f'container "{container}" in pod "{name}" is terminated')
        return ended
    if "waiting" in state:
        reason = state["waiting"].get("reason", "")
        why = _WAITING.get(reason, reason)
        raise Refused(400, f'container "{container}" in pod "{name}" is waiting to start: {why}')
    raise Refused(400, f'container "{container}" in pod "{name}" is waiting to start - no logs yet')
