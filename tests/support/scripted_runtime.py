"""A container runtime for one Pod that does what a script says, when it says it: operations end late, in any order, or fail,
containers exit by themselves, and the sandbox dies. It asserts what a runtime may expect of the agent.

What it holds outlives the agent, as in a real runtime. `crash` is the end of the agent: the operations in progress are
lost, and the first ordered one may have had its effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from setpoint.kinds.typed import Pod
from setpoint.node.node_state import NodeState
from setpoint.node.runtime.interface import (
    START_ERROR,
    ContainerConfig,
    ContainerRecord,
    EnvironmentProvider,
    HookResult,
    Image,
    ImageLookup,
    Operation,
    PodRecords,
    ProbeResult,
    PullResult,
    SandboxResult,
    StartResult,
    Usage,
)

T = TypeVar("T")

LOST_ANSWER, CANNOT_START = "the answer was lost", "no such program"
"""Problems of a start with an effect: the container runs, or it was created and could not be started."""


PROBE_WARNING = "it was redirected"
"""A problem of a probe that succeeds nevertheless."""
PROBE_ERROR = "it could not be carried out"
"""A problem of a probe that has no result."""


class ScriptedOperation(Generic[T]):
    """An operation that ends when the script says so."""

    def __init__(self, runtime: ScriptedRuntime, name: str, perform: Callable[[str], T], *, ordered: bool) -> None:
        self.name = name
        self.ordered = ordered
        self.cancelled = False
        self._runtime = runtime
        self._perform = perform
        self._value: T | None = None

    def __repr__(self) -> str:
        return f"<{self.name}{' cancelled' if self.cancelled else ''}>"

    def result(self, now: float) -> T | None:
        assert not self.cancelled, f"the agent asks for the result of {self.name}, which it cancelled"
        return self._value

    @property
    def ready_at(self) -> float | None:
        return None

    def cancel(self) -> None:
        self.cancelled = True
        self._runtime.cancelled(self)

    def complete(self, problem: str = "") -> None:
        """End the operation; it fails if there is a problem."""
        self._value = self._perform(problem)


@dataclass(eq=False)
class Run:
    """A run of a container."""

    record: ContainerRecord
    sandbox: int
    image: str
    """The image in the spec from which the container was created."""
    known: bool
    """Whether the agent got an answer about the run, or found it after a restart."""
    kill_at: float | None = None
    """When the container is killed; None if it was not signaled."""
    kill_reason: str = ""
    removed: bool = False
    """Whether the runtime removed the container: it is not listed any more."""
    pre_stop_begun: bool = False
    pre_stop_by_this_agent: bool = False

    @property
    def running(self) -> bool:
        return self.record.running


class ScriptedRuntime:
    """Implements ContainerRuntime for one Pod."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.version = "scripted"
        self.on_change: Callable[[str], None] = lambda uid: None
        self._clock = clock
        self.uid = ""
        self.pending: list[ScriptedOperation[Any]] = []
        """The operations in progress, the oldest first."""
        self.runs: list[Run] = []
        """All runs of all containers, the oldest first."""
        self.sandbox = 0
        """The number of the current sandbox; 0 before the first."""
        self.sandbox_works = False
        self.mounted = False
        self.image_present = False
        self.releases = 0
        """How often this agent released the Pod with success."""
        self.removed = False
        self.requests: list[str] = []
        """Everything that the agents requested."""
        self.on_start_request: Callable[[ContainerConfig], None] = lambda config: None
        self.before_start: Callable[[ContainerConfig], None] = lambda config: None
        """Called before a container starts."""

    @property
    def initial_backoff(self) -> float:
        return 10.0

    # -- what the script does ------------------------------------------------------------------------------------------

    @property
    def completable(self) -> list[ScriptedOperation[Any]]:
        """The operations that may end now: of the ordered ones only the first."""
        ordered = [each for each in self.pending if each.ordered][:1]
        return [each for each in self.pending if not each.ordered or each in ordered]

    def complete(self, operation: ScriptedOperation[Any], problem: str = "") -> None:
        self.pending.remove(operation)
        operation.complete(problem)
        if not operation.cancelled:
            self.on_change(self.uid)

    @property
    def running(self) -> list[Run]:
        return [each for each in self.runs if each.running]

    def exit(self, run: Run, code: int) -> None:
        record = run.record
        record.finished_at, record.exit_code = max(self._clock(), record.started_at), code
        record.reason = run.kill_reason or ("Error" if code else "Completed")
        self.on_change(self.uid)

    def kill_overdue(self) -> None:
        """Kill the containers whose grace period is over."""
        for run in self.running:
            if run.kill_at is not None and run.kill_at <= self._clock():
                self.exit(run, 137)

    def break_sandbox(self, with_containers: bool) -> None:
        self.sandbox_works = False
        for run in self.running if with_containers else ():
            self.exit(run, 255)
        self.on_change(self.uid)

    def crash(self, *, with_effect: bool, stops_go_on: bool) -> None:
        """The agent ends. The operation in progress has its effect nevertheless, or has none."""
        begun = next((each for each in self.pending if each.ordered), None)
        self.pending.clear()
        if begun is not None and with_effect:
            begun.complete()
        for run in self.runs:
            run.kill_reason = ""
            run.pre_stop_by_this_agent = False
            if not stops_go_on:
                run.kill_at = None
        self.releases = 0
        self.on_change = lambda uid: None

    def cancelled(self, operation: ScriptedOperation[Any]) -> None:
        """Forget an operation that has not begun, or that can be interrupted."""
        if operation in self.pending and not (operation.ordered and operation in self.completable):
            self.pending.remove(operation)

    # -- volumes and sandbox -------------------------------------------------------------------------------------------

    def _operation(self, name: str, perform: Callable[[str], T], *, ordered: bool = True) -> Operation[T]:
        self.requests.append(name)
        made = ScriptedOperation(self, name, perform, ordered=ordered)
        self.pending.append(made)
        return made

    def mount_volumes(self, pod: Pod, provider: EnvironmentProvider) -> Operation[Sequence[str]]:
        def perform(problem: str) -> Sequence[str]:
            self.mounted = not problem
            return [problem] if problem else []

        return self._operation("mount", perform)

    def create_sandbox(self, pod: Pod, node: NodeState) -> Operation[SandboxResult]:
        def perform(problem: str) -> SandboxResult:
            assert self.mounted, "a sandbox before the volumes"
            if not self.sandbox_works:
                for run in self.runs:
                    run.removed = True
                    if run.running:
                        self.exit(run, 137)
                if problem:
                    return SandboxResult((), problem)
                self.sandbox += 1
                self.sandbox_works = True
            return SandboxResult((self._address,))

        return self._operation("create sandbox", perform)

    @property
    def _address(self) -> str:
        return f"10.0.0.{self.sandbox}"

    def sandbox_ready(self, uid: str) -> bool:
        return self.sandbox_works

    def restore_sandbox(self, pod: Pod, node: NodeState) -> Sequence[str] | None:
        return (self._address,) if self.sandbox_works else None

    def stop_pod(self, uid: str) -> Operation[str]:
        left = [each for each in self.running if each.known]
        assert not left, f"the sandbox is stopped before {left}"
        assert not any(each.name.startswith("start ") for each in self.pending), "a container is being started"

        def perform(problem: str) -> str:
            for run in self.running:
                self.exit(run, 137)
            if not problem:
                self.sandbox_works = self.mounted = False
                self.releases += 1
                assert self.releases == 1, "released twice"
            return problem

        return self._operation("stop pod", perform)

    def remove_pod(self, uid: str) -> None:
        assert not self.removed, "removed twice"
        self.removed = True

    # -- images --------------------------------------------------------------------------------------------------------

    def find_image(self, image: str, pod: Pod, node: NodeState) -> Operation[ImageLookup]:
        def perform(problem: str) -> ImageLookup:
            return ImageLookup(_image(image) if self.image_present and not problem else None, problem)

        return self._operation("find image", perform, ordered=False)

    def pull_image(self, image: str, pod: Pod, node: NodeState, at: float) -> Operation[PullResult]:
        def perform(problem: str) -> PullResult:
            self.image_present = self.image_present or not problem
            return PullResult(None if problem else _image(image), problem)

        return self._operation("pull image", perform, ordered=False)

    # -- containers ----------------------------------------------------------------------------------------------------

    def runs_of(self, name: str) -> list[Run]:
        return [each for each in self.runs if each.record.name == name]

    def _current(self, name: str) -> Run | None:
        return next((each for each in reversed(self.runs) if each.record.name == name and not each.removed), None)

    def start_container(self, uid: str, config: ContainerConfig, at: float) -> Operation[StartResult]:
        self.on_start_request(config)
        name = f"start {config.name}"
        assert not any(each.name == name and not each.cancelled for each in self.pending), f"{name} twice"

        def perform(problem: str) -> StartResult:
            if not self.sandbox_works:
                return StartResult(None, "the sandbox of the Pod is not ready")
            for run in self.runs_of(config.name):
                if run.running:
                    assert run.record.attempt == config.attempt, f"{config.name} runs twice: {run}"
                if run.record.attempt == config.attempt and not run.removed:
                    run.known = True
                    run.record.outdated = run.image != config.spec["image"]
                    return StartResult(run.record)
            if problem and problem not in (LOST_ANSWER, CANNOT_START):
                return StartResult(None, problem)
            self.before_start(config)
            started_at = self._clock()
            identifier = f"scripted://{len(self.runs) + 1}"
            record = ContainerRecord(config.name, identifier, config.image, config.image_id, config.attempt, started_at)
            run = Run(record, self.sandbox, config.spec["image"], known=problem != LOST_ANSWER)
            self.runs.append(run)
            if problem == CANNOT_START:
                record.finished_at, record.exit_code, record.reason, record.message = (
                    started_at,
                    128,
                    START_ERROR,
                    problem,
                )
            return StartResult(None, problem) if problem == LOST_ANSWER else StartResult(record)

        return self._operation(name, perform)

    def stop_container(self, uid: str, name: str, at: float, grace_seconds: float) -> None:
        self.requests.append(f"stop {name}")
        run = self._current(name)
        if run is not None and run.running:
            run.kill_at = min(at + grace_seconds, run.kill_at or float("inf"))

    def kill_container(self, uid: str, name: str, at: float, reason: str) -> None:
        self.requests.append(f"kill {name}")
        run = self._current(name)
        if run is not None and run.running:
            run.kill_at, run.kill_reason = at, reason

    def update_resources(self, uid: str, config: ContainerConfig) -> Operation[str]:
        return self._operation(f"update {config.name}", lambda problem: problem)

    def update_pod(self, uid: str, pod: Pod) -> None:
        self.requests.append("update pod")

    def restore_container(
        self, uid: str, config: ContainerConfig, reported: Mapping[str, Any], now: float
    ) -> ContainerRecord | None:
        run = self._current(config.name)
        if run is None:
            return None
        run.known = True
        run.record.outdated = run.image != config.spec["image"]
        return run.record

    def advance(self, uid: str, now: float) -> float | None:
        return None

    def records(self, uid: str) -> PodRecords:
        found = PodRecords()
        for run in self.runs:
            if not run.removed:
                name = run.record.name
                if name in found.current:
                    found.previous[name] = found.current[name]
                found.current[name] = run.record
        return found

    def power_off(self, uid: str, at: float) -> None:
        for run in self.running:
            run.kill_at = at

    def usage(self, uid: str) -> dict[str, Usage]:
        return {}

    # -- probes and hooks ----------------------------------------------------------------------------------------------

    def probe(
        self, uid: str, container: Mapping[str, Any], kind: str, spec: Mapping[str, Any], pod: Pod, ip: str
    ) -> Operation[ProbeResult]:
        assert ip, "a probe without an address"
        name = f"{kind} probe of {container['name']}"
        assert not any(each.name == name for each in self.pending), f"{name} twice"
        return self._operation(
            name,
            lambda problem: ProbeResult(problem in ("", PROBE_WARNING), problem, errored=problem == PROBE_ERROR),
            ordered=False,
        )

    def run_hook(
        self, uid: str, container: Mapping[str, Any], hook: Mapping[str, Any], at: float, *, pre_stop: bool
    ) -> Operation[HookResult]:
        name = container["name"]
        run = self._current(name)
        if pre_stop and run is not None and run.running:
            assert not run.pre_stop_by_this_agent, f"the pre-stop hook of {run} runs twice"
            run.pre_stop_by_this_agent = run.pre_stop_begun = True
        kind = "pre-stop" if pre_stop else "post-start"
        return self._operation(
            f"{kind} hook of {name}", lambda problem: HookResult(not problem, problem), ordered=False
        )


def _image(name: str) -> Image:
    return Image(name, f"{name}@sha256:1", 1000)
