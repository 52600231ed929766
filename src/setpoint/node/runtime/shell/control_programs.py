"""What is a shell's own: its flow, its variables, its conditions."""

from __future__ import annotations

import re
from itertools import zip_longest

from setpoint.node.runtime.shell.session import Break, Continue, Exit, Program, Return, Session, Streams, number
from setpoint.node.runtime.shell.typed_input import reading_a_line


def _exit(session: Session, arguments: list[str], streams: Streams) -> int:
    raise Exit(number(arguments[0]) & 255 if arguments else session.status)


def _return(session: Session, arguments: list[str], streams: Streams) -> int:
    raise Return(number(arguments[0]) & 255 if arguments else session.status)


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
    session.arguments = session.arguments[number(arguments[0]) if arguments else 1 :]
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


_SIGNALS = {"0": "", "1": "HUP", "2": "INT", "3": "QUIT", "9": "KILL", "10": "USR1", "12": "USR2", "15": "TERM"}


def _signal_of(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the signal that is asked for, empty for none, and the other words."""
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
    return 0 if _holds(session, words) else 1


def _holds(session: Session, words: list[str]) -> bool:
    for joint, take in (("-o", any), ("||", any), ("-a", all), ("&&", all)):
        if joint in words[1:-1]:
            at = words.index(joint, 1)
            return take((_holds(session, words[:at]), _holds(session, words[at + 1 :])))
    if words and words[0] == "!":
        return not _holds(session, words[1:])
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
        "-eq": first == second, "-ne": first != second, "-lt": first < second,
        "-le": first <= second, "-gt": first > second, "-ge": first >= second,
    }  # fmt: skip
    return comparisons.get(operator, False)


CONTROL_PROGRAMS: dict[str, Program] = {
    "exit": _exit, "return": _return, "break": _break, "continue": _continue, "true": _true, ":": _true,
    "false": _false, "export": _export, "local": _export, "readonly": _export, "declare": _export,
    "typeset": _export, "unset": _unset, "set": _set,
    "shift": _shift, "cd": _cd, "pwd": _pwd, "read": reading_a_line(_read), "test": _test, "[": _test, "[[": _test,
    "kill": _kill, "killall": _kill_by_name, "pkill": _kill_by_name,
}  # fmt: skip
