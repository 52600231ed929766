"""`setpoint`: find the command, parse its line, run it, and report its outcome."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from setpoint.cli import connection
from setpoint.cli.catalog import HOST_ONLY, ROOT, SEQUENTIAL
from setpoint.cli.command import Command, loaded
from setpoint.cli.escaping import escaped
from setpoint.cli.failures import EXPECTED, Failed, error_text, exit_code
from setpoint.cli.flags import Flag, Flags, UsageProblem, switch
from setpoint.cli.invocation import CommandIO, Invocation
from setpoint.cli.printing.interface import PrintProblem
from setpoint.client.transport import Unreachable
from setpoint.meta.goformat import quote

PROGRAM = "setpoint"
HELP: tuple[Flag, ...] = (
    switch("help", "h", help="Show this help"),
    switch("help-all", help="Show this help with every flag", hidden=True),
)
"""Flags that every command has. The help of a command with many flags mentions `--help-all`."""
_VERSION = switch("version", help="Print the version of this program")
_INTERRUPTED, _BROKEN_PIPE = 130, 141


T = TypeVar("T")


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Run the console script."""
    code = run(sys.argv[1:] if words is None else words, CommandIO())
    _exit_at_once(code)
    sys.exit(code)


def _exit_at_once(code: int) -> None:
    """End the process unless other threads run. At a usual exit the interpreter frees all objects one by one, which
    takes a tenth of the time of a short command."""
    if "threading" in sys.modules and sys.modules["threading"].active_count() > 1:
        return
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        if "logging" in sys.modules:
            sys.modules["logging"].shutdown()
        os._exit(code)


def run(words: Sequence[str], io: CommandIO, program: str = PROGRAM) -> int:
    """Run one command line and return the exit code. `program` is the name in help and messages."""
    with _reporting_errors(io, program) as outcome:
        prepared = _prepare(list(words), io, outcome)
        outcome.code = prepared if isinstance(prepared, int) else _run(*prepared)
    return outcome.code


async def run_within(words: Sequence[str], io: CommandIO) -> int:
    """Do the same as `run`, on the running event loop."""
    with _reporting_errors(io) as outcome:
        prepared = _prepare(list(words), io, outcome)
        if isinstance(prepared, int):
            outcome.code = prepared
        else:
            result = _begin(*prepared)
            outcome.code = (result if isinstance(result, int) else await result) or 0
    return outcome.code


def _run(command: Command, invocation: Invocation) -> int:
    """Run a command to its end: without an event loop if it does one thing at a time, because `asyncio` takes longer to
    import than such a command runs; otherwise on an event loop."""
    blocking = invocation.io.may_block and _is_sequential(invocation)
    if blocking:
        invocation.io = invocation.io.blocking()
    result = _begin(command, invocation)
    if isinstance(result, int):
        return result
    if blocking:
        return run_blocking(result) or 0
    import asyncio

    with asyncio.Runner() as runner:
        return runner.run(result) or 0


def _is_sequential(invocation: Invocation) -> bool:
    _, name, *_ = *invocation.command.split(), ""
    except_with = SEQUENTIAL.get(name)
    return except_with is not None and not any(getattr(invocation.flags, flag) for flag in except_with)


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits in blocking calls alone, and so never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("a command that was declared sequential has waited for an event loop")


class _Outcome:
    code = 0
    fails_with = 1

    def __init__(self, command: str) -> None:
        self.command = command
        """The command as it was typed, without arguments; at first, the program."""


@contextmanager
def _reporting_errors(io: CommandIO, program: str = PROGRAM) -> Iterator[_Outcome]:
    """Convert exceptions of the block to an error message and an exit code."""
    outcome = _Outcome(program)
    try:
        try:
            yield outcome
        except BrokenPipeError:
            raise
        except EXPECTED as error:
            if isinstance(error, PrintProblem):
                io.stdout.write(error.output.encode("utf-8", "surrogateescape"))
            io.stdout.flush()
            if text := error_text(error, outcome.command):
                io.stderr.write((escaped(text) + "\n").encode("utf-8", "surrogateescape"))
            outcome.code = exit_code(error, outcome.fails_with)
        io.stdout.flush()
        io.stderr.flush()
    except BrokenPipeError:
        # The reader has closed the pipe. The interpreter must not flush again at exit.
        if io.on_host:
            _let_go(io)
        outcome.code = _BROKEN_PIPE
    except KeyboardInterrupt:
        outcome.code = _INTERRUPTED


