"""The conversation of a terminal in the page.

tab -> server
{"line": "kubectl get pods"}            run a line; it is answered by `more` or, when it has ended, by `prompt`
{"input": "y\\n"}                        what is typed while a line runs; Ctrl-C is \\x03 and Ctrl-D is \\x04
{"size": [columns, rows]}
{"complete": "kubectl get po", "id": 3}
{"edited": 1, "saved": true}            the editor was closed
{"paged": true}                         the pager was closed

server -> tab
{"output": "..."}                       text with colours, cursor movements and erasing alone
{"prompt": "~", "status": 0, "read": 2, "history": [...]}    the next line can be typed; the last one has read so many
                                        characters of its input; the history is in the first message
{"read": 20000}                         a line that runs has read so many characters of its input
{"more": true}                          the line is not complete: the tab sends it again with the next one
{"busy": true}                          a line was sent while another one runs
{"raw": true}                           every key is sent as input, and not echoed, until {"raw": false}
{"completions": {"id": 3, "start": 12, "words": [["pods", ""]], "space": true, "total": 1}}
{"edit": {"id": 1, "path": "/home/user/web.yaml"}}   edit a file of the workspace
{"page": {"name": "", "text": "..."}}   show a long text
{"open": {"view": "learn", "lesson": ""}}
{"exit": 0}                             the shell has ended, and the conversation with it

The tab keeps what is typed until it is read (`keyboard.py` counts), and sends at most `WINDOW` characters more than it
knows to be read. Input that arrives when no line runs is dropped: it was sent before the tab knew that the line had
ended, and the tab takes everything behind the position in `prompt` for the next line. Thus the order of what is typed
does not depend on what crosses what.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from setpoint.cli.page_terminal.commands import Commands
from setpoint.cli.page_terminal.completion import complete
from setpoint.cli.page_terminal.disk import DiskFiles
from setpoint.cli.page_terminal.keyboard import Keyboard
from setpoint.cli.page_terminal.programs import TerminalPrograms, shown_directory
from setpoint.cli.page_terminal.screen import Output, Screen
from setpoint.cli.page_terminal.shell import INTERRUPTED, ShellLimits, TerminalShell
from setpoint.meta.errors import BadRequest, TooManyRequests
from setpoint.node.runtime.shell.session import Exit
from setpoint.node.runtime.shell.syntax import is_incomplete
from setpoint.tasks import Flag, TaskRegistry, child_tasks
from setpoint.view.terminal_text import TerminalFilter
from setpoint.web.feed import Args, Conversation, PageContext
from setpoint.web.workspace import HOME, workspace_of

MAX_TERMINALS: Final = 8
"""Terminals of a session."""
_MAX_LINE: Final = 256 * 1024
_MAX_PAGED: Final = 1 << 20
_MAX_SIZE: Final = 1000


class PageTerminals:
    """The terminals of a page server."""

    def __init__(self, suffix: Callable[[], str], limits: ShellLimits | None = None) -> None:
        """`suffix` returns random characters for unique names."""
        self._suffix = suffix
        self._limits = limits or ShellLimits()
        self._open: Counter[tuple[str, str]] = Counter()

    async def run(self, context: PageContext, args: Args, conversation: Conversation) -> None:
        """Conduct the conversation of one terminal (`RunConversation`)."""
        columns, rows = _size(args.get("size", [80, 24]))
        key = (context.user, context.session)
        if self._open[key] >= MAX_TERMINALS:
            raise TooManyRequests.of(f"A session has at most {MAX_TERMINALS} terminals. Close one.", 0)
        self._open[key] += 1
        screen = Screen(conversation, context.clock, columns, rows)
        try:
            terminal = _Terminal(context, screen, self._suffix, self._limits)
            async with child_tasks(screen.send_all()):
                await terminal.run(conversation)
        finally:
            self._open[key] -= 1
            self._open += Counter()  # forgets those without terminals


class _Terminal:
    def __init__(self, context: PageContext, screen: Screen, suffix: Callable[[], str], limits: ShellLimits) -> None:
        self._clock = context.clock
        self._workspace = workspace_of(context)
        self._screen = screen
        self._keyboard = Keyboard(screen)
        files = self._workspace.files
        shell = TerminalShell(files, HOME, context.clock, self._keyboard.buffer, screen.write, limits)
        self._shell = shell
        disk = DiskFiles(files, lambda: shell.session.directory, suffix)
        self._commands = Commands(context, shell, screen, self._keyboard, disk, self._edit, suffix)
        programs = TerminalPrograms(
            shell, screen, self._workspace, self._commands, self._edit, self._show_pages, context.clock.now
        )
        shell.install(programs.all())
        self._tasks = TaskRegistry()
        self._interrupt: Flag | None = None
        """Interrupts the line that runs; None between two lines."""
        self._completing: asyncio.Task[None] | None = None
        self._edits = 0
        self._closed: dict[int, asyncio.Future[bool]] = {}
        """The files that are being edited, by number: the result is whether they were saved."""
        self._paged: asyncio.Future[None] | None = None
        self._exited = asyncio.Event()

    async def run(self, conversation: Conversation) -> None:
        history = [each.text for each in self._workspace.typed]
        self._tasks.start(self._commands.find_address())
        directory = shown_directory(self._shell.session.directory)
        self._screen.message(prompt=directory, status=0, read=0, history=history)
        try:
            async with child_tasks(self._receive(conversation), self._exited.wait()) as tasks:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if tasks[0].done():
                    tasks[0].result()
            await self._screen.sent()
        finally:
            await self._tasks.stop()
            self._workspace.save()

    async def _receive(self, conversation: Conversation) -> bool:
        while True:
            message = await conversation.receive()
            if not isinstance(message, Mapping):
                raise BadRequest("a message to a terminal must be an object")
            self._take(message)

    def _take(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"line": str(text)}:
                self._start(text)
            case {"input": str(text)}:
                if self._interrupt is not None:
                    if self._keyboard.typed(text):
                        self._interrupt.set()
                    self._shell.notify()
            case {"size": size}:
                self._screen.resize(*_size(size))
            case {"complete": str(text), "id": int(number)}:
                if self._completing is not None:
                    self._completing.cancel()
                self._completing = self._tasks.start(self._complete(text[-_MAX_LINE:], number))
            case {"edited": int(number), "saved": bool(saved)}:
                if (closed := self._closed.get(number)) is not None and not closed.done():
                    closed.set_result(saved)
            case {"paged": True}:
                if self._paged is not None and not self._paged.done():
                    self._paged.set_result(None)
            case _:
                raise BadRequest(f"a terminal does not know this message: {', '.join(map(str, message))[:100]}")

    # -- lines ---------------------------------------------------------------------------------------------------------

    def _start(self, text: str) -> None:
        if len(text) > _MAX_LINE:
            raise BadRequest(f"a line has at most {_MAX_LINE} characters")
        if self._interrupt is not None:
            self._screen.message(busy=True)
        elif is_incomplete(text):
            self._screen.message(more=True)
        else:
            self._workspace.add_line(self._clock.now().timestamp(), text)
            self._keyboard.begin()
            self._interrupt = Flag()
            self._tasks.start(self._run_line(text, self._interrupt))

    async def _run_line(self, text: str, interrupt: Flag) -> None:
        try:
            async with child_tasks(self._shell.run(text)) as (running,), child_tasks(interrupt.wait()) as (waiting,):
                await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._interrupt = None
        if running.cancelled():
            self._screen.discard()
            self._screen.write("\x1b[0m^C\n")
            status = self._shell.session.status = INTERRUPTED
        elif isinstance(end := running.exception(), Exit):
            self._screen.message(exit=end.code)
            self._exited.set()
            return
        else:
            status = running.result()
        self._workspace.save_sometimes(self._clock.monotonic())
        directory = shown_directory(self._shell.session.directory)
        self._screen.message(prompt=directory, status=status, read=self._keyboard.position)

    async def _complete(self, text: str, number: int) -> None:
        nowhere = Output(lambda _: None, None)
        found = await complete(
            text,
            self._shell.session,
            lambda: self._commands.io(nowhere, nowhere, nowhere, self._shell.session),
        )
        self._screen.message(completions={"id": number, **found._asdict()})

    # -- the editor and the pager of the page --------------------------------------------------------------------------

    async def _edit(self, path: str) -> bool:
        self._edits += 1
        number = self._edits
        closed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._closed[number] = closed
        self._screen.message(edit={"id": number, "path": path})
        try:
            return await closed
        finally:
            del self._closed[number]
            self._screen.message(edit={"id": number, "path": ""})

    async def _show_pages(self, text: str, name: str) -> None:
        self._paged = asyncio.get_running_loop().create_future()
        shown = TerminalFilter().filtered(text[:_MAX_PAGED])
        self._screen.message(page={"name": name, "text": shown})
        try:
            await self._paged
        finally:
            self._paged = None
            self._screen.message(page=None)


def _size(value: Any) -> tuple[int, int]:
    match value:
        case [int(columns), int(rows)] if 0 < columns <= _MAX_SIZE and 0 < rows <= _MAX_SIZE:
            return columns, rows
    raise BadRequest(f"the size of a terminal must be [columns, rows], each at most {_MAX_SIZE}")
