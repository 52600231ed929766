"""Delays a shutdown of the machine, and notices it, through systemd-logind.

Logind announces a shutdown by a signal on the system bus, and waits for the holders of delay inhibitors, but not
longer than its configuration permits. The programs of systemd make the requests: `busctl` and `systemd-inhibit`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from setpoint.meta.clock import Clock
from setpoint.node.host.blocking import BlockingPool
from setpoint.tasks import within

CONFIGURATION: Final = Path("/etc/systemd/logind.conf.d/99-setpoint.conf")
"""The file that permits longer delays."""
_LOGIN: Final = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_SYSTEMD: Final = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
_RELOAD: Final = ("systemd-logind.service", "all", "1")
"""The unit, its processes, and the signal (SIGHUP) by which logind reads its configuration again."""
_SIGNAL: Final = "PrepareForShutdown"
_MATCH: Final = f"type='signal',sender='{_LOGIN[0]}',path='{_LOGIN[1]}',interface='{_LOGIN[2]}',member='{_SIGNAL}'"
_INHIBIT: Final = (
    *("--what=shutdown", "--mode=delay", "--who=setpoint"),
    "--why=The node agent needs time to end Pods",
)
_GUARD: Final = '"$@" & child=$!; exec >/dev/null 2>&1; cat; kill $child'
"""Runs a program until the standard input ends, so that it never outlives the agent."""
_TIMEOUT: Final = 10.0
_RELOAD_ATTEMPTS: Final = 5
_RELOAD_PAUSE: Final = 0.1
_SECOND: Final = 1_000_000
"""One second in the unit of logind's properties."""


class LogindError(Exception):
    """Logind could not be used; the message is the reason."""


class Logind:
    """The logind of this machine. `inhibit` and `release` may be called any number of times."""

    def __init__(
        self, pool: BlockingPool, clock: Clock, search_path: str | None = None, configuration: Path = CONFIGURATION
    ) -> None:
        """`search_path` has the programs; None means that of the process."""
        self._pool = pool
        self._clock = clock
        self._search_path = search_path
        self._configuration = configuration
        self._inhibitor: asyncio.subprocess.Process | None = None

    async def missing(self) -> str:
        """Return why logind cannot be used on this machine; empty if it can."""
        try:
            await self.max_delay()
            self._program("systemd-inhibit")
        except LogindError as error:
            return str(error)
        return ""

    async def max_delay(self) -> float:
        """Return the number of seconds for which a shutdown may be delayed. Raise LogindError."""
        return int(await self._property("InhibitDelayMaxUSec", "t")) / _SECOND

    async def permit_delay(self, seconds: float) -> None:
        """Let shutdowns be delayed by so many seconds, unless that is permitted already. Raise LogindError."""
        if await self.max_delay() >= seconds:
            return
        try:
            await self._pool.run(self._write_configuration, seconds)
        except OSError as error:
            raise LogindError(f"cannot write {self._configuration}: {error.strerror}") from None
        await self._run(
            "busctl", "--system", "call", *_SYSTEMD, "KillUnit", "ssi", "systemd-logind.service", "all", "1"
        )
        pause = _RELOAD_PAUSE
        for _ in range(_RELOAD_ATTEMPTS):
            await self._clock.sleep(pause)
            permitted = await self.max_delay()
            if permitted >= seconds:
                return
            pause *= 2
        raise LogindError(f"logind permits a delay of {permitted:g} s only, not {seconds:g} s")

    def _write_configuration(self, seconds: float) -> None:
        self._configuration.parent.mkdir(parents=True, exist_ok=True)
        text = f"# Written by setpoint, for --shutdown-grace-period.\n[Login]\nInhibitDelayMaxSec={seconds:.0f}\n"
        self._configuration.write_text(text)

    async def is_shutting_down(self) -> bool:
        """Return whether a shutdown is in progress. Raise LogindError."""
        return await self._property("PreparingForShutdown", "b") == "true"

    async def inhibit(self) -> None:
        """Delay the next shutdown until `release`, or until this process ends. Raise LogindError."""
        await self.release()
        process = await self._spawn(self._program("systemd-inhibit"), *_INHIBIT, "cat")
        assert process.stdin is not None and process.stdout is not None
        self._inhibitor = process
        # The program starts only when the inhibitor is held.
        process.stdin.write(b"\n")
        try:
            answer = await within(self._clock, _TIMEOUT, process.stdout.readline())
        except TimeoutError:
            answer = b""
        if not answer:
            await self.release()
            raise LogindError(f"systemd-inhibit failed{await _error_text(process)}")

    async def release(self) -> None:
        """Let a shutdown continue."""
        process, self._inhibitor = self._inhibitor, None
        if process is not None:
            await _end(process)

    @asynccontextmanager
    async def shutdowns(self) -> AsyncIterator[AsyncIterator[bool]]:
        """Yield the announcements from now on: True for a shutdown, False if it was cancelled. They end when the
        connection to the bus is lost. Raise LogindError."""
        options = ("--system", "--json=short", f"--match={_MATCH}", "monitor")
        process = await self._spawn("/bin/sh", "-c", _GUARD, "sh", self._program("busctl"), *options)
        try:
            yield _signals(process)
        finally:
            await _end(process)

    async def _property(self, name: str, kind: str) -> str:
        text = await self._run("busctl", "--system", "get-property", *_LOGIN, name)
        found, _, value = text.strip().partition(" ")
        if found != kind:
            raise LogindError(f"logind has no valid property {name}: {text.strip()}")
        return value

    async def _run(self, program: str, *arguments: str) -> str:
        """Return the output of a program. Raise LogindError."""
        process = await self._spawn(self._program(program), *arguments)
        try:
            output, errors = await within(self._clock, _TIMEOUT, process.communicate())
        except TimeoutError:
            raise LogindError(f"{program} does not answer") from None
        finally:
            await _end(process)
        if process.returncode:
            raise LogindError(f"{program}: {errors.decode(errors='replace').strip() or 'failed'}")
        return output.decode(errors="replace")

    def _program(self, name: str) -> str:
        found = shutil.which(name, path=self._search_path)
        if found is None:
            raise LogindError(f"there is no program {name}")
        return found

    async def _spawn(self, *command: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        try:
            return await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            raise LogindError(f"{command[0]}: {error.strerror}") from None


async def _signals(process: asyncio.subprocess.Process) -> AsyncIterator[bool]:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        announced = shutdown_announcement(line)
        if announced is not None:
            yield announced


def shutdown_announcement(line: bytes) -> bool | None:
    """Return what a line of the bus monitor announces: True for a shutdown, False for a cancelled one, None for
    neither."""
    try:
        found = json.loads(line)
        announced = found["payload"]["data"][0] if found["member"] == _SIGNAL else None
    except (ValueError, LookupError, TypeError):
        return None
    return announced if isinstance(announced, bool) else None


async def _error_text(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    text = (await process.stderr.read(1024)).decode(errors="replace").strip()
    return f": {text}" if text else ""


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a program: by the end of its standard input if it waits for that, otherwise by a signal."""
    assert process.stdin is not None
    process.stdin.close()
    if process.returncode is None:
        try:
            async with asyncio.timeout(1.0):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