def flags_of(command: Command) -> Flags:
    """Return the flags of a command; its own flag hides a common one of the same name (`create rolebinding --user`)."""
    own = {flag.name for flag in command.flags}
    shared = (flag for flag in connection.FLAGS if flag.name not in own) if command.connects else ()
    return Flags((*command.flags, *shared, *HELP, *((_VERSION,) if command is ROOT else ())))


def find_command(words: list[str], path: list[str]) -> tuple[Command, list[str]]:
    """Return the command of a line and its remaining words; its names are appended to `path`."""
    command = ROOT
    while command.children:
        # Connection flags may precede the name of a subcommand, although its parent does not have them.
        at = Flags((*connection.FLAGS, *command.flags, *HELP)).first_argument(words)
        child = command.child(words[at]) if at >= 0 else None
        if child is None:
            break
        path.append(command.name_of(words.pop(at)))
        command = loaded(child)
        if command.raw:
            break
    return command, words


def _prepare(words: list[str], io: CommandIO, outcome: _Outcome) -> tuple[Command, Invocation] | int:
    """Return the command of a line with its execution context, or the exit code if there is nothing to execute."""
    path = [outcome.command]
    command, words = find_command(words, path)
    name = outcome.command = " ".join(path)
    outcome.fails_with = command.fails_with
    if command.raw:
        return command, Invocation(io, Flags(()).parse(["--", *words]), name)
    if command is ROOT and io.on_host and words and not words[0].startswith("-"):
        # Imported here because plugins are rare.
        from setpoint.cli.verbs.plugin import run_plugin

        io.stdout.flush()
        run_plugin(words, io.environment)
        raise UsageProblem(_unknown(command, words[0], name))
    flags = flags_of(command)
    if command.children and not {"-h", "--help", "--help-all"} & set(words):
        # Checked before the flags, which may be those of the intended command.
        at = flags.first_argument(words)
        if at >= 0 and (command.run is None or close_names(command, words[at])):
            raise UsageProblem(_unknown(command, words[at], name))
    line = flags.parse(words, interspersed=command.interspersed)
    values = line.values
    if command is ROOT and values.version:
        from setpoint import __version__

        io.stdout.write(f"setpoint {__version__}\n".encode())
        return 0
    if values.help or values.help_all or command.run is None:
        # Imported here because the help is rarely needed.
        from setpoint.cli.help import help_text

        wants_help = values.help or values.help_all or command is ROOT
        (io.stdout if wants_help else io.stderr).write(help_text(command, name, every_flag=values.help_all).encode())
        return 0 if wants_help else 1
    for flag in dict.fromkeys(flag for flag, _ in line.values.occurrences if flag.deprecated):
        io.stderr.write(f"Flag --{flag.name} has been deprecated, {flag.deprecated}\n".encode())
    invocation = Invocation(io, line, name, local=command.local)
    if len(path) > 1 and path[1] in HOST_ONLY:
        invocation.require_host()
    return command, invocation


def _begin(command: Command, invocation: Invocation) -> int | Coroutine[Any, Any, int | None]:
    assert command.run is not None
    result = command.run(invocation)
    return (result or 0) if result is None or isinstance(result, int) else _closing(result, invocation)


async def _closing(result: Awaitable[int | None], invocation: Invocation) -> int | None:
    try:
        code = await result
    except Unreachable as error:
        if stopped := invocation.stopped():
            raise Failed(stopped) from None
        raise Unreachable(f"{error}{invocation.expired()}") from None
    finally:
        await invocation.close()
    if invocation.warned and invocation.flags.warnings_as_errors:
        raise Failed("1 warning received" if invocation.warned == 1 else f"{invocation.warned} warnings received")
    return code


def close_names(command: Command, word: str) -> list[str]:
    """Return up to three names of subcommands that `word` may be a misspelling of."""
    # Imported here because it is only needed for misspelt commands.
    from difflib import get_close_matches

    return get_close_matches(word, [one for one, child in command.children.items() if not child.hidden], 3, 0.6)


def _unknown(command: Command, word: str, name: str) -> str:
    matches = close_names(command, word)
    message = f"unknown command {quote(word)} for {quote(name)}"
    return message + ("\n\nDid you mean this?\n" + "".join(f"\t{one}\n" for one in matches) if matches else "")


def _let_go(io: CommandIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (io.stdout, io.stderr):
        with suppress(OSError, ValueError):  # not a file: an in-memory stream of a test
            os.dup2(nowhere, stream.fileno())
