"""What `up` prints while a start takes long, and what it leaves behind when it is interrupted."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from command_line import typed_offline

from setpoint.cli import up
from setpoint.cli.invocation import Invocation


class Call:
    """The parts of an Invocation that the progress uses."""

    def __init__(self, *, terminal: bool = False, quiet: bool = False) -> None:
        self.io = SimpleNamespace(out_is_terminal=terminal)
        self.flags = SimpleNamespace(quiet=quiet)
        self.printed: list[str] = []

    def print(self, text: str, end: str = "\n") -> None:
        self.printed.append(text + end)

    print_err = print

    def flush(self) -> None:
        pass

    @property
    def invocation(self) -> Invocation:
        return cast(Invocation, self)


def steps(call: Call, *seconds_and_steps: tuple[float, str]) -> list[str]:
    """Return what is printed if each step is reported at its second."""
    now = [0.0]
    progress = up._Progress(call.invocation, lambda: now[0])
    for second, what in seconds_and_steps:
        now[0] = second
        progress.step(what)
    return call.printed


def test_without_a_terminal_a_step_that_takes_long_is_printed_once() -> None:
    waits = [(float(second), "wait for a quorum") for second in range(1, 60)]
    assert steps(Call(), (0, "etcd"), *waits, (60, "the API server")) == ["Starting: wait for a quorum\n"]
    assert steps(Call(quiet=True), *waits) == []


def test_on_a_terminal_every_step_is_shown() -> None:
    printed = steps(Call(terminal=True), (0, "etcd"), (1, "the API server"))
    assert [text.rpartition("Starting: ")[2] for text in printed] == ["etcd", "the API server"]


def test_lines_of_the_background_process_are_relayed_once(tmp_path: Path) -> None:
    call, log = Call(), tmp_path / "up.log"
    log.write_text("a warning\nStarting: etcd\nan incomplete li")
    relayed = up._relay(call.invocation, log, 0)
    with log.open("a") as file:
        file.write("ne\nA cluster with 3 nodes is ready\nCtrl-C stops it\n")
    relayed = up._relay(call.invocation, log, relayed)
    assert up._relay(call.invocation, log, relayed) == relayed
    assert call.printed == ["a warning\n", "Starting: etcd\n", "an incomplete line\n"]


@pytest.mark.parametrize("end", ["error: port 6443 is in use", "Traceback (most recent call last):"])
def test_the_failure_of_the_background_process_is_not_relayed(tmp_path: Path, end: str) -> None:
    call, log = Call(), tmp_path / "up.log"
    log.write_text(f"a warning\n{end}\n")
    up._relay(call.invocation, log, 0)
    assert call.printed == ["a warning\n"]


def test_an_interrupted_start_in_the_background_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        pid, terminated = 0, False

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def poll(self) -> int | None:
            raise KeyboardInterrupt

        def terminate(self) -> None:
            Process.terminated = True

    monkeypatch.setattr(subprocess, "Popen", Process)
    assert typed_offline(f"up --detach --data-dir {tmp_path / 'data'}", tmp_path).code != 0
    assert Process.terminated
