"""Contract tests of `setpoint.node.runtime.interface.ContainerRuntime`, run against the simulated runtime and against
that of real nodes on a fake container runtime. `tests/real/` runs them against containerd."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from container_runtime_suite import ContainerRuntimeSuite
from fake_cri import ExecResult, FakeContainer, FakeCri
from host_runtime import HostHarness, PlainProvider, host_runtime, make_node
from stopped_clock import StoppedClock

from setpoint.kinds.typed import Pod
from setpoint.node.runtime.interface import ContainerConfig, Operation, T
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.system import RandomIds


class SimulatedHarness:
    """The simulated runtime, whose time passes while a test waits."""

    def __init__(self) -> None:
        self._clock = StoppedClock()
        self.runtime = SimulatedRuntime(self._clock, RandomIds())
        self.node = make_node()
        self.provider = PlainProvider()
        self._uids: set[str] = set()

    @property
    def now(self) -> float:
        return self._clock.now().timestamp()

    async def wait(self, operation: Operation[T]) -> T:
        await self.until(lambda: operation.result(self.now) is not None)
        result = operation.result(self.now)
        assert result is not None
        return result

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(1000):
            if condition():
                return
            await self._clock.advance(0.5)
            for uid in self._uids:
                self.runtime.advance(uid, self.now)
        raise AssertionError("the condition never holds")

    def config(self, pod: Pod, name: str = "main", attempt: int = 0) -> ContainerConfig:
        self._uids.add(pod["metadata"]["uid"])
        spec = next(each for each in pod["spec"]["containers"] if each["name"] == name)
        return ContainerConfig(name, spec["image"], spec["image"], attempt, spec, pod, self.provider)


class TestSimulatedRuntime(ContainerRuntimeSuite):
    missing_image = "busybox:nonexistent"

    @pytest.fixture
    def harness(self) -> SimulatedHarness:
        return SimulatedHarness()


def run_fake_command(container: FakeContainer, command: list[str]) -> ExecResult:
    """The commands of the suite."""
    if command == ["/bin/true"]:
        return ExecResult()
    return ExecResult(b"not yet\n" if "echo not yet" in command[-1] else b"", b"", 1)


class ProgramCri(FakeCri):
    """A fake container runtime whose containers behave as the scripts of the suite say."""

    def _StartContainer(self, request: object) -> dict[str, object]:
        config = self.containers[request.container_id].config  # type: ignore[attr-defined]
        name, script = config.metadata.name, config.command[-1]
        self.exits.pop(name, None)
        self.start_errors.pop(name, None)
        self.ignore_sigterm.discard(name)
        if script.startswith("exit "):
            self.exits[name] = int(script.removeprefix("exit "))
        elif script.startswith("trap ''"):
            self.ignore_sigterm.add(name)
        elif script == "no-such-program":
            self.start_errors[name] = f'exec: "{script}": stat {script}: no such file or directory: unknown'
        return super()._StartContainer(request)


class TestCriRuntime(ContainerRuntimeSuite):
    @pytest.fixture
    def cri(self) -> Iterator[ProgramCri]:
        cri = ProgramCri()
        with cri:
            cri.on_exec = run_fake_command
            cri.missing_image(self.missing_image)
            yield cri

    @pytest.fixture
    async def harness(self, cri: ProgramCri, tmp_path: Path) -> AsyncIterator[HostHarness]:
        async with host_runtime(cri.endpoint, tmp_path) as harness:
            yield harness
