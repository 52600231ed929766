"""A terminal of the page whose tab is a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from conversations import TestConversation

from setpoint.cli.page_terminal.conversation import PageTerminals
from setpoint.cli.page_terminal.shell import ShellLimits
from setpoint.client import Client
from setpoint.meta.clock import Clock
from setpoint.tasks import child_tasks
from setpoint.web.feed import PageContext
from setpoint.web.workspace import PART, Workspace, Workspaces


class TypedTerminal:
    """Lines that a test types, and what the terminal shows."""

    def __init__(self, conversation: TestConversation, workspace: Workspace) -> None:
        self.conversation = conversation
        self.workspace = workspace
        self.status = 0

    @property
    def sent(self) -> list[Any]:
        return self.conversation.sent

    def shown_since(self, at: int) -> str:
        return "".join(each.get("output", "") for each in self.sent[at:])

    async def __call__(self, line: str) -> str:
        """Type a line, wait for its end, and return what it shows."""
        at = len(self.sent)
        self.conversation.say({"line": line})
        await self.until(at, "prompt", "more", "exit")
        last = self.sent[-1]
        self.status = last.get("status", 0)
        return self.shown_since(at)

    def start(self, line: str) -> int:
        """Type a line without waiting, and return the number of messages before it."""
        at = len(self.sent)
        self.conversation.say({"line": line})
        return at

    async def until(self, at: int, *kinds: str) -> Any:
        """Wait for a message of one of these kinds since `at`, and return it."""

        def found() -> list[Any]:
            return [each for each in self.sent[at:] if any(kind in each for kind in kinds)]

        await self.conversation.until(lambda: bool(found()))
        return found()[0]

    async def until_shown(self, at: int, text: str) -> None:
        await self.conversation.until(lambda: text in self.shown_since(at))

    async def completions(self, line: str) -> list[str]:
        at = len(self.sent)
        self.conversation.say({"complete": line, "id": 1})
        found = await self.until(at, "completions")
        return [word for word, _ in found["completions"]["words"]]


@asynccontextmanager
async def page_terminal(
    client: Client,
    clock: Clock,
    *,
    workspaces: Workspaces | None = None,
    limits: ShellLimits | None = None,
    size: tuple[int, int] = (100, 40),
) -> AsyncIterator[TypedTerminal]:
    numbers = iter(range(10_000, 99_999))
    parts = {PART: workspaces or Workspaces()}
    context = PageContext(client, clock, "", "admin", "s", parts)
    terminals = PageTerminals(lambda: str(next(numbers)), limits)
    conversation = TestConversation()
    async with child_tasks(terminals.run(context, {"size": list(size)}, conversation)) as (running,):
        terminal = TypedTerminal(conversation, parts[PART].of("admin", ""))
        await terminal.until(0, "prompt")
        yield terminal
        if running.done() and not running.cancelled():
            running.result()
