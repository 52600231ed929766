"""The builtins of the shell (flow, variables, conditions, signals), and programs that run other programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice, zip_longest

from setpoint.node.runtime.shell.session import (
    MAX_ARGUMENTS,
    Break,
    Continue,
    Exit,
    Program,
    ProgramRun,
    Return,
    Session,
    Streams,
    parse_integer,
    parse_options,
    reads_stdin_line,
    receive_stdin,
)

_SIGNALS = {"0": "", "1": "HUP", "2": "INT", "3": "QUIT", "9": "KILL", "10": "USR1", "12": "USR2", "15": "TERM"}
PREFIXES = ("command", "builtin", "nohup", "env", "sudo", "tini", "dumb-init", "time", "nice", "setsid", "stdbuf")
"""Programs that only run the command behind their options."""
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MAX_RUNS, _MAX_AT_ONCE = 10_000, 5_000


def _exit(session: Session, arguments: list[str], streams: Streams) -> int:
    raise Exit(parse_integer(arguments[0]) & 255 if arguments else session.status)


def _return(session: Session, arguments: list[str], streams: Streams) -> int:
    raise Return(parse_integer(arguments[0]) & 255 if arguments else session.status)


def _break(session: Session, arguments: list[str], streams: Streams) -> int:
    raise Break


def _continue(session: Session, arguments: list[str], streams: Streams) -> int:
    raise Continue


def _true(session: Session, arguments: list[str], streams: Streams) -> int:
    return 0


def _false(session: Session, arguments: list[str], streams: Streams) -> int:
    return 1


def _export(session: Session, arguments: list[str], streams: Streams) -> int:
    for each in arguments:
        name, equals, value = each.partition("=")
        if equals:
            session.variables[name] = value
    return 0


def _unset(session: Session, arguments: list[str], streams: Streams) -> int:
    for name in arguments:
        session.variables.pop(name, None)
    return 0


def _set(session: Session, arguments: list[str], streams: Streams) -> int:
    for each in arguments:
        if re.fullmatch("-[a-z]*e[a-z]*", each):
            session.exit_on_failure = True
        elif re.fullmatch(r"\+[a-z]*e[a-z]*", each):
            session.exit_on_failure = False
    return 0


def _shift(session: Session, arguments: list[str], streams: Streams) -> int:
    session.arguments = session.arguments[parse_integer(arguments[0]) if arguments else 1 :]
    return 0


def _cd(session: Session, arguments: list[str], streams: Streams) -> int:
    session.directory = session.path(arguments[0]) if arguments else "/root"
    return 0


def _pwd(session: Session, arguments: list[str], streams: Streams) -> int:
    streams.out(session.directory + "\n")
    return 0


def _read(session: Session, arguments: list[str], streams: Streams) -> int:
    line, newline, rest = streams.stdin.partition("\n")
    streams.stdin = rest
    names = [each for each in arguments if not each.startswith("-")] or ["REPLY"]
    values = line.split(None, len(names) - 1)
    for name, value in zip_longest(names, values, fillvalue=""):
        session.variables[name] = value
    return 0 if newline or line else 1


def _signal_of(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the signal of the arguments, empty for none, and the other words."""
    words, signal = list(arguments), "TERM"
    if words and re.fullmatch("-[A-Z0-9]+", words[0]):
        named = words.pop(0)[1:]
        signal = _SIGNALS.get(named, named.removeprefix("SIG"))
    elif words[:1] == ["-s"] and len(words) > 1:
        signal, words = words[1].removeprefix("SIG"), words[2:]
    return signal, words


def _kill(session: Session, arguments: list[str], streams: Streams) -> int:
    signal, words = _signal_of(arguments)
    status = 0 if words else 1
    for word in words:
        if not word.isdigit():
            streams.err(f"{session.name}: kill: invalid number '{word}'\n")
            status = 1
        elif word == "1" and signal in session.traps:
            session.signal = signal
        elif not session.kill(int(word), signal):
            streams.err(f"{session.name}: can't kill pid {word}: No such process\n")
            status = 1
    return status


def _kill_by_name(session: Session, arguments: list[str], streams: Streams) -> int:
    signal, words = _signal_of(arguments)
    names = [each for each in words if not each.startswith("-")]
    status = 0 if names else 1
    first = next(iter(session.processes()), "").partition(" ")[0].rpartition("/")[2]
    for name in names:
        if name != first or not session.kill(1, signal):
            streams.err(f"killall: {name}: no process killed\n")
            status = 1
    return status


def _test(session: Session, arguments: list[str], streams: Streams) -> int:
    words = list(arguments)
    if words and words[-1] in ("]", "]]"):
        words.pop()
    return 0 if _evaluate_test(session, words) else 1


