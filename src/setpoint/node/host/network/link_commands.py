"""Runs `ip` and `bridge`: reads the kernel's network state as JSON, and changes it in batches."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj
from setpoint.node.host.programs import ProgramError, ProgramResult, run_program

_TIMEOUT: Final = 10.0
_MAX_MESSAGE: Final = 300
_FAILED_LINE: Final = re.compile(r"Command failed .*:(\d+)\s*$")
_ABSENT: Final = re.compile(r'Device "\S+" does not exist|Cannot find device')


class LinkCommandError(Exception):
    """A program could not be run, or it failed; the message says which one and why."""


class LinkCommands:
    """Runs `ip` and `bridge` of iproute2 in a network namespace."""

    def __init__(self, clock: Clock, prefix: Sequence[str] = ()) -> None:
        """Create the commands. `prefix` is put before each command line, such as `nsenter --net=FILE`; empty means that
        the commands run in the namespace of this process."""
        self._clock = clock
        self._prefix = tuple(prefix)

    async def query(self, program: str, *arguments: str) -> list[Obj]:
        """Return the objects that a command lists; empty if it asks for a device that does not exist. Raise
        LinkCommandError."""
        code, output, errors = await self._run(program, *arguments)
        if code:
            if _ABSENT.search(errors):
                return []
            raise LinkCommandError(f"{program} {' '.join(arguments)}: {_shortened(errors)}")
        try:
            found = json.loads(output) if output.strip() else []
        except ValueError:
            raise LinkCommandError(f"{program} {' '.join(arguments)}: the output is not JSON") from None
        # Some versions print an empty object for each line that a filter hides.
        return [each for each in found if each]

    async def batch(self, program: str, lines: Sequence[str]) -> list[str]:
        """Run all lines, even if some fail, and return one message for each line that failed. Raise LinkCommandError if
        the program itself cannot run."""
        if not lines:
            return []
        text = "".join(f"{line}\n" for line in lines)
        code, _, errors = await self._run(program, "-force", "-batch", "-", content=text)
        return _batch_errors(program, lines, errors) if code else []

    async def _run(self, program: str, *arguments: str, content: str = "") -> ProgramResult:
        try:
            return await run_program(self._clock, _TIMEOUT, *self._prefix, program, *arguments, content=content)
        except ProgramError as error:
            raise LinkCommandError(str(error)) from None


def _batch_errors(program: str, lines: Sequence[str], errors: str) -> list[str]:
    """Attribute the messages of a batch to its lines. Each message precedes the line that names the number."""
    found, message = [], ""
    for line in errors.splitlines():
        failed = _FAILED_LINE.match(line)
        if failed is None:
            message = f"{message} {line}".strip()
            continue
        number = int(failed[1]) - 1
        command = lines[number] if number < len(lines) else line
        found.append(f"{program} {command}: {_shortened(message or 'failed')}")
        message = ""
    return found or [f"{program}: {_shortened(errors)}"]


def _shortened(text: str) -> str:
    return " ".join(text.split())[:_MAX_MESSAGE]
