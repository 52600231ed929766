"""The programs of the terminal's shell, besides those for text and files that it shares with simulated containers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from posixpath import normpath
from typing import Final

from setpoint.cli.page_terminal.commands import Commands
from setpoint.cli.page_terminal.screen import Screen
from setpoint.cli.page_terminal.shell import TerminalShell
from setpoint.node.runtime.shell.builtins import BUILTIN_PROGRAMS
from setpoint.node.runtime.shell.file_programs import FILE_PROGRAMS
from setpoint.node.runtime.shell.interpreter import run_argv
from setpoint.node.runtime.shell.printing_programs import PRINTING_PROGRAMS
from setpoint.node.runtime.shell.session import Program, ProgramRun, Session, Streams, reads_stdin, texts
from setpoint.node.runtime.shell.system_programs import SYSTEM_PROGRAMS
from setpoint.node.runtime.shell.text_programs import TEXT_PROGRAMS
from setpoint.web.workspace import HOME, Workspace

_MAX_EDITED: Final = 512 * 1024
_CLEAR: Final = "\x1b[H\x1b[2J"
_FROM_CONTAINERS: Final = (
    *("cat", "ls", "cp", "mv", "rm", "mkdir", "rmdir", "touch", "tee", "find", "stat", "du", "diff", "cmp", "mktemp"),
    *("head", "tail", "grep", "egrep", "fgrep", "wc", "awk", "cut", "sed", "tr", "sort", "uniq", "expr"),
    *("basename", "dirname", "echo", "printf", "seq", "hexdump", "base64", "md5sum", "sha1sum", "sha256sum"),
    *("rev", "tac", "nl", "sleep", "date", "env", "printenv", "whoami", "hostname"),
)
_HELP: Final = """\
A shell on a disk in memory. Nothing of the machine that serves the page can be reached from here.

  kubectl, setpoint, k   all commands that need no files, programs or network of a machine; `kubectl --help` lists them
  why KIND/NAME          why an object is as it is; the same as `setpoint why`
  nano FILE              edit a file beside the terminal; also vi, vim, edit; `kubectl edit` opens the same editor
  lesson [NAME]          open the lessons
  watch [-n N] COMMAND   run a command every N seconds, until Ctrl-C
  less [FILE]            read a long text page by page
  history, clear, help   earlier lines, an empty screen, this text

{programs}

