"""Sessions with simulated commands: the terminal that a client sees, prompts, and the limit of the input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import cast

from setpoint.meta.clock import Clock
from setpoint.node.kubelet_api.interface import StreamOptions
from setpoint.node.kubelet_api.remote_streams import (
    STDERR,
    STDIN,
    STDOUT,
    SUCCESS,
    RemoteStreams,
    failure,
    internal_error,
)
from setpoint.node.runtime import interface
from setpoint.node.runtime.interface import ContainerLog, Execution, LogLine
from setpoint.tasks import child_tasks

_INTERRUPT, _END, _BACKSPACES, _KILL_LINE = 0x03, 0x04, (0x08, 0x7F), 0x15


class Terminal:
    """A terminal in canonical mode: the program receives a line when it is complete."""

    def __init__(self) -> None:
        self._line = bytearray()
        self.end_of_input = False
        """Whether the user has typed the end-of-file character at the start of a line."""
        self.interrupted = False

    def process_keys(self, keys: bytes) -> tuple[bytes, bytes]:
        """Process typed characters. Return the echo and the bytes for the program."""
        shown, passed = bytearray(), bytearray()
        for key in keys:
            if key in (0x0D, 0x0A):
                shown += b"\r\n"
                passed += self._line + b"\n"
                self._line.clear()
            elif key == _INTERRUPT:
                shown += b"^C\r\n"
                self._line.clear()
                self.interrupted = True
            elif key == _END:
                if self._line:
                    passed += self._line
                    self._line.clear()
                else:
                    self.end_of_input = True
            elif key in _BACKSPACES:
                if self._line:
                    _drop_character(self._line)
                    shown += b"\b \b"
            elif key == _KILL_LINE:
                shown += b"\b \b" * len(self._line.decode("utf-8", "replace"))
                self._line.clear()
            elif key == 0x09 or key >= 0x20:
                self._line.append(key)
                shown.append(key)
        return bytes(shown), bytes(passed)


def _drop_character(line: bytearray) -> None:
    while line:
        last = line.pop()
        if last & 0xC0 != 0x80:  # not a continuation byte of UTF-8
            return


def for_terminal(output: bytes) -> bytes:
    return output.replace(b"\n", b"\r\n")


_INTERRUPTED = 130
_PROMPT_POLL_INTERVAL = 0.02
_MAX_INPUT = 4 * 1024 * 1024
"""The maximum of input bytes, which are buffered in memory; no simulated program needs more."""


def prompt_of(argv: Sequence[str], options: StreamOptions) -> bytes:
    """Return the prompt of an interactive shell; empty for other programs and without a terminal."""
    if not (options.tty and options.stdin):
        return b""
    return b"/ # " if len(argv) == 1 and argv[0].rpartition("/")[2] in ("sh", "bash", "ash", "dash", "zsh") else b""


def _channel_of(line: LogLine, options: StreamOptions) -> int | None:
    if line.stream == interface.STDERR and not options.tty:
        return STDERR if options.stderr else None
    return STDOUT if options.stdout else None


async def stream_output(log: ContainerLog, streams: RemoteStreams, options: StreamOptions) -> None:
    """Stream what a program writes from now on, until it ends or the client disconnects."""
    async with child_tasks(
        _stream_log(log, streams, options, skip=len(log.lines())), _wait_for_disconnect(streams)
    ) as tasks:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if not task.cancelled():
            task.result()
    if not tasks[0].cancelled():
        streams.finish(SUCCESS)


async def _wait_for_disconnect(streams: RemoteStreams) -> None:
    while await streams.receive() is not None:
        pass


async def _stream_log(log: ContainerLog, streams: RemoteStreams, options: StreamOptions, skip: int = 0) -> None:
    async with aclosing(cast(AsyncGenerator[LogLine, None], log.follow())) as lines:
        async for line in lines:
            if skip:
                skip -= 1
                continue
            channel = _channel_of(line, options)
            if channel is None:
                continue
            data = line.text.encode("utf-8", "surrogateescape")
            streams.write(channel, for_terminal(data) if options.tty else data)
            await streams.drained()


class SimulatedSession:
    """Connects the streams of a client to a command, until either side ends."""

    def __init__(
        self,
        execution: Execution,
        streams: RemoteStreams,
        options: StreamOptions,
        clock: Clock,
        prompt: bytes,
        *,
        main: bool = False,
        stdin_once: bool = True,
    ) -> None:
        """Create the connection. The `main` program of a container continues when the client disconnects. Unless
        `stdin_once` is set, another client may attach after this one has closed its input."""
        self._execution = execution
        self._streams = streams
        self._options = options
        self._clock = clock
        self._prompt = prompt
        self._main = main
        self._stdin_once = stdin_once
        self._prompted = False
        self._received_bytes = 0
        """The number of input bytes received so far."""
        self._terminal = Terminal()

    async def run(self) -> int | None:
        """Run until either side ends. Return the exit code, or None if the client disconnected first."""
        try:
            async with child_tasks(self._forward_output(), self._forward_input(), self._prompt_when_ready()) as tasks:
                await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = self._execution.exit_code
            if ended is None and not self._main:
                self._execution.kill()
        for task in tasks:
            if not task.cancelled():
                with suppress(OSError):  # the client has disconnected
                    task.result()
        if self._received_bytes > _MAX_INPUT:
            self._streams.finish(
                internal_error(
                    "error executing command in container: the input exceeds the limit of a simulated container"
                )
            )
            return ended
        code = _INTERRUPTED if self._terminal.interrupted else ended or 0
        self._streams.finish(failure(code) if code and not self._main else SUCCESS)
        return ended

    async def _forward_output(self) -> None:
        output = self._execution.output
        await _stream_log(output, self._streams, self._options, skip=len(output.lines()) if self._main else 0)
        await self._execution.wait()

    async def _forward_input(self) -> None:
        """Forward the client's input. Return when the client disconnects or ends the session."""
        while (received := await self._streams.receive()) is not None:
            if received.channel != STDIN or not self._options.stdin:
                continue
            self._received_bytes += len(received.data or b"")
            if self._received_bytes > _MAX_INPUT:
                return
            if received.data is None:
                if not self._stdin_once:
                    return  # another client may attach and send more input
                self._execution.close_input()
            elif not self._options.tty:
                self._execution.write(received.data.decode("utf-8", "surrogateescape"))
            elif self._handle_keys(received.data):
                return

    def _handle_keys(self, keys: bytes) -> bool:
        """Handle input from a terminal. Return whether the client interrupted the command."""
        shown, passed = self._terminal.process_keys(keys)
        if shown:
            self._streams.write(STDOUT, shown)
        if self._terminal.interrupted:
            if not self._prompt:
                return True
            self._terminal.interrupted = False
            self._prompted = False
        if passed:
            self._execution.write(passed.decode("utf-8", "surrogateescape"))
            self._prompted = False
        if self._terminal.end_of_input:
            self._execution.close_input()
        return False

    async def _prompt_when_ready(self) -> None:
        """Write the prompt before each line that the shell reads, once it has finished the previous one."""
        while self._prompt:
            if not self._prompted and self._execution.waits_for_input:
                self._prompted = True
                self._streams.write(STDOUT, self._prompt)
            await self._clock.sleep(_PROMPT_POLL_INTERVAL)
