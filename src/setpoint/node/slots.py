"""What the agent knows about one container of a Pod, beyond what the runtime does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.node.backoff import Backoff
from setpoint.node.probes import Probe, probes_of
from setpoint.node.restarts import restarts
from setpoint.node.runtime.interface import ContainerRecord, Execution

Obj = dict[str, Any]

RESTARTING_ALL = "RestartingAllContainers"
"""The reason that a container ended for, when it did because another one's rule says that all begin anew."""
INIT, SIDECAR, MAIN, EPHEMERAL = "init", "sidecar", "main", "ephemeral"
_FIELD = {INIT: "initContainers", SIDECAR: "initContainers", MAIN: "containers", EPHEMERAL: "ephemeralContainers"}


def amounts_of(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """What it requests, and what it may have at most."""
    resources = container.get("resources")
    return {which: resources[which] for which in ("limits", "requests") if resources.get(which)} if resources else {}


class Slot:
    __slots__ = (
        "allocated", "attempt", "counted", "crash", "hook", "image", "kind", "last", "name", "probes", "pull",
        "pull_failure", "pulling", "record", "replaced", "said_exit", "shown", "spec", "starting", "stop",
        "waiting",
    )  # fmt: skip

    def __init__(self, spec: Mapping[str, Any], kind: str) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.kind = kind
        self.record: ContainerRecord | None = None
        """The newest run."""
        self.last: Obj | None = None
        """How the run before it ended, as the API shows it."""
        self.waiting: tuple[str, str] | None = None
        """Why it was not started again, once that is to be shown: reason and message."""
        self.image = ""
        """What the newest run was started from, as the Pod had it."""
        self.replaced = False
        """It was stopped because the Pod asks for another one: that is started whatever the restart policy is."""
        self.attempt = 0
        """The number of the next run."""
        self.shown: tuple[str, bool] | None = None
        """Of the run that was last reported: its id, and whether it was over."""
        self.pulling: tuple[float, float] | None = None
        """Since when and until when the image is being pulled."""
        self.starting: tuple[str, float] | None = None
        """The image that a container is being made of, and when it will run."""
        self.pull: Backoff | None = None
        self.pull_failure = ""
        self.crash: Backoff | None = None
        self.counted: ContainerRecord | None = None
        """The run after which `crash` was last told."""
        self.hook: Execution | None = None
        """The post-start hook while it runs."""
        self.stop: Stop | None = None
        self.probes: tuple[Probe, ...] = () if kind in (INIT, EPHEMERAL) else probes_of(spec)
        self.allocated = amounts_of(spec)
        """What the node has given it."""
        self.said_exit = ""

    @property
    def field_path(self) -> str:
        return f"spec.{_FIELD[self.kind]}{{{self.name}}}"

    @property
    def running(self) -> bool:
        return self.record is not None and self.record.finished_at is None

    @property
    def started(self) -> bool:
        return self.running and self.hook is None and all(probe.started for probe in self.probes)

    @property
    def ready(self) -> bool:
        record = self.record
        if record is None:
            return False
        if self.kind == INIT:
            return record.finished_at is not None and record.exit_code == 0
        if record.finished_at is not None or self.kind == EPHEMERAL:
            return False
        return self.hook is None and all(probe.started and probe.ready for probe in self.probes)

    @property
    def superseded(self) -> bool:
        """Another image takes its place, as soon as it has ended."""
        return self.replaced and self.image != self.spec.get("image")

    def wants_start(self, spec: Mapping[str, Any]) -> bool:
        """Never ran, or ended in a way after which it is to run again."""
        record = self.record
        if record is None:
            return True
        if record.finished_at is None or self.kind == EPHEMERAL:
            return False
        anyway = self.kind == SIDECAR or self.replaced or record.reason == RESTARTING_ALL
        return anyway or restarts(self.spec, spec, record.exit_code)


class Stop:
    """How a container is being stopped: its hook runs, then it waits for its turn, then it is told."""

    __slots__ = ("begun", "deadline", "grace", "hook", "hook_until", "told")

    def __init__(self, begun: float, grace: float) -> None:
        self.begun = begun
        self.grace = grace
        self.deadline = begun + grace
        self.hook: Execution | None = None
        self.hook_until: float | None = None
        """When the hook is over at the latest, or exactly if it only sleeps."""
        self.told = False


def slots_of(spec: Mapping[str, Any]) -> list[Slot]:
    found = [
        Slot(each, SIDECAR if each.get("restartPolicy") == "Always" else INIT)
        for each in spec.get("initContainers") or ()
    ]
    found += [Slot(each, MAIN) for each in spec.get("containers") or ()]
    found += [Slot(each, EPHEMERAL) for each in spec.get("ephemeralContainers") or ()]
    return found
