"""An interactive session with a command in a container: forwards input and output."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple
from urllib.parse import quote as quoted

from setpoint.cli import terminal
from setpoint.cli.failures import Exit, Failed
from setpoint.cli.flags import Flag, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.pod_choice import PODS, pods_behind
from setpoint.cli.resources import choose, fetch
from setpoint.client.resources import path_of, query_of
from setpoint.client.websocket import RESIZE, STATUS, STDERR, STDIN, STDOUT, V4, V5, Channels, open_channels
from setpoint.meta.objects import Obj
from setpoint.tasks import child_tasks

_LONGEST_STATUS = 1024 * 1024
NO_TERMINAL = "Unable to use a TTY - input is not a terminal or the right kind of file"

STREAMS: tuple[Flag, ...] = (
    text("container", "c", help="Container name; the Pod's default, or its first, if omitted."),
    switch("stdin", "i", help="Pass stdin to the container"),
    switch("tty", "t", help="Stdin is a TTY"),
    switch("quiet", "q", help="Only print output from the remote session"),
)


class Session(NamedTuple):
    """The options of a session."""

    stdin: bool = False
    tty: bool = False
    detach: bytes = b""
    """The key sequence that detaches while the program continues; empty if there is none."""
    redraw: bool = False
    """Whether to send the size twice, so that a program redraws its screen."""
    feed: AsyncIterator[bytes] | None = None
    """The input; None means stdin."""
    output: Callable[[bytes], object] | None = None
    """Receives the output; None means stdout."""
    errors: Callable[[bytes], object] | None = None
    """Receives the error output; None means stderr."""


class Detached(Exception):
    """The user detached with the key sequence."""


class CommandFailed(Exit):
    """The command failed with an exit code, which becomes that of this process."""

    def __init__(self, code: int) -> None:
        super().__init__(code, f"command terminated with exit code {code}")


async def find_pod(invocation: Invocation, words: Sequence[str], doing: str, timeout: float) -> Obj:
    """Return the Pod, by name, by its owner, or from the file of `-f`."""
    targets = await fetch(invocation, await choose(invocation, words))
    if len(targets) != 1:
        raise Failed("cannot exec into multiple objects at a time")
    return (await pods_behind(invocation, targets[0], doing, timeout))[0]


def must_live(pod: Obj, doing: str) -> None:
    phase = (pod.get("status") or {}).get("phase", "")
    if phase in ("Succeeded", "Failed"):
        raise Failed(f"cannot {doing} a container in a completed pod; current phase is {phase}")


def with_terminal(invocation: Invocation, stdin: bool, tty: bool, quiet: bool) -> bool:
    """Return whether a terminal can be used; warn if it was requested and there is none."""
    if stdin and tty and not invocation.io.in_is_terminal:
        if not quiet:
            invocation.print_err(NO_TERMINAL)
        return False
    return stdin and tty


async def run_session(
    invocation: Invocation, pod: Obj, what: str, container: str, session: Session, command: Sequence[str] = ()
) -> None:
    """Run a session until the program ends or the user detaches.

    `what` is `exec` or `attach`. Raise CommandFailed, Detached, or another error.
    """
    meta = pod["metadata"]
    query = query_of(
        {
            "container": container,
            "stdin": session.stdin,
            "stdout": True,
            "stderr": not session.tty,
            "tty": session.tty,
        }
    )
    query += "".join(f"&command={quoted(word, safe='')}" for word in command)
    path = path_of(PODS, meta["namespace"], meta["name"], what)
    with ExitStack() as stack:
        if session.tty:
            stack.enter_context(terminal.raw(invocation.io.stdin))
        channels = await open_channels(invocation.client.sender, path, query, (V5, V4))
        stack.callback(channels.close)
        await _RemoteSession(invocation, channels, session, stack).run()


class _RemoteSession:
    def __init__(self, invocation: Invocation, channels: Channels, session: Session, stack: ExitStack) -> None:
        self._invocation = invocation
        self._channels = channels
        self._session = session
        self._stack = stack
        self._resized = asyncio.Event()

    async def run(self) -> None:
        directions = [self._receive()]
        if self._session.stdin:
            directions.append(self._send())
        if self._session.tty:
            self._resized.set()
            self._stack.enter_context(terminal.on_resize(self._invocation.io.stdin, self._resized.set))
            directions.append(self._measure())
        async with child_tasks(*directions) as tasks:
            # The end of the input does not end the program: only errors count.
            pending = set(tasks)
            while tasks[0] in pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()

    async def _receive(self) -> None:
        write, complain = self._session.output or self._shown, self._session.errors or self._complained
        end = b""
        while (received := await self._channels.receive()) is not None:
            channel, data = received
            if channel == STDOUT:
                write(data)
            elif channel == STDERR:
                complain(data)
            elif channel == STATUS and len(end) < _LONGEST_STATUS:
                end += data
        if end:
            _check_status(end)

    def _shown(self, data: bytes) -> None:
        self._invocation.write(data)
        self._invocation.flush()

    def _complained(self, data: bytes) -> None:
        self._invocation.io.stdout.flush()
        self._invocation.io.stderr.write(data)
        self._invocation.io.stderr.flush()

    async def _send(self) -> None:
        source = self._session.feed or terminal.pieces_of(self._invocation.io.stdin)
        keys = _Keys(self._session.detach) if self._session.detach else None
        async for piece in source:
            await self._channels.send(STDIN, keys.passed(piece) if keys is not None else piece)
            if keys is not None and keys.complete:
                raise Detached
        await self._channels.end(STDIN)

    async def _measure(self) -> None:
        extra = 1 if self._session.redraw else 0
        while True:
            await self._resized.wait()
            self._resized.clear()
            found = terminal.size(self._invocation.io.stdin)
            for more in (extra, 0) if extra else (0,):
                if found is not None:
                    size = {"Width": found[0] + more, "Height": found[1] + more}
                    await self._channels.send(RESIZE, json.dumps(size).encode())
            extra = 0


class _Keys:
    """Detects the detach sequence in the input; keys that may be its beginning are held back."""

    def __init__(self, sequence: bytes) -> None:
        self._sequence = sequence
        self._matched = 0

    @property
    def complete(self) -> bool:
        return self._matched == len(self._sequence)

    def passed(self, typed: bytes) -> bytes:
        found = bytearray()
        for key in typed:
            if key == self._sequence[self._matched]:
                self._matched += 1
                if self.complete:
                    break
                continue
            found += self._sequence[: self._matched]
            self._matched = 1 if key == self._sequence[0] else 0
            if not self._matched:
                found.append(key)
        return bytes(found)


def detach_keys(typed_value: str) -> bytes:
    """Parse `ctrl-p,ctrl-q`, or letters. Raise Failed."""
    found = bytearray()
    for key in typed_value.split(","):
        if len(key) == 1:
            found += key.encode("latin-1", "replace")
        elif key.startswith("ctrl-") and len(key) == 6 and ("a" <= key[5].lower() <= "z" or key[5] in "@[\\]^_"):
            found.append(ord(key[5].upper()) & 0x1F)
        else:
            raise Failed(f"could not bind detach keys: Unknown character: '{key}'")
    return bytes(found)


def _check_status(typed_value: bytes) -> None:
    """Check the status that the node reports. Raise CommandFailed or Failed unless it is a success."""
    try:
        status = json.loads(typed_value)
        outcome = status["status"]
    except (ValueError, TypeError, KeyError):
        raise Failed(f"error executing remote command: {typed_value.decode('utf-8', 'replace')}") from None
    if outcome == "Success":
        return
    if status.get("reason") == "NonZeroExitCode":
        causes = (status.get("details") or {}).get("causes") or ()
        code = next((str(one.get("message")) for one in causes if one.get("reason") == "ExitCode"), "")
        if not (code.isascii() and code.isdigit() and int(code) < 256):
            raise Failed("error stream protocol error: no ExitCode cause given")
        raise CommandFailed(int(code))
    raise Failed(str(status.get("message") or "the command failed, and the node does not say why"))
