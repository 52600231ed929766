"""A fleet of simulated nodes behind one door."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from setpoint.node.annotations import RUNNING
from setpoint.node.kubelet_api.host import Obj, ProbeCount
from setpoint.node.network.cluster_network import FleetNetwork
from setpoint.node.node_state import NodeState
from setpoint.node.pod_worker import PodWorker
from setpoint.node.runtime.commands import is_known
from setpoint.node.runtime.interface import ContainerLog, Execution, NoSuchContainer, Usage
from setpoint.node.runtime.network import TCP, Failure
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.node.runtime.web_messages import WebAnswer, WebRequest
from setpoint.node.service_tokens import ServiceTokens
from setpoint.node.static_pods import StaticPods


class Workers(Protocol):
    """The fleet, as far as it is looked into."""

    @property
    def nodes(self) -> Mapping[str, NodeState]: ...

    @property
    def runtime(self) -> SimulatedRuntime: ...

    @property
    def static(self) -> StaticPods | None: ...

    @property
    def tokens(self) -> ServiceTokens: ...

    @property
    def network(self) -> FleetNetwork: ...

    def worker(self, namespace: str, name: str) -> PodWorker | None: ...

    def workers_on(self, node: str) -> Iterable[PodWorker]: ...


class FleetHost:
    def __init__(self, fleet: Workers) -> None:
        self._fleet = fleet

    def answers(self, node: str) -> bool:
        """Whether the node is one of ours, and switched on and connected."""
        found = self._fleet.nodes.get(node)
        return found is not None and found.state == RUNNING

    def owns(self, node: str) -> bool:
        return node in self._fleet.nodes

    def pod(self, namespace: str, name: str) -> Obj | None:
        worker = self._fleet.worker(namespace, name)
        if worker is not None:
            return _as_reported(worker)
        static = self._fleet.static
        return static.pod(namespace, name) if static is not None else None

    def pods_on(self, node: str) -> Sequence[Obj]:
        static = self._fleet.static
        own = static.pods_on(node) if static is not None else ()
        return [*(_as_reported(worker) for worker in self._fleet.workers_on(node)), *own]

    def node(self, name: str) -> Obj | None:
        found = self._fleet.nodes.get(name)
        return found.object if found is not None else None

    def log_of(self, pod: Obj, container: str, container_id: str) -> ContainerLog:
        static = self._fleet.static
        if static is not None and (own := static.log_of(pod, container_id)) is not None:
            return own
        uid = pod["metadata"]["uid"]
        runs = self._fleet.runtime.runs(uid)
        for previous, records in ((False, runs.current), (True, runs.previous)):
            record = records.get(container)
            if record is not None and record.id == container_id:
                return self._fleet.runtime.log(uid, container, previous)
        raise NoSuchContainer(container)

    def command_problem(self, argv: Sequence[str]) -> str:
        if argv and is_known(argv[0]):
            return ""
        return (
            f'exec: "{argv[0] if argv else ""}": executable file not found in $PATH '
            "(simulated containers have a shell and a few common programs)"
        )

    async def prepare(self, pod: Obj, argv: Sequence[str]) -> None:
        worker = self._fleet.worker(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if worker is not None:
            await self._fleet.tokens.provide(worker, argv)
            await self._fleet.network.prepare(worker.spec, argv)

    def run_command(self, pod: Obj, container: str, argv: Sequence[str], *, stdin: bool) -> Execution:
        return self._fleet.runtime.run_command(pod["metadata"]["uid"], container, argv, stdin=stdin)

    def main_program(self, pod: Obj, container: str) -> tuple[Sequence[str], Execution] | None:
        return self._fleet.runtime.attach(pod["metadata"]["uid"], container)

    def web(self, pod: Obj, request: WebRequest) -> WebAnswer | None:
        """What the Pod answers; None: nothing listens there. Raises NoSuchContainer when that is not known."""
        return self._fleet.runtime.servers.ask(pod["metadata"]["uid"], request)

    def listens(self, pod: Obj, port: int) -> bool:
        return self._fleet.runtime.servers.listens(pod["metadata"]["uid"], port, TCP) is None

    def deliver(self, pod: Obj, request: WebRequest) -> WebAnswer | Failure:
        return self._fleet.runtime.servers.deliver(pod["metadata"]["uid"], request)

    def usage(self, pod: Obj) -> Mapping[str, Usage]:
        return self._fleet.runtime.usage(pod["metadata"]["uid"])

    def probe_counts(self, pod: Obj) -> Sequence[ProbeCount]:
        worker = self._fleet.worker(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if worker is None:
            return []
        return [
            ProbeCount(slot.name, probe.kind, probe.failures, probe.successes)
            for slot in worker.slots
            for probe in slot.probes
        ]


def _as_reported(worker: PodWorker) -> dict[str, Any]:
    return {**worker.pod, "status": worker.reported}
