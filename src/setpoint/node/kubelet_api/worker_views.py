"""The parts of a Pod worker that the kubelet's API shows, on simulated and real nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from setpoint.meta.objects import ObjView
from setpoint.node.kubelet_api.interface import ProbeCount

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod


class ProbeView(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def failures(self) -> int: ...

    @property
    def successes(self) -> int: ...


class ContainerView(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def probes(self) -> Iterable[ProbeView]: ...


class WorkerView(Protocol):
    """The parts of a Pod worker that the kubelet's API uses."""

    @property
    def pod(self) -> Pod: ...

    @property
    def reported(self) -> ObjView:
        """The Pod's status as reported last."""
        ...

    @property
    def containers(self) -> Iterable[ContainerView]: ...


def as_reported(worker: WorkerView) -> Pod:
    """Return the Pod with the status that the worker has reported."""
    return cast("Pod", {**worker.pod, "status": worker.reported})


def probe_counts(worker: WorkerView) -> Sequence[ProbeCount]:
    return [
        ProbeCount(state.name, probe.kind, probe.failures, probe.successes)
        for state in worker.containers
        for probe in state.probes
    ]
