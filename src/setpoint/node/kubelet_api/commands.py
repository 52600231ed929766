"""`/exec` and `/attach`: a command in a running container, or its main program, with somebody on the other end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import cast

from setpoint.meta.clock import Clock
from setpoint.meta.websocket import is_websocket
from setpoint.node.kubelet_api import spdy_streams
from setpoint.node.kubelet_api.container_logs import container_id_of, named_container, named_pod
from setpoint.node.kubelet_api.host import NodeHost, Obj
from setpoint.node.kubelet_api.messages import Duplex, NodeAnswer, NodeRequest, Refused, Switched
from setpoint.node.kubelet_api.remote_streams import (
    PROTOCOLS,
    STATUS,
    STDERR,
    STDIN,
    STDOUT,
    SUCCESS,
    RemoteStreams,
    WebSocketStreams,
    failure,
    internal_error,
)
from setpoint.node.kubelet_api.spdy import SpdyConnection
from setpoint.node.kubelet_api.terminal import Terminal, for_terminal
from setpoint.node.kubelet_api.websocket import WebSocket, accepted
from setpoint.node.runtime import interface
from setpoint.node.runtime.interface import ContainerLog, Execution, LogLine, NoSuchContainer

_INTERRUPTED = 130
_BLINK = 0.02
_MOST_INPUT = 4 * 1024 * 1024
"""More than any program in here has use for: it is kept in memory as text."""


class Wanted:
    """Which streams the client has opened."""

    def __init__(self, request: NodeRequest) -> None:
        self.stdin, self.stdout = request.flag("input"), request.flag("output")
        self.tty = request.flag("tty")
        self.stderr = request.flag("error") and not self.tty  # a terminal has one output
        if not (self.stdin or self.stdout or self.stderr):
            raise Refused(400, "you must specify at least 1 of stdin, stdout, stderr")

    def channels(self) -> list[int]:
        """What a client that opens its streams one by one will have opened."""
        asked = ((STDIN, self.stdin), (STDOUT, self.stdout), (STDERR, self.stderr), (STATUS, True))
        return [channel for channel, opened in asked if opened]

    def channel_of(self, line: LogLine) -> int | None:
        if line.stream == interface.STDERR and not self.tty:
            return STDERR if self.stderr else None
        return STDOUT if self.stdout else None


def exec_in_container(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeAnswer:
    namespace, name, container = parts
    pod, wanted = named_pod(host, namespace, name), Wanted(request)
    argv = list(request.query.get("command", ()))
    _must_run(pod, container)

    async def run(streams: RemoteStreams) -> None:
        problem = host.command_problem(argv)
        if problem:
            streams.finish(internal_error(f"error executing command in container: {problem}"))
            return
        await host.prepare(pod, argv)
        try:
            execution = host.run_command(pod, container, argv, stdin=wanted.stdin)
        except NoSuchContainer:
            streams.finish(internal_error(f'container not found ("{container}")'))
            return
        prompt = _prompt(argv) if wanted.tty and wanted.stdin else b""
        await _Attended(execution, streams, wanted, clock, prompt).run()

    return _switched(request, wanted, run)


def attach_to_container(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeAnswer:
    """Shows what the program writes from now on, and lets it read what is typed, if it was made to."""
    namespace, name, container = parts
    pod, wanted = named_pod(host, namespace, name), Wanted(request)
    _must_run(pod, container)
    try:
        log = host.log_of(pod, container, container_id_of(pod, container, previous=False))
    except NoSuchContainer:
        raise Refused(500, f"container {container} not found in pod {name}_{namespace}") from None

    async def run(streams: RemoteStreams) -> None:
        program = host.main_program(pod, container) if wanted.stdin else None
        if program is not None:
            argv, execution = program
            prompt = _prompt(argv) if wanted.tty else b""
            once = bool(named_container(pod, container).get("stdinOnce"))
            await _Attended(execution, streams, wanted, clock, prompt, main=True, once=once).run()
            if once and execution.exit_code is None:
                execution.close_input()
            return
        showing = asyncio.ensure_future(_show(log, streams, wanted, skip=len(log.lines())))
        listening = asyncio.ensure_future(_until_gone(streams))
        await _first_of(showing, listening)
        if not showing.cancelled():
            streams.finish(SUCCESS)

    return _switched(request, wanted, run)


def _must_run(pod: Obj, container: str) -> None:
    fields = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    for field in fields:
        for each in (pod.get("status") or {}).get(field) or ():
            if each["name"] == container and "running" in (each.get("state") or {}):
                return
    raise Refused(500, f'unable to upgrade connection: container not found ("{container}")')


def _switched(request: NodeRequest, wanted: Wanted, run: Callable[[RemoteStreams], Awaitable[None]]) -> NodeAnswer:
    if is_websocket(request.headers):
        protocol, headers = accepted(request.headers, PROTOCOLS)
        return Switched(headers, _over_websocket(protocol, wanted, run))
    if spdy_streams.is_spdy(request.headers):
        protocol, headers = spdy_streams.accepted(request.repeated("x-stream-protocol-version"))
        return Switched(headers, _over_spdy(protocol, wanted, run))
    raise Refused(400, f"neither WebSocket nor SPDY/3.1: {request.headers.get('upgrade', 'nothing')}")


def _over_websocket(
    protocol: str, wanted: Wanted, run: Callable[[RemoteStreams], Awaitable[None]]
) -> Callable[[Duplex], Awaitable[None]]:
    async def talk(connection: Duplex) -> None:
        streams = WebSocketStreams(WebSocket(connection), protocol)
        # So that the client knows that all is set up.
        streams.write(STDOUT if wanted.stdout else STDERR if wanted.stderr else STATUS, b"")
        await run(streams)
        with suppress(OSError):
            await streams.drained()

    return talk


def _over_spdy(
    protocol: str, wanted: Wanted, run: Callable[[RemoteStreams], Awaitable[None]]
) -> Callable[[Duplex], Awaitable[None]]:
    async def talk(connection: Duplex) -> None:
        streams = spdy_streams.SpdyStreams(SpdyConnection(connection), protocol)
        if not await streams.open(wanted.channels()):
            return
        await run(streams)
        with suppress(OSError):
            await streams.drained()
            # It closes the connection when it has read everything; what it has not, a close from here might take away.
            while await streams.receive() is not None:
                pass

    return talk


def _prompt(argv: Sequence[str]) -> bytes:
    """Shells that read from a terminal say that they are ready."""
    return b"/ # " if len(argv) == 1 and argv[0].rpartition("/")[2] in ("sh", "bash", "ash", "dash", "zsh") else b""


async def _first_of(*tasks: asyncio.Future[None]) -> None:
    """Waits for one of them and ends the others."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def _until_gone(streams: RemoteStreams) -> None:
    while await streams.receive() is not None:
        pass


