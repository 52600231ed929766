"""`setpoint`: finds the command, takes its line apart, runs it, and tells how it ended."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress

from setpoint.cli import connection
from setpoint.cli.call import Call, Surroundings
from setpoint.cli.catalog import ROOT
from setpoint.cli.command import Command, loaded
from setpoint.cli.escaping import escaped
from setpoint.cli.failures import EXPECTED, Failed, exit_code, told
from setpoint.cli.flags import Flag, Flags, UsageProblem, switch
from setpoint.cli.printing.interface import PrintProblem
from setpoint.client.transport import Unreachable
from setpoint.meta.goformat import quote

PROGRAM = "setpoint"
HELP: tuple[Flag, ...] = (
    switch("help", "h", help="Show this help"),
    switch("help-all", help="Show this help with every flag", hidden=True),
)
"""Every command has these. The help of a command with many flags names `--help-all`."""
_VERSION = switch("version", help="Print the version of this program")
_INTERRUPTED, _NOBODY_LISTENS = 130, 141


def main(words: Sequence[str] | None = None) -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:] if words is None else words, Surroundings()))


def run(words: Sequence[str], around: Surroundings) -> int:
    """One command line, in whatever surroundings; the exit code."""
    with _telling(around) as outcome:
        result = _start(list(words), around, outcome)
        if inspect.isawaitable(result):
            # Here, because `--help` and the commands that have a loop of their own need none.
            import asyncio

            with asyncio.Runner() as runner:
                result = runner.run(_finished(result))
        outcome.code = result or 0
    return outcome.code


async def run_within(words: Sequence[str], around: Surroundings) -> int:
    """As `run`, on the loop that is running."""
    with _telling(around) as outcome:
        result = _start(list(words), around, outcome)
        if inspect.isawaitable(result):
            result = await result
        outcome.code = result or 0
    return outcome.code


class _Outcome:
    code = 0
    command = PROGRAM
    fails_with = 1


@contextmanager
def _telling(around: Surroundings) -> Iterator[_Outcome]:
    """What is raised inside becomes a sentence and an exit code."""
    outcome = _Outcome()
    try:
        try:
            yield outcome
        except BrokenPipeError:
            raise
        except EXPECTED as error:
            if isinstance(error, PrintProblem):
                around.stdout.write(error.output.encode("utf-8", "surrogateescape"))
            around.stdout.flush()
            if text := told(error, outcome.command):
                around.stderr.write((escaped(text) + "\n").encode("utf-8", "surrogateescape"))
            outcome.code = exit_code(error, outcome.fails_with)
        around.stdout.flush()
        around.stderr.flush()
    except BrokenPipeError:
        # Whoever listened has had enough. The interpreter must not try to flush again at its end.
        _let_go(around)
        outcome.code = _NOBODY_LISTENS
    except KeyboardInterrupt:
        outcome.code = _INTERRUPTED


def flags_of(command: Command) -> Flags:
    """A command's own flag hides the one of the same name that all have (`create rolebinding --user`)."""
    own = {flag.name for flag in command.flags}
    shared = (flag for flag in connection.FLAGS if flag.name not in own) if command.connects else ()
    return Flags((*command.flags, *shared, *HELP, *((_VERSION,) if command is ROOT else ())))


def find_command(words: list[str], path: list[str]) -> tuple[Command, list[str]]:
    """The command that is meant, and the words that are left for it. `path` grows by the names on the way."""
    command = ROOT
    while command.children:
        # Flags of a server may stand before the name of a child that has them, though its parent has not.
        at = Flags((*connection.FLAGS, *command.flags, *HELP)).first_argument(words)
        child = command.child(words[at]) if at >= 0 else None
        if child is None:
            break
        path.append(command.name_of(words.pop(at)))
        command = loaded(child)
        if command.raw:
            break
    return command, words


def _start(words: list[str], around: Surroundings, outcome: _Outcome) -> int | Awaitable[int | None] | None:
    path = [PROGRAM]
    command, words = find_command(words, path)
    name = outcome.command = " ".join(path)
    outcome.fails_with = command.fails_with
    if command.raw:
        return _begun(command, Call(around, Flags(()).parse(["--", *words]), name))
    if command is ROOT and words and not words[0].startswith("-"):
        # Here, because programs of others are rare.
        from setpoint.cli.plugins import run_plugin

        around.stdout.flush()
        run_plugin(words, around.environment)
        raise UsageProblem(_unknown(command, words[0], name))
    flags = flags_of(command)
    if command.children and not {"-h", "--help", "--help-all"} & set(words):
        # Before the flags, which may be those of the command that was meant.
        at = flags.first_argument(words)
        if at >= 0 and (command.run is None or close_names(command, words[at])):
            raise UsageProblem(_unknown(command, words[at], name))
    line = flags.parse(words, interspersed=command.interspersed)
    values = line.values
    if command is ROOT and values.version:
        from setpoint import __version__

        around.stdout.write(f"setpoint {__version__}\n".encode())
        return 0
    if values.help or values.help_all or command.run is None:
        # Here, because most people know what they want.
        from setpoint.cli.help import help_text

        asked = values.help or values.help_all or command is ROOT
        (around.stdout if asked else around.stderr).write(help_text(command, name, every_flag=values.help_all).encode())
        return 0 if asked else 1
    for flag in dict.fromkeys(flag for flag, _ in line.values.said if flag.deprecated):
        around.stderr.write(f"Flag --{flag.name} has been deprecated, {flag.deprecated}\n".encode())
    return _begun(command, Call(around, line, name, local=command.local))


def _begun(command: Command, call: Call) -> int | Awaitable[int | None] | None:
    assert command.run is not None
    result = command.run(call)
    return _closing(result, call) if inspect.isawaitable(result) else result


async def _closing(result: Awaitable[int | None], call: Call) -> int | None:
    try:
        code = await result
    except Unreachable as error:
        if stopped := call.stopped():
            raise Failed(stopped) from None
        raise Unreachable(f"{error}{call.expired()}") from None
    finally:
        await call.close()
    if call.warned and call.flags.warnings_as_errors:
        raise Failed("1 warning received" if call.warned == 1 else f"{call.warned} warnings received")
    return code


async def _finished(result: Awaitable[int | None]) -> int | None:
    return await result


def close_names(command: Command, word: str) -> list[str]:
    """Return up to three names of subcommands that `word` may be a misspelling of."""
    # Here, because only misspelt lines need it.
    from difflib import get_close_matches

    return get_close_matches(word, [one for one, child in command.children.items() if not child.hidden], 3, 0.6)


def _unknown(command: Command, word: str, name: str) -> str:
    near = close_names(command, word)
    message = f"unknown command {quote(word)} for {quote(name)}"
    return message + ("\n\nDid you mean this?\n" + "".join(f"\t{one}\n" for one in near) if near else "")


def _let_go(around: Surroundings) -> None:
    import os

    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (around.stdout, around.stderr):
        with suppress(OSError, ValueError):  # not a file: a test's buffer
            os.dup2(nowhere, stream.fileno())
