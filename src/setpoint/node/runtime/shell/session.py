"""The state of a running shell: variables, files, streams, standard input, and how a program waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from setpoint.node.runtime.files import Files
from setpoint.node.runtime.network import Network, NoNetwork

if TYPE_CHECKING:
    from setpoint.node.runtime.shell.syntax_tree import Script


FOREVER = float("inf")
WAIT_FOR_JOBS = -1.0
WAIT_FOR_INPUT = -2.0
"""Wait for a whole line, or the end of the input."""
WAIT_FOR_TEXT = -3.0
"""Wait for any input, or its end."""
WAIT_FOR_EVENT = -4.0
"""Wait until something has happened that the program has asked its caller for, such as the end of a task, or for
input. The program may be resumed before that, and checks by itself."""

MAX_VALUE = 1 << 20
"""The maximum number of characters of a variable."""
MAX_ARGUMENTS = 2 << 20
"""The maximum number of characters of the words of a command, as on Linux."""
MAX_WORDS = 1 << 15
"""The maximum number of words of a command."""
_MAX_OPERANDS_TEXT = 8 << 20
"""The maximum number of characters in the files that a program is given."""
_MAX_OUTPUT = 8 << 20
"""The maximum number of characters that a program prints of what it makes from its arguments."""
_PIECE = 32
"""The characters as which a piece of such output counts besides its own, because it takes time too."""

ProgramRun = Generator[float, None, int]
"""A running program. It yields how long it waits, in seconds or as one of the values above, and returns its exit
code."""


class Exit(Exception):
    """Ends the shell."""

    def __init__(self, code: int) -> None:
        self.code = code


class Aborted(Exit):
    """Ends a script because of an error; a shell that reads typed lines goes on with the next line."""


class Break(Exception):
    pass


class Continue(Exception):
    pass


class Return(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


@dataclass(slots=True)
class Streams:
    """The standard streams of a program."""

    out: Callable[[str], None]
    err: Callable[[str], None]
    stdin: str = ""
    redirected: bool = False
    """Whether the input is `stdin` alone, from a file or a pipe, even if that is empty."""


@dataclass(slots=True)
class StdinBuffer:
    """Input of an attached client, or of a pipe, that no program has read yet."""

    text: str = ""
    closed: bool = True


@dataclass(slots=True)
class Session:
    """The environment of a shell and of the programs that it runs."""

    environment: Callable[[], dict[str, str]]
    files: Files
    hostname: str
    now: Callable[[], float]
    spawn: Callable[[ProgramRun], int]
    """Starts a background job and returns its process id."""
    unknown_programs_run: bool = True
    """Whether an unknown program runs forever, as a server does, or succeeds at once."""
    image_fully_known: bool = False
    """Whether the image has no programs besides the simulated ones."""
    stdin_buffer: StdinBuffer = field(default_factory=StdinBuffer)
    directory: str = "/"
    network: Network = field(default_factory=NoNetwork)
    on_server_start: Callable[[list[str]], None] = lambda argv: None
    """Called with the command line of a server when the shell starts one."""
    kill: Callable[[int, str], bool] = lambda pid, signal: False
    """Sends a signal to a process of the container; returns False if the process does not exist."""
    processes: Callable[[], Sequence[str]] = tuple
    """Returns the command lines of the container's processes, the first process first."""
    name: str = "sh"
    """The name by which the shell was called."""
    max_text: int = 64 << 20
    """The maximum number of characters that a program reads as a whole, or that a command substitution captures."""
    programs: Mapping[str, Program] | None = None
    """The programs by name; None means all that are simulated for containers."""
    wake_after: Callable[[float], None] | None = None
    """Resumes a program that yields WAIT_FOR_EVENT after so many seconds. The programs of a pipeline run concurrently
    if it is there, and otherwise one after another."""
    status: int = 0
    last_job: int = 0
    """The process id of the last background job; 0 if there was none."""
    arguments: tuple[str, ...] = ()
    traps: dict[str, str] = field(default_factory=dict)
    signal: str = ""
    """A pending signal whose trap has not run yet; empty if there is none."""
    functions: dict[str, Script] = field(default_factory=dict)
    exit_on_failure: bool = False
    _variables: dict[str, str] | None = None

    @property
    def variables(self) -> dict[str, str]:
        if self._variables is None:
            self._variables = {
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOSTNAME": self.hostname,
                "HOME": "/root",
                **self.environment(),
            }
        return self._variables

    def path(self, name: str) -> str:
        return name if name.startswith("/") else f"{self.directory.rstrip('/')}/{name}"


Program = Callable[[Session, list[str], Streams], Any]
"""A program: returns its exit code, or a generator that does."""


def texts(session: Session, names: list[str], streams: Streams, who: str) -> Iterator[str | None]:
    """Yield the contents of the files, or of the input; None, after an error message, for a missing file.

    Raises Aborted if the files are too large."""
    size = 0
    for name in names or ["-"]:
        if name == "-":
            yield streams.stdin
            streams.stdin = ""
            continue
        text = session.files.read(session.path(name))
        if text is None:
            what = "Is a directory" if session.files.is_directory(session.path(name)) else "No such file or directory"
            streams.err(f"{who}: can't open '{name}': {what}\n")
        size += len(text or "")
        if size > _MAX_OPERANDS_TEXT:
            streams.err(f"{who}: more than {_MAX_OPERANDS_TEXT >> 20} MiB of files\n")
            raise Aborted(1)
        yield text


class OutputMeter:
    """Ends the script of a program that prints more than it may. A few arguments can make any amount of output."""

    def __init__(self, streams: Streams, who: str) -> None:
        self._streams = streams
        self._who = who
        self._size = 0

    def count(self, text: str) -> str:
        """Return the text, which will be a part of the output. Raises Aborted."""
        self._size += len(text) + _PIECE
        if self._size > _MAX_OUTPUT:
            self._streams.err(f"{self._who}: more than {_MAX_OUTPUT >> 20} MiB of output\n")
            raise Aborted(1)
        return text


