"""Implements NodeHost for a fleet of simulated nodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.kubelet_api.interface import (
    KubeletApiError,
    LogOptions,
    NodeUsage,
    PodUsage,
    PortSession,
    ProbeCount,
    StreamOptions,
    StreamSession,
)
from setpoint.node.kubelet_api.logs import require_container
from setpoint.node.kubelet_api.remote_streams import RemoteStreams, internal_error
from setpoint.node.kubelet_api.simulated_connections import ForwardedConnection
from setpoint.node.kubelet_api.simulated_logs import follow_log, render_lines
from setpoint.node.kubelet_api.simulated_sessions import SimulatedSession, prompt_of, stream_output
from setpoint.node.kubelet_api.simulated_usage import SYSTEM_USAGE, simulated_summary, sum_of
from setpoint.node.kubelet_api.worker_views import as_reported, probe_counts
from setpoint.node.network import FleetNetwork
from setpoint.node.node_state import NodeState
from setpoint.node.pod_worker import PodWorker
from setpoint.node.runtime.container_behavior import is_known
from setpoint.node.runtime.interface import ContainerLog, NoSuchContainer
from setpoint.node.runtime.network import TCP, PodRequest, PodResponse
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.node.simulation_annotations import RUNNING
from setpoint.node.static_pods import StaticPods
from setpoint.node.volumes import TokenManager
from setpoint.wire.message import RawConnection

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod


class FleetView(Protocol):
    """The parts of a fleet that the kubelet's API uses."""

    @property
    def nodes(self) -> Mapping[str, NodeState]: ...

    @property
    def runtime(self) -> SimulatedRuntime: ...

    @property
    def static(self) -> StaticPods | None: ...

    @property
    def tokens(self) -> TokenManager: ...

    @property
    def network(self) -> FleetNetwork: ...

    def worker(self, namespace: str, name: str) -> PodWorker | None: ...

    def workers_on(self, node: str) -> Iterable[PodWorker]: ...


class FleetHost:
    """A NodeHost for the nodes, Pods and static Pods of a fleet."""

    def __init__(self, fleet: FleetView, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock

    def names(self) -> Sequence[str]:
        return list(self._fleet.nodes)

    def is_reachable(self, node: str) -> bool:
        """Return whether the node is part of the fleet and running, that is neither stopped nor partitioned."""
        found = self._fleet.nodes.get(node)
        return found is not None and found.state == RUNNING

    def pod(self, namespace: str, name: str) -> Pod | None:
        worker = self._fleet.worker(namespace, name)
        if worker is not None:
            return as_reported(worker)
        static = self._fleet.static
        return static.pod(namespace, name) if static is not None else None

    def pods_on(self, node: str) -> Sequence[Pod]:
        static = self._fleet.static
        own = static.pods_on(node) if static is not None else ()
        return [*(as_reported(worker) for worker in self._fleet.workers_on(node)), *own]

    def node(self, name: str) -> ObjView | None:
        found = self._fleet.nodes.get(name)
        return found.object if found is not None else None

    async def read_log(
        self, pod: Pod, container: str, container_id: str, options: LogOptions
    ) -> bytes | AsyncGenerator[bytes, None]:
        log = self._log(pod, container, container_id)
        return follow_log(log, options) if options.follow else b"".join(render_lines(log.lines(), options))

    def _log(self, pod: Pod, container: str, container_id: str) -> ContainerLog:
        static = self._fleet.static
        if static is not None and (own := static.log_of(pod, container_id)) is not None:
            return own
        uid = pod["metadata"]["uid"]
        runs = self._fleet.runtime.records(uid)
        for previous, records in ((False, runs.current), (True, runs.previous)):
            record = records.get(container)
            if record is not None and record.id == container_id:
                return self._fleet.runtime.log(uid, container, previous)
        raise NoSuchContainer(container)

    async def exec(self, pod: Pod, container: str, argv: Sequence[str], options: StreamOptions) -> StreamSession:
        async def run(streams: RemoteStreams) -> None:
            problem = _command_error(argv)
            if problem:
                streams.finish(internal_error(f"error executing command in container: {problem}"))
                return
            await self._prepare(pod, argv)
            try:
                execution = self._fleet.runtime.exec(pod["metadata"]["uid"], container, argv, stdin=options.stdin)
            except NoSuchContainer:
                streams.finish(internal_error(f'container not found ("{container}")'))
                return
            await SimulatedSession(execution, streams, options, self._clock, prompt_of(argv, options)).run()

        return run

    async def _prepare(self, pod: Pod, argv: Sequence[str]) -> None:
        """Prepare what the command needs and what takes time, such as tokens and the network."""
        worker = self._fleet.worker(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if worker is not None:
            await self._fleet.tokens.ensure_tokens(worker, argv)
            await self._fleet.network.prepare(worker.spec, argv)

    async def attach(self, pod: Pod, container: str, container_id: str, options: StreamOptions) -> StreamSession:
        log = self._log(pod, container, container_id)

        async def run(streams: RemoteStreams) -> None:
            program = self._fleet.runtime.attach(pod["metadata"]["uid"], container) if options.stdin else None
            if program is None:
                await stream_output(log, streams, options)
                return
            argv, execution = program
            spec = require_container(pod, container)
            # As with containerd, a terminal stays open when its client has detached.
            stdin_once = bool(spec.get("stdinOnce")) and not spec.get("tty")
            prompt = prompt_of(argv, options)
            await SimulatedSession(
                execution, streams, options, self._clock, prompt, main=True, stdin_once=stdin_once
            ).run()
            if stdin_once and execution.exit_code is None:
                execution.close_input()

        return run

    def connect(self, pod: Pod, port: int) -> PortSession:
        uid, servers = pod["metadata"]["uid"], self._fleet.runtime.servers

        async def run(client: RawConnection) -> str:
            if servers.listens(uid, port, TCP) is not None:
                return f"failed to connect to localhost:{port}: dial tcp4 127.0.0.1:{port}: connect: connection refused"
            return await ForwardedConnection(port, partial(servers.deliver, uid), self._clock, client).run()

        return run

    def pod_response(self, pod: ObjView, request: PodRequest) -> PodResponse | None:
        """Return the response of the Pod, or None if nothing listens on the port. Raise NoSuchContainer if the server's
        behaviour is not simulated."""
        return self._fleet.runtime.servers.respond(pod["metadata"]["uid"], request)

    async def summary(self, node: str) -> Obj:
        return simulated_summary(node, await self.usage(node), self._clock.now())

    async def usage(self, node: str) -> NodeUsage:
        found: list[PodUsage] = []
        total = SYSTEM_USAGE
        for pod in self.pods_on(node):
            containers = self._fleet.runtime.usage(pod["metadata"]["uid"])
            if containers:
                found.append(PodUsage(pod, sum_of(containers.values()), containers))
                total = sum_of((total, *containers.values()))
        return NodeUsage(total, found)

    def probe_counts(self, pod: Pod) -> Sequence[ProbeCount]:
        worker = self._fleet.worker(pod["metadata"]["namespace"], pod["metadata"]["name"])
        return probe_counts(worker) if worker is not None else []

    def configuration(self) -> Obj | None:
        return None

    async def checkpoint(self, pod: Pod, container: str) -> Sequence[str]:
        raise KubeletApiError(404, "404 page not found\n")


def _command_error(argv: Sequence[str]) -> str:
    """Return why the program cannot be executed; empty if it can."""
    if argv and is_known(argv[0]):
        return ""
    return (
        f'exec: "{argv[0] if argv else ""}": executable file not found in $PATH '
        "(simulated containers have a shell and a few common programs)"
    )