Pipes, redirections, here-documents, variables, $(...), if, for and while work as in sh.
Tab completes, Tab twice lists; up and down walk through earlier lines, Ctrl-R searches them; Ctrl-C interrupts.
"""


class TerminalPrograms:
    """Programs that need the terminal: its screen, the editor, the typed lines."""

    def __init__(
        self,
        shell: TerminalShell,
        screen: Screen,
        workspace: Workspace,
        commands: Commands,
        edit: Callable[[str], Awaitable[bool]],
        show_pages: Callable[[str, str], Awaitable[None]],
        now: Callable[[], datetime],
    ) -> None:
        self._shell = shell
        self._screen = screen
        self._workspace = workspace
        self._commands = commands
        self._edit = edit
        self._show_pages = show_pages
        self._now = now

    def all(self) -> dict[str, Program]:
        shared = {**FILE_PROGRAMS, **TEXT_PROGRAMS, **PRINTING_PROGRAMS, **SYSTEM_PROGRAMS}
        command, editor = self._commands.program(), self._nano
        return {
            **BUILTIN_PROGRAMS,
            **{name: shared[name] for name in _FROM_CONTAINERS if name in shared},
            "cd": _cd,
            **dict.fromkeys(("setpoint", "kubectl", "k"), command),
            "why": self._commands.program("why"),
            **dict.fromkeys(("nano", "vi", "vim", "edit"), editor),
            "clear": self._clear,
            "history": self._history,
            "help": self._help,
            "watch": self._watch,
            **dict.fromkeys(("less", "more"), reads_stdin(self._less)),
            "lesson": self._lesson,
        }

    def _clear(self, session: Session, arguments: list[str], streams: Streams) -> int:
        streams.out(_CLEAR + "\x1b[3J")
        return 0

    def _history(self, session: Session, arguments: list[str], streams: Streams) -> int:
        for number, line in enumerate(self._workspace.typed, 1):
            streams.out(f"{number:5}  {line.text}\n")
        return 0

    def _help(self, session: Session, arguments: list[str], streams: Streams) -> int:
        names = [each for each in sorted(_FROM_CONTAINERS) if session.programs and each in session.programs]
        streams.out(_HELP.format(programs=_wrapped(["cd", "pwd", *names])))
        return 0

    def _nano(self, session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
        names = [each for each in arguments if not each.startswith("-")]
        if len(names) != 1:
            streams.err("name one file: nano FILE\n")
            return 2
        path = normpath(session.path(names[0]))
        if session.files.is_directory(path):
            streams.err(f"nano: {names[0]}: Is a directory\n")
            return 1
        if len(session.files.read(path) or "") > _MAX_EDITED:
            streams.err(f"nano: {names[0]} is longer than {_MAX_EDITED // 1024} KiB\n")
            return 1

        async def edited() -> int:
            return 0 if await self._edit(path) else 1

        return (yield from self._shell.task(edited()))

    def _less(self, session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
        names = [each for each in arguments if not each.startswith("-")]
        found = [*texts(session, names, streams, "less")]
        text = "".join(each for each in found if each is not None)
        if streams.out != self._screen.write:
            streams.out(text)
        elif text:
            yield from self._shell.task(self._shown(text, names[0] if names else ""))
        return 1 if None in found else 0

    async def _shown(self, text: str, name: str) -> int:
        await self._show_pages(text, name)
        return 0

    def _watch(self, session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
        rest, seconds = list(arguments), 2.0
        while rest and rest[0].startswith("-"):
            option = rest.pop(0)
            number = rest.pop(0) if option in ("-n", "--interval") and rest else option.lstrip("-nterval=")
            if re.fullmatch(r"\d{1,4}(\.\d{1,3})?", number):
                seconds = max(float(number), 0.5)
        if not rest:
            streams.err("watch: name a command, such as `watch -n 2 kubectl get pods`\n")
            return 2
        words = ["sh", "-c", rest[0]] if len(rest) == 1 and " " in rest[0] else rest
        while True:
            parts: list[str] = []
            yield from run_argv(session, words, Streams(parts.append, parts.append, redirected=True))
            title = f"Every {seconds:g}s: {' '.join(rest)}"
            lines = "".join(parts).splitlines()[: max(self._screen.rows - 3, 5)]
            shown = "".join(f"{line}\n" for line in lines)
            streams.out(f"{_CLEAR}{title}    {self._now():%H:%M:%S}\n\n{shown}")
            yield seconds

    def _lesson(self, session: Session, arguments: list[str], streams: Streams) -> int:
        self._screen.message(open={"view": "learn", "lesson": arguments[0] if arguments else ""})
        streams.out("The lessons are shown above the terminal.\n")
        return 0


def _cd(session: Session, arguments: list[str], streams: Streams) -> int:
    target = arguments[0] if arguments else session.variables.get("HOME", HOME)
    if target == "-":
        target = session.variables.get("OLDPWD", session.directory)
    path = normpath(session.path(target))
    if not session.files.is_directory(path):
        problem = "not a directory" if session.files.is_file(path) else "no such directory"
        streams.err(f"cd: {target}: {problem}\n")
        return 1
    session.variables["OLDPWD"] = session.directory
    session.directory = session.variables["PWD"] = path
    return 0


def shown_directory(directory: str) -> str:
    """Return a directory as the prompt shows it."""
    if directory == HOME:
        return "~"
    return f"~/{directory.removeprefix(HOME + '/')}" if directory.startswith(f"{HOME}/") else directory


def _wrapped(names: list[str]) -> str:
    lines, line = list[str](), "  "
    for name in names:
        if len(line) + len(name) > 100:
            lines.append(line.rstrip())
            line = "  "
        line += f"{name} "
    return "\n".join([*lines, line.rstrip()])