def parse_integer(text: str) -> int:
    """Parse an integer; return 2, the exit code of wrong usage, for anything else."""
    return int(text) if re.fullmatch(r"-?\d{1,9}", text) else 2


def parse_options(arguments: list[str], with_value: frozenset[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options, with values for those in `with_value`, and the operands."""
    found: dict[str, str] = {}
    words: list[str] = []
    rest = list(arguments)
    while rest:
        each = rest.pop(0)
        if each.startswith("--") and len(each) > 2:
            name, equals, value = each[2:].partition("=")
            found[name] = value if equals or name not in with_value or not rest else rest.pop(0)
        elif each.startswith("-") and len(each) > 1:
            letters = each[1:]
            while letters:
                letter, letters = letters[0], letters[1:]
                found[letter] = ""
                if letter in with_value:
                    found[letter], letters = letters or (rest.pop(0) if rest else ""), ""
        else:
            words.append(each)
    return found, words


def flags_of(arguments: list[str]) -> dict[str, str]:
    """Parse flags in the forms `--name=value`, `--name value` and `--name`."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        if not equals and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        found[name] = value
    return found


def stdin_arrives(session: Session, arguments: list[str], streams: Streams, max_operands: int = 0) -> bool:
    """Return whether a program reads input that may not have arrived yet. It reads files instead if it has more than
    `max_operands` operands."""
    stdin_buffer = session.stdin_buffer
    if streams.stdin or streams.redirected or (stdin_buffer.closed and not stdin_buffer.text):
        return False
    return sum(not each.startswith("-") for each in arguments) <= max_operands


def reads_stdin(program: Program, max_operands: int = 0) -> Program:
    """Let a program read the input of an attached client up to its end, if nothing is piped to it. It reads files
    instead if it has more than `max_operands` operands."""

    def run(session: Session, arguments: list[str], streams: Streams) -> Any:
        if not stdin_arrives(session, arguments, streams, max_operands):
            return program(session, arguments, streams)
        return _after_stdin_closed(program, session, arguments, streams)

    return run


def receive_stdin(session: Session, streams: Streams) -> Generator[float, None, None]:
    """Wait for the end of the input, and make it the text `streams.stdin`."""
    if not stdin_arrives(session, [], streams):
        return
    stdin_buffer, pieces, size = session.stdin_buffer, list[str](), 0
    while True:
        pieces.append(stdin_buffer.text)
        size, stdin_buffer.text = size + len(stdin_buffer.text), ""
        if stdin_buffer.closed:
            break
        if size > session.max_text:
            streams.err(f"{session.name}: more than {session.max_text >> 20} MiB of input\n")
            raise Aborted(1)
        yield WAIT_FOR_INPUT
    streams.stdin = "".join(pieces)


def _after_stdin_closed(program: Program, session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    yield from receive_stdin(session, streams)
    result = program(session, arguments, streams)
    return int(result) if isinstance(result, int) else (yield from result)


def streams_stdin(program: Program, max_operands: int = 0) -> Program:
    """Like `reads_stdin`, for a program that processes its input as it arrives."""

    def run(session: Session, arguments: list[str], streams: Streams) -> Any:
        if not stdin_arrives(session, arguments, streams, max_operands):
            return program(session, arguments, streams)
        return _as_stdin_arrives(program, session, arguments, streams)

    return run


def _as_stdin_arrives(program: Program, session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    stdin_buffer, status = session.stdin_buffer, 0
    while True:
        if stdin_buffer.text:
            streams.stdin, stdin_buffer.text = stdin_buffer.text, ""
            status = int(program(session, arguments, streams))
        if stdin_buffer.closed:
            return status
        yield WAIT_FOR_TEXT


def filters_lines(program: Program, max_operands: int = 0) -> Program:
    """Like `streams_stdin`, for a program that processes each line by itself. Its exit code is the best one."""

    def run(session: Session, arguments: list[str], streams: Streams) -> Any:
        if not stdin_arrives(session, arguments, streams, max_operands):
            return program(session, arguments, streams)
        return _as_lines_arrive(program, session, arguments, streams)

    return run


def _as_lines_arrive(program: Program, session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    stdin_buffer, status = session.stdin_buffer, -1
    while True:
        end = len(stdin_buffer.text) if stdin_buffer.closed else stdin_buffer.text.rfind("\n") + 1
        if end:
            streams.stdin, stdin_buffer.text = stdin_buffer.text[:end], stdin_buffer.text[end:]
            found = int(program(session, arguments, streams))
            status = found if status < 0 else min(status, found)
        if stdin_buffer.closed and not stdin_buffer.text:
            return status if status >= 0 else int(program(session, arguments, streams))
        yield WAIT_FOR_INPUT


def reads_stdin_line(program: Program) -> Program:
    """Like `reads_stdin`, for a program that reads a single line."""

    def run(session: Session, arguments: list[str], streams: Streams) -> Any:
        if not stdin_arrives(session, [], streams):
            return program(session, arguments, streams)
        return _after_stdin_line(program, session, arguments, streams)

    return run


def _after_stdin_line(program: Program, session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    stdin_buffer = session.stdin_buffer
    while "\n" not in stdin_buffer.text and not stdin_buffer.closed:
        yield WAIT_FOR_INPUT
    line, newline, stdin_buffer.text = stdin_buffer.text.partition("\n")
    streams.stdin = line + newline
    result = program(session, arguments, streams)
    return int(result) if isinstance(result, int) else (yield from result)
