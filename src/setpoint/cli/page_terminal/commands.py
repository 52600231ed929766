"""`setpoint`, `kubectl` and `k` as programs of the terminal's shell."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from setpoint import __version__
from setpoint.cli.files import CommandFiles
from setpoint.cli.invocation import CommandIO
from setpoint.cli.page_terminal.keyboard import Keyboard
from setpoint.cli.page_terminal.screen import Output, Screen
from setpoint.cli.page_terminal.shell import TerminalShell
from setpoint.client import Client
from setpoint.client.kubeconfig import Access, KubeconfigError
from setpoint.meta.errors import ApiError
from setpoint.node.runtime.shell.session import Program, ProgramRun, Session, Streams, receive_stdin
from setpoint.web.feed import PageContext

_STDIN: Final = re.compile(r"-|-f-|--[a-z-]+=-")
"""Words that name the standard input as a file."""
_INTERACTIVE: Final = re.compile(r"--stdin(=true)?|--interactive(=true)?|-[a-z]*i[a-z]*")
_ADDRESS: Final = "https://cluster.invalid"
"""The server's address in messages, if it is not known. Commands use the connections of the page."""


class _PageClient(Client):
    """A client on the connections of the page, which stay open when the command ends."""

    async def close(self) -> None:
        pass


class Commands:
    """Runs commands of this program with the client of a session."""

    def __init__(
        self,
        context: PageContext,
        shell: TerminalShell,
        screen: Screen,
        keyboard: Keyboard,
        files: CommandFiles,
        editor: Callable[[str], Awaitable[bool]],
        suffix: Callable[[], str],
    ) -> None:
        self._context = context
        self._shell = shell
        self._screen = screen
        self._keyboard = keyboard
        self._files = files
        self._suffix = suffix
        self._editor = editor
        self._server = _ADDRESS

    async def find_address(self) -> None:
        """Ask the server for its address, which commands show. Without an answer, they show a placeholder."""
        with suppress(ApiError, ConnectionError, LookupError, TypeError):
            found = await self._context.client.sender.json("GET", "/api")
            self._server = f"https://{found['serverAddressByClientCIDRs'][0]['serverAddress']}"

    def io(self, stdin: BinaryIO, stdout: BinaryIO, stderr: BinaryIO, session: Session) -> CommandIO:
        """Return the streams, files and connections of a command. None of them gives access to the machine."""
        return CommandIO(
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            environment=dict(session.variables),
            home=Path(session.variables.get("HOME", "/")),
            clock=self._context.clock,
            connect=self._connect,
            suffix=self._suffix,
            files=self._files,
            access=Access(self._server + self._context.cluster),
            editor=self._editor,
            on_host=False,
        )

    def program(self, *before: str) -> Program:
        """Return a program that runs the command line `before` and its arguments."""

        def run(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
            return self._run([*before, *arguments], session, streams)

        return run

    def _run(self, words: list[str], session: Session, streams: Streams) -> ProgramRun:
        # Imported here because it imports the commands, which use this terminal's interfaces.
        from setpoint.cli.main import run_within

        typed = session.stdin_buffer is self._keyboard.buffer and not streams.redirected and not streams.stdin
        options = words[: words.index("--")] if "--" in words else words
        reads_all = any(_STDIN.fullmatch(word) for word in options)
        stdin: BinaryIO = self._keyboard
        if reads_all or (not typed and any(_INTERACTIVE.fullmatch(word) for word in options)):
            yield from receive_stdin(session, streams)
            stdin, streams.stdin = BytesIO(streams.stdin.encode("utf-8", "surrogateescape")), ""
        elif not typed:
            stdin = BytesIO()  # a command in a loop leaves the input of the loop alone
        out, err = self._output(streams.out), self._output(streams.err)
        return (yield from self._shell.task(run_within(words, self.io(stdin, out, err, session))))

    def _output(self, write: Callable[[str], None]) -> Output:
        if write == self._screen.write:
            return Output(write, self._screen)

        def write_on(text: str) -> None:
            write(text)
            self._shell.notify()  # the next program of a pipeline can go on

        return Output(write_on, None)

    def _connect(self, access: Access, timeout: float) -> Client:
        sender = self._context.client.sender
        if access.impersonate is not None and sender.impersonate is not None:
            raise KubeconfigError("--as cannot be used here: the page acts for another user already")
        session = f"; session {self._context.session}" if self._context.session else ""
        return _PageClient(
            sender.transport,
            sender.clock,
            user_agent=f"setpoint/v{__version__} (page{session})",
            impersonate=access.impersonate or sender.impersonate,
            discovery=self._context.client.discovery,
        )
