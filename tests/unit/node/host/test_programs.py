"""Programs that the agent runs: input, output, failures and deadlines, on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from setpoint.node.host.programs import ProgramError, ProgramResult, run_program
from setpoint.system import SystemClock

Loop = Callable[[], asyncio.AbstractEventLoop]


def run(loop: Loop, *command: str, timeout: float = 20.0, content: str = "") -> ProgramResult:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(run_program(SystemClock(), timeout, *command, content=content))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
class TestPrograms:
    def test_input_output_and_exit_code(self, loop: Loop) -> None:
        script = "cat; echo problem >&2; exit 3"
        assert run(loop, "sh", "-c", script, content="text") == (3, "text", "problem\n")
        assert run(loop, "sh", "-c", "cat") == (0, "", "")

    def test_a_program_that_does_not_read_its_input(self, loop: Loop) -> None:
        for _ in range(20):
            found = run(loop, "sh", "-c", "exec 0<&-; echo refused >&2; exit 1", content="x" * 1_000_000)
            assert found.code == 1

    def test_a_program_that_does_not_exist_or_does_not_end(self, loop: Loop) -> None:
        with pytest.raises(ProgramError, match="cannot run no-such-program: No such file"):
            run(loop, "no-such-program")
        with pytest.raises(ProgramError, match=r"sleep 100 takes longer than 0\.2 seconds"):
            run(loop, "sleep", "100", timeout=0.2)

    def test_children_of_a_program_end_with_it(self, loop: Loop) -> None:
        """A child holds the pipes open after the program was killed."""
        with pytest.raises(ProgramError, match="takes longer"):
            run(loop, "sh", "-c", "cat > /dev/null; sleep 100 & sleep 100", timeout=0.2, content="x")

    def test_children_of_a_program_end_if_its_start_is_cancelled(self, loop: Loop) -> None:
        async def cancelled_after(iterations: int) -> None:
            script = "cat > /dev/null; sleep 100 & sleep 100"
            task = asyncio.ensure_future(run_program(SystemClock(), 20.0, "sh", "-c", script, content="x"))
            for _ in range(iterations):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,), timeout=10)
            assert task.cancelled()

        with asyncio.Runner(loop_factory=loop) as runner:
            for iterations in range(1, 12):
                runner.run(cancelled_after(iterations))
