"""Runs programs of the machine, such as nft and ip, to their end."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import NamedTuple

from setpoint.meta.clock import Clock
from setpoint.tasks import uninterrupted, within


class ProgramError(Exception):
    """A program could not be started, or did not end in time."""


class ProgramResult(NamedTuple):
    code: int
    output: str
    errors: str


async def run_program(clock: Clock, timeout: float, *command: str, content: str | bytes = b"") -> ProgramResult:
    """Run a program with `content` as its input, and return what it wrote. Raise ProgramError."""
    data = content.encode() if isinstance(content, str) else content
    program = _Program()
    try:
        # If a start is cancelled, asyncio kills the program without its children and waits for the end of their pipes.
        await uninterrupted(program.start(command, bool(data)))
        output, errors = await within(clock, timeout, _communicate(program.process, data))
    except TimeoutError:
        raise ProgramError(f"{' '.join(command)} takes longer than {timeout:g} seconds") from None
    except OSError as error:
        raise ProgramError(f"cannot run {command[0]}: {error.strerror}") from error
    finally:
        await program.kill()
    code = program.process.returncode or 0
    return ProgramResult(code, output.decode(errors="replace"), errors.decode(errors="replace"))


class _Program:
    """A program that may be running."""

    process: asyncio.subprocess.Process

    async def start(self, command: tuple[str, ...], has_input: bool) -> None:
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe if has_input else asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )

    async def kill(self) -> None:
        """Kill the program if it runs, with its children: they hold the pipes open, whose end `wait` awaits."""
        process = getattr(self, "process", None)
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _communicate(process: asyncio.subprocess.Process, data: bytes) -> tuple[bytes, bytes]:
    try:
        return await process.communicate(data or None)
    except RuntimeError:
        # With uvloop, a program that ends before it has read its input: what it wrote says why.
        return await process.communicate()
