"""Programs that run other programs: `timeout`, `xargs`, `su`, `env`, `nohup` and their kin."""

from __future__ import annotations

import re
from collections.abc import Callable

from setpoint.node.runtime.shell.connecting import options_of
from setpoint.node.runtime.shell.session import Running, Session, Streams

Run = Callable[[Session, list[str], Streams], Running]
"""Runs a program with its arguments."""

PREFIXES = ("command", "builtin", "nohup", "env", "sudo", "tini", "dumb-init", "time", "nice", "setsid", "stdbuf")
"""They run what follows their options, and nothing else happens."""
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_RUNS = 10_000


def prefixed(run: Run, session: Session, arguments: list[str], streams: Streams) -> Running:
    rest = list(arguments)
    while rest and (rest[0].startswith("-") or "=" in rest[0]):
        key, equals, value = rest.pop(0).partition("=")
        if equals:
            session.variables[key] = value
        elif key == "-n" and rest:
            rest.pop(0)  # of nice
    return (yield from run(session, rest, streams)) if rest else 0


def timeout(run: Run, session: Session, arguments: list[str], streams: Streams) -> Running:
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


def xargs(run: Run, session: Session, arguments: list[str], streams: Streams) -> Running:
    """Run a command with the words of the input as arguments: all at once, -n at a time, or each in place of -I."""
    rest, options = list(arguments), {}
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        letter, value = rest[0][1], rest.pop(0)[2:]
        options[letter] = value or (rest.pop(0) if letter in "nILPds" and rest else "")
    command = rest or ["echo"]
    text, streams.stdin = streams.stdin, ""
    words = text.split("\0") if "0" in options else text.split("\n") if "I" in options else text.split()
    words = [each for each in words if each]
    size = int(options["n"]) if options.get("n", "").isdigit() and int(options["n"]) else len(words) or 1
    if "I" in options:
        lines = [[part.replace(options["I"] or "{}", word) for part in command] for word in words]
    else:
        lines = [[*command, *words[at : at + size]] for at in range(0, len(words), size)]
        if not lines and "r" not in options:
            lines = [command]
    status = 0
    for line in lines[:_MOST_RUNS]:
        if (yield from run(session, line, Streams(streams.out, streams.err))):
            status = 123
    return status


def su(run: Run, session: Session, arguments: list[str], streams: Streams) -> Running:
    """Run a command or a shell. Whom it runs as stays the same: simulated files are kept from nobody."""
    options, _ = options_of(arguments, frozenset(("c", "s", "command", "shell")))
    command = options.get("c") or options.get("command")
    return (yield from run(session, ["sh", "-c", command] if command else ["sh"], streams))
