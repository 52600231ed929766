"""Implements NodeHost for a fleet of simulated nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from setpoint.meta.objects import ObjView
from setpoint.node.kubelet_api.interface import ProbeCount
from setpoint.node.network import FleetNetwork
from setpoint.node.node_state import NodeState
from setpoint.node.pod_worker import PodWorker
from setpoint.node.runtime.container_behavior import is_known
from setpoint.node.runtime.interface import ContainerLog, Execution, NoSuchContainer, Usage
from setpoint.node.runtime.network import TCP, ConnectionFailure, PodRequest, PodResponse
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.node.simulation_annotations import RUNNING
from setpoint.node.static_pods import StaticPods
from setpoint.node.volumes import TokenManager

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

    def __init__(self, fleet: FleetView) -> None:
        self._fleet = fleet

    def is_reachable(self, node: str) -> bool:
        """Return whether the node is part of the fleet and running, that is neither stopped nor partitioned."""
        found = self._fleet.nodes.get(node)
        return found is not None and found.state == RUNNING

    def owns(self, node: str) -> bool:
        return node in self._fleet.nodes

    def pod(self, namespace: str, name: str) -> Pod | None:
        worker = self._fleet.worker(namespace, name)
        if worker is not None:
            return _as_reported(worker)
        static = self._fleet.static
        return static.pod(namespace, name) if static is not None else None

    def pods_on(self, node: str) -> Sequence[Pod]:
        static = self._fleet.static
        own = static.pods_on(node) if static is not None else ()
        return [*(_as_reported(worker) for worker in self._fleet.workers_on(node)), *own]

    def node(self, name: str) -> ObjView | None:
        found = self._fleet.nodes.get(name)
        return found.object if found is not None else None

    def container_log(self, pod: Pod, container: str, container_id: str) -> ContainerLog:
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

    def command_error(self, argv: Sequence[str]) -> str:
        if argv and is_known(argv[0]):
            return ""
        return (
            f'exec: "{argv[0] if argv else ""}": executable file not found in $PATH '
            "(simulated containers have a shell and a few common programs)"
        )

    async def prepare(self, pod: Pod, argv: Sequence[str]) -> None:
        worker = self._fleet.worker(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if worker is not None:
            await self._fleet.tokens.ensure_tokens(worker, argv)
            await self._fleet.network.prepare(worker.spec, argv)

    def exec(self, pod: Pod, container: str, argv: Sequence[str], *, stdin: bool) -> Execution:
        return self._fleet.runtime.exec(pod["metadata"]["uid"], container, argv, stdin=stdin)

    def attach(self, pod: Pod, container: str) -> tuple[Sequence[str], Execution] | None:
        return self._fleet.runtime.attach(pod["metadata"]["uid"], container)

    def pod_response(self, pod: ObjView, request: PodRequest) -> PodResponse | None:
        """Return the response of the Pod, or None if nothing listens on the port. Raise NoSuchContainer if the server's
        behaviour is not simulated."""
        return self._fleet.runtime.servers.respond(pod["metadata"]["uid"], request)

    def listens(self, pod: Pod, port: int) -> bool:
        return self._fleet.runtime.servers.listens(pod["metadata"]["uid"], port, TCP) is None

    def deliver(self, pod: Pod, request: PodRequest) -> PodResponse | ConnectionFailure:
        return self._fleet.runtime.servers.deliver(pod["metadata"]["uid"], request)

    def usage(self, pod: Pod) -> Mapping[str, Usage]:
        return self._fleet.runtime.usage(pod["metadata"]["uid"])

    def probe_counts(self, pod: Pod) -> Sequence[ProbeCount]:
        worker = self._fleet.worker(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if worker is None:
            return []
        return [
            ProbeCount(state.name, probe.kind, probe.failures, probe.successes)
            for state in worker.containers
            for probe in state.probes
        ]


def _as_reported(worker: PodWorker) -> Pod:
    return cast("Pod", {**worker.pod, "status": worker.reported})
