"""What a running shell has: variables, files, streams, and how it waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from setpoint.node.runtime.files import Files
from setpoint.node.runtime.network import Network, NoNetwork

if TYPE_CHECKING:
    from setpoint.node.runtime.shell.tree import Script

FOREVER = float("inf")
WAIT_FOR_JOBS = -1.0
WAIT_FOR_INPUT = -2.0
"""Until a whole line is there, or the end of the input."""
WAIT_FOR_TEXT = -3.0
"""Until any input is there, or its end."""

Running = Generator[float, None, int]
"""Yields how long it waits: seconds, or one of the special values above. Returns the exit code."""


class Exit(Exception):
    """The shell ends."""

    def __init__(self, code: int) -> None:
        self.code = code


class Break(Exception):
    pass


class Continue(Exception):
    pass


class Return(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


@dataclass(slots=True)
class Streams:
    out: Callable[[str], None]
    err: Callable[[str], None]
    stdin: str = ""


@dataclass(slots=True)
class Input:
    """What somebody types, as far as it was not read yet."""

    text: str = ""
    closed: bool = True


@dataclass(slots=True)
class Session:
    environment: Callable[[], dict[str, str]]
    files: Files
    hostname: str
    now: Callable[[], float]
    spawn: Callable[[Running], int]
    """Runs something beside what runs already, and returns its process number."""
    unknown_runs: bool = True
    """What an unknown program does: runs for ever (as servers do), or succeeds at once."""
    complete: bool = False
    """Everything that the image has is known: a program that is not simulated does not exist."""
    typed: Input = field(default_factory=Input)
    directory: str = "/"
    network: Network = field(default_factory=NoNetwork)
    serve: Callable[[list[str]], None] = lambda argv: None
    """Is called with the command line of a server when the shell starts one."""
    kill: Callable[[int, str], bool] = lambda pid, signal: False
    """Sends a signal to a process of the container; false if there is none of that number."""
    processes: Callable[[], Sequence[str]] = tuple
    """What runs in the container already, the first process first."""
    name: str = "sh"
    """By which the shell was called."""
    status: int = 0
    last_job: int = 0
    """The process number of what was last started in the background."""
    arguments: tuple[str, ...] = ()
    traps: dict[str, str] = field(default_factory=dict)
    signal: str = ""
    """A signal that came and has a trap that did not run yet."""
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
"""Either returns its exit code, or is a generator that does."""


def texts(session: Session, names: list[str], streams: Streams, who: str) -> Iterator[str | None]:
    """The contents of the files, or of the input; None, after a complaint, for one that is missing."""
    for name in names or ["-"]:
        if name == "-":
            yield streams.stdin
            streams.stdin = ""
            continue
        text = session.files.read(session.path(name))
        if text is None:
            what = "Is a directory" if session.files.is_directory(session.path(name)) else "No such file or directory"
            streams.err(f"{who}: can't open '{name}': {what}\n")
        yield text


def number(text: str) -> int:
    """As programs read it; what is none is 2, the code of bad usage."""
    return int(text) if re.fullmatch(r"-?\d{1,9}", text) else 2
