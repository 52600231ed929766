"""Scripts of simulated containers, run without a container."""

from __future__ import annotations

from setpoint.node.runtime.containers import BoundedLog, Process
from setpoint.node.runtime.files import Files
from setpoint.node.runtime.interface import STDOUT
from setpoint.node.runtime.shell.interpreter import run_argv
from setpoint.node.runtime.shell.session import ProgramRun, Session, Streams


def process(argv: list[str], files: Files | None = None, **environment: str) -> Process:
    log = BoundedLog()

    def begin(own: Process) -> tuple[Session, ProgramRun]:
        session = Session(lambda: environment, files or Files(), "host", lambda: own.time, own.spawn)
        write = lambda text: log.write(own.time, STDOUT, text)  # noqa: E731
        return session, run_argv(session, argv, Streams(write, write))

    return Process(begin, 0.0, log)


def run(script: str, seconds: float = 1000.0, files: Files | None = None, **environment: str) -> tuple[int | None, str]:
    found = process(["sh", "-c", script], files, **environment)
    found.advance(seconds)
    return found.exit_code, found.output.text()