async def _show(log: ContainerLog, streams: RemoteStreams, wanted: Wanted, skip: int = 0) -> None:
    async with aclosing(cast(AsyncGenerator[LogLine, None], log.follow())) as lines:
        async for line in lines:
            if skip:
                skip -= 1
                continue
            channel = wanted.channel_of(line)
            if channel is None:
                continue
            data = line.text.encode("utf-8", "surrogateescape")
            streams.write(channel, for_terminal(data) if wanted.tty else data)
            await streams.drained()


class _Attended:
    """A command with somebody on the other end, until one of them ends."""

    def __init__(
        self,
        execution: Execution,
        streams: RemoteStreams,
        wanted: Wanted,
        clock: Clock,
        prompt: bytes,
        *,
        main: bool = False,
        once: bool = True,
    ) -> None:
        """The `main` program of a container was there before, and does not end with whoever looks at it. Unless it
        reads only `once`, another may come and type when this one has no more to say."""
        self._execution = execution
        self._streams = streams
        self._wanted = wanted
        self._clock = clock
        self._prompt = prompt
        self._main = main
        self._once = once
        self._asked = False
        self._heard = 0
        """Bytes of input so far."""
        self._terminal = Terminal()

    async def run(self) -> int | None:
        """The exit code; None: the client left before there was one."""
        tasks = [asyncio.ensure_future(each) for each in (self._work(), self._listen(), self._ask_when_ready())]
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            ended = self._execution.exit_code
            if ended is None and not self._main:
                self._execution.kill()
        for task in tasks:
            if not task.cancelled():
                with suppress(OSError):  # the client is gone
                    task.result()
        if self._heard > _MOST_INPUT:
            self._streams.finish(
                internal_error("error executing command in container: too much to read for a simulation")
            )
            return ended
        code = _INTERRUPTED if self._terminal.interrupted else ended or 0
        self._streams.finish(failure(code) if code and not self._main else SUCCESS)
        return ended

    async def _work(self) -> None:
        output = self._execution.output
        await _show(output, self._streams, self._wanted, skip=len(output.lines()) if self._main else 0)
        await self._execution.wait()

    async def _listen(self) -> None:
        """Returns when the client is gone, or wants no more."""
        while (received := await self._streams.receive()) is not None:
            if received.channel != STDIN or not self._wanted.stdin:
                continue
            self._heard += len(received.data or b"")
            if self._heard > _MOST_INPUT:
                return
            if received.data is None:
                if not self._once:
                    return  # this one has no more to say, and another may have
                self._execution.close_input()
            elif not self._wanted.tty:
                self._execution.write(received.data.decode("utf-8", "surrogateescape"))
            elif self._typed(received.data):
                return

    def _typed(self, keys: bytes) -> bool:
        """True: the person has had enough."""
        shown, passed = self._terminal.typed(keys)
        if shown:
            self._streams.write(STDOUT, shown)
        if self._terminal.interrupted:
            if not self._prompt:
                return True
            self._terminal.interrupted = False
            self._asked = False
        if passed:
            self._execution.write(passed.decode("utf-8", "surrogateescape"))
            self._asked = False
        if self._terminal.ended and self._once:
            self._execution.close_input()
        return False

    async def _ask_when_ready(self) -> None:
        """Before each line that a shell reads, and not while it is still busy with the one before."""
        while self._prompt:
            if not self._asked and self._execution.waits_for_input:
                self._asked = True
                self._streams.write(STDOUT, self._prompt)
            await self._clock.sleep(_BLINK)