def _evaluate_test(session: Session, words: list[str]) -> bool:
    for connective, take in (("-o", any), ("||", any), ("-a", all), ("&&", all)):
        if connective in words[1:-1]:
            at = words.index(connective, 1)
            return take((_evaluate_test(session, words[:at]), _evaluate_test(session, words[at + 1 :])))
    if words and words[0] == "!":
        return not _evaluate_test(session, words[1:])
    if not words:
        return False
    if len(words) == 1:
        return bool(words[0])
    files = session.files
    if len(words) == 2:
        path = session.path(words[1])
        match words[0]:
            case "-f" | "-r" | "-w" | "-x":
                return files.is_file(path) or (words[0] != "-f" and files.is_directory(path))
            case "-e":
                return files.is_file(path) or files.is_directory(path)
            case "-L" | "-h":
                return bool(files.link_at(path))
            case "-d":
                return files.is_directory(path)
            case "-s":
                return bool(files.read(path))
            case "-n":
                return bool(words[1])
            case "-z":
                return not words[1]
        return False
    left, operator, right = words[:3]
    if operator in ("=", "=="):
        return left == right
    if operator == "!=":
        return left != right
    if not all(re.fullmatch(r"[-+]?\d{1,18}", each.strip()) for each in (left, right)):
        return False
    first, second = int(left), int(right)
    comparisons = {
        "-eq": first == second,
        "-ne": first != second,
        "-lt": first < second,
        "-le": first <= second,
        "-gt": first > second,
        "-ge": first >= second,
    }
    return comparisons.get(operator, False)


BUILTIN_PROGRAMS: dict[str, Program] = {
    "exit": _exit,
    "return": _return,
    "break": _break,
    "continue": _continue,
    "true": _true,
    ":": _true,
    "false": _false,
    "export": _export,
    "local": _export,
    "readonly": _export,
    "declare": _export,
    "typeset": _export,
    "unset": _unset,
    "set": _set,
    "shift": _shift,
    "cd": _cd,
    "pwd": _pwd,
    "read": reads_stdin_line(_read),
    "test": _test,
    "[": _test,
    "[[": _test,
    "kill": _kill,
    "killall": _kill_by_name,
    "pkill": _kill_by_name,
}


RunProgram = Callable[[Session, list[str], Streams], ProgramRun]
"""Runs a program with its arguments."""


def prefixed(run: RunProgram, session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    rest = list(arguments)
    while rest and (rest[0].startswith("-") or "=" in rest[0]):
        key, equals, value = rest.pop(0).partition("=")
        if equals:
            session.variables[key] = value
        elif key == "-n" and rest:
            rest.pop(0)  # the value of nice's -n
    return (yield from run(session, rest, streams)) if rest else 0


def timeout(run: RunProgram, session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        if rest.pop(0) in ("-k", "-s") and rest:
            rest.pop(0)
    if len(rest) < 2:
        return 125
    match = re.fullmatch(r"([0-9.]+)([smhd]?)", rest[0])
    if match is None:
        return 125
    left = float(match[1]) * _UNITS[match[2]]
    running = run(session, rest[1:], streams)
    while True:
        try:
            pause = next(running)
        except StopIteration as ended:
            return int(ended.value)
        if pause >= left:
            yield left
            running.close()
            return 143
        left -= max(pause, 0.0)
        yield pause


def xargs(run: RunProgram, session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    """Run a command with the words of the input as arguments: all at once, -n at a time, or each in place of -I."""
    rest, options = list(arguments), {}
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        letter, value = rest[0][1], rest.pop(0)[2:]
        options[letter] = value or (rest.pop(0) if letter in "nILPds" and rest else "")
    command = rest or ["echo"]
    yield from receive_stdin(session, streams)
    text, streams.stdin = streams.stdin, ""
    words = text.split("\0") if "0" in options else text.split("\n") if "I" in options else text.split()
    words = [each for each in words if each]
    number = options.get("n", "")
    size = min(int(number) if re.fullmatch("[0-9]{1,9}", number) else _MAX_AT_ONCE, _MAX_AT_ONCE) or _MAX_AT_ONCE
    place = options.get("I") or "{}"
    if "I" in options:
        if sum(part.count(place) for part in command) * max(map(len, words), default=0) > MAX_ARGUMENTS:
            streams.err("xargs: argument list too long\n")
            return 1
        lines = ([part.replace(place, word) for part in command] for word in words)
    else:
        lines = ([*command, *words[at : at + size]] for at in range(0, len(words), size))
        if not words and "r" not in options:
            lines = (each for each in [command])
    status = 0
    for line in islice(lines, _MAX_RUNS):
        if (yield from run(session, line, Streams(streams.out, streams.err))):
            status = 123
    return status


def su(run: RunProgram, session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    """Run a command or a shell. The user does not change, because simulated files have no access control."""
    options, _ = parse_options(arguments, frozenset(("c", "s", "command", "shell")))
    command = options.get("c") or options.get("command")
    return (yield from run(session, ["sh", "-c", command] if command else ["sh"], streams))
