"""Runs programs of the machine, such as nft and ip, to their end."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import NamedTuple

from setpoint.meta.clock import Clock
from setpoint.tasks import within


class ProgramError(Exception):
    """A program could not be started, or did not end in time."""


class ProgramResult(NamedTuple):
    code: int
    output: str
    errors: str


async def run_program(clock: Clock, timeout: float, *command: str, content: str | bytes = b"") -> ProgramResult:
    """Run a program with `content` as its input, and return what it wrote. Raise ProgramError."""
    data = content.encode() if isinstance(content, str) else content
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe if data else asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramError(f"cannot run {command[0]}: {error.strerror}") from error
    try:
        output, errors = await within(clock, timeout, _communicate(process, data))
    except TimeoutError:
        raise ProgramError(f"{' '.join(command)} takes longer than {timeout:g} seconds") from None
    finally:
        if process.returncode is None:
            # Its children too: they hold the pipes open, whose end `wait` awaits.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return ProgramResult(process.returncode or 0, output.decode(errors="replace"), errors.decode(errors="replace"))


async def _communicate(process: asyncio.subprocess.Process, data: bytes) -> tuple[bytes, bytes]:
    try:
        return await process.communicate(data or None)
    except RuntimeError:
        # With uvloop, a program that ends before it has read its input: what it wrote says why.
        return await process.communicate()
