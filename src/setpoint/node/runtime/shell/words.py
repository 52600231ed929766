"""What the words of a script stand for: variables, substitutions, arithmetic, fields."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from fnmatch import fnmatchcase

from setpoint.node.runtime.shell.arithmetic import ArithmeticProblem, evaluate
from setpoint.node.runtime.shell.session import Exit, Return, Running, Session, Streams
from setpoint.node.runtime.shell.tree import Part, Script, Word

Run = Callable[[Session, Script, Streams], Running]
"""Runs a script, for its output."""


def expand(
    run: Run, session: Session, word: Word, streams: Streams, split: bool = True
) -> Generator[float, None, list[str]]:
    """The fields that a word stands for."""
    fields: list[str] = []
    current: str | None = None
    for part in word:
        if part.kind == "text":
            current = (current or "") + part.value
            continue
        if part.kind == "variable" and part.value == "@" and part.quoted:
            for number, argument in enumerate(session.arguments):
                if number:
                    fields.append(current or "")
                    current = argument
                else:
                    current = (current or "") + argument
            continue
        value = yield from _value(run, session, part, streams)
        if part.quoted or not split:
            current = (current or "") + value
            continue
        pieces = value.split()
        if not pieces:
            continue
        if value[0].isspace() and current is not None:
            fields.append(current)
            current = None
        for number, piece in enumerate(pieces):
            if number:
                fields.append(current or "")
                current = piece
            else:
                current = (current or "") + piece
        if value[-1].isspace() and current is not None:
            fields.append(current)
            current = None
    if current is not None:
        fields.append(current)
    return fields


def _value(run: Run, session: Session, part: Part, streams: Streams) -> Generator[float, None, str]:
    if part.kind == "command":
        assert part.script is not None
        caught: list[str] = []
        inner = replace(session, traps={}, _variables=dict(session.variables))
        try:
            session.status = yield from run(inner, part.script, Streams(caught.append, streams.err))
        except (Exit, Return) as ended:
            session.status = ended.code
        return "".join(caught).rstrip("\n")
    if part.kind == "arithmetic":
        try:
            return str(evaluate(part.value, session.variables))
        except ArithmeticProblem as problem:
            streams.err(f"sh: {problem}\n")
            raise Exit(2) from None
    return (yield from _variable(run, session, part, streams))


def _variable(run: Run, session: Session, part: Part, streams: Streams) -> Generator[float, None, str]:
    name = part.value
    if name.startswith("#") and len(name) > 1:
        return str(len(_plain(session, name[1:]) or ""))
    value = _plain(session, name)
    if not part.operator:
        return value or ""
    argument = ""
    if part.argument:
        texts = yield from expand(run, session, part.argument, streams, split=False)
        argument = texts[0] if texts else ""
    missing = value is None or (part.operator.startswith(":") and not value)
    match part.operator[-1]:
        case "-":
            return argument if missing else value or ""
        case "+":
            return "" if missing else argument
        case "=":
            if missing:
                session.variables[name] = value = argument
            return value or ""
        case "?":
            if missing:
                streams.err(f"sh: {name}: {argument or 'parameter not set'}\n")
                raise Exit(2)
            return value or ""
        case _:
            return _trimmed(value or "", part.operator, argument)


def _trimmed(value: str, operator: str, pattern: str) -> str:
    lengths = range(len(value) + 1)
    if operator.startswith("#"):
        for size in lengths if operator == "#" else reversed(lengths):
            if fnmatchcase(value[:size], pattern):
                return value[size:]
    else:
        for size in reversed(lengths) if operator == "%" else lengths:
            if fnmatchcase(value[size:], pattern):
                return value[:size]
    return value


def _plain(session: Session, name: str) -> str | None:
    if name == "?":
        return str(session.status)
    if name == "#":
        return str(len(session.arguments))
    if name in "@*":
        return " ".join(session.arguments)
    if name == "$":
        return "1"
    if name == "!":
        return str(session.last_job or "")
    if name.isdigit():
        number = int(name)
        if number == 0:
            return "sh"
        return session.arguments[number - 1] if number <= len(session.arguments) else None
    return session.variables.get(name)
