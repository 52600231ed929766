"""Types lines into the terminal of the page, without a page: for solutions of lessons, and for the demo."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from setpoint.cli.page_terminal.conversation import PageTerminals
from setpoint.client import Client
from setpoint.meta.clock import Clock
from setpoint.tasks import child_tasks
from setpoint.web.feed import PageContext
from setpoint.web.workspace import HOME, PART, Workspace, Workspaces

_USER: Final = "learner"
_LONGEST: Final = 120.0
_WATCH: Final = 5.0
"""Seconds after which a command that watches is interrupted."""
INTERRUPTED: Final = 130


class Typed(NamedTuple):
    """The result of a line."""

    status: int
    output: str


class _Conversation:
    """Both directions of the conversation with the terminal, in memory."""

    def __init__(self) -> None:
        self.to_terminal: asyncio.Queue[Any] = asyncio.Queue()
        self.from_terminal: asyncio.Queue[Any] = asyncio.Queue()

    async def send(self, data: Any) -> None:
        self.from_terminal.put_nowait(data)

    async def send_bytes(self, data: bytes) -> None:
        raise AssertionError("a terminal sends no bytes")

    async def receive(self) -> Any:
        return await self.to_terminal.get()


class TypedTerminal:
    """A terminal whose lines a program types."""

    def __init__(self, conversation: _Conversation, workspace: Workspace, clock: Clock) -> None:
        self._conversation = conversation
        self._clock = clock
        self.workspace = workspace

    def write_file(self, name: str, text: str) -> None:
        """Put a file into the home directory."""
        self.workspace.files.write(f"{HOME}/{name}", text)

    async def type(self, line: str, longest: float = _LONGEST) -> Typed:
        """Run a line and return its exit code and output. A line that watches, or takes longer than `longest` seconds,
        is interrupted with Ctrl-C, and a shell in a Pod ended with Ctrl-D."""
        watches = any(word in ("--watch", "-w", "--follow") for word in line.split())
        self._conversation.to_terminal.put_nowait({"line": line})
        async with child_tasks(self._interrupt(_WATCH if watches else longest)):
            output: list[str] = []
            while True:
                message = await self._conversation.from_terminal.get()
                if "output" in message:
                    output.append(message["output"])
                elif "edit" in message and message["edit"]["path"]:
                    closed = {"edited": message["edit"]["id"], "saved": False}
                    self._conversation.to_terminal.put_nowait(closed)
                elif message.get("page"):
                    output.append(message["page"]["text"])
                    self._conversation.to_terminal.put_nowait({"paged": True})
                elif "more" in message:
                    return Typed(2, "the line is not complete\n")
                elif "exit" in message:
                    return Typed(int(message["exit"]), "".join(output))
                elif "prompt" in message:
                    status = int(message["status"])
                    return Typed(0 if watches and status == INTERRUPTED else status, "".join(output))

    async def _interrupt(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._conversation.to_terminal.put_nowait({"input": "\x03\x04"})


@asynccontextmanager
async def typed_terminal(client: Client, clock: Clock, suffix: Callable[[], str]) -> AsyncIterator[TypedTerminal]:
    """Open a terminal for a cluster while the block runs. `suffix` returns random characters for unique names."""
    workspaces, conversation = Workspaces(), _Conversation()
    context = PageContext(client, clock, "", _USER, "", {PART: workspaces})
    terminals = PageTerminals(suffix)
    async with child_tasks(terminals.run(context, {}, conversation)) as (running,):
        async with child_tasks(conversation.from_terminal.get()) as (prompt,):
            await asyncio.wait({running, prompt}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        yield TypedTerminal(conversation, workspaces.of(_USER, ""), clock)
