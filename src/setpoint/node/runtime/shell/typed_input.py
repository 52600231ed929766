"""What somebody types, as the input of programs that read it."""

from __future__ import annotations

from typing import Any

from setpoint.node.runtime.shell.session import WAIT_FOR_INPUT, WAIT_FOR_TEXT, Program, Running, Session, Streams


def reading(program: Program, words: int = 0) -> Program:
    """With what somebody types, where nothing else is there to be read: all of it, up to its end. It is read unless
    there are more than so many words besides options: those name files."""

    def run(session: Session, arguments: list[str], streams: Streams) -> Any:
        named = sum(not each.startswith("-") for each in arguments)
        if streams.stdin or session.typed.closed or named > words:
            return program(session, arguments, streams)
        return _when_typed(program, session, arguments, streams)

    return run


def _when_typed(program: Program, session: Session, arguments: list[str], streams: Streams) -> Running:
    typed, text = session.typed, ""
    while True:
        text, typed.text = text + typed.text, ""
        if typed.closed:
            break
        yield WAIT_FOR_INPUT
    streams.stdin = text
    outcome = program(session, arguments, streams)
    return int(outcome) if isinstance(outcome, int) else (yield from outcome)


def streaming(program: Program, words: int = 0) -> Program:
    """Like `reading`, for a program that handles each piece of its input as it arrives and keeps none of it."""

    def run(session: Session, arguments: list[str], streams: Streams) -> Any:
        named = sum(not each.startswith("-") for each in arguments)
        if streams.stdin or session.typed.closed or named > words:
            return program(session, arguments, streams)
        return _as_typed(program, session, arguments, streams)

    return run


def _as_typed(program: Program, session: Session, arguments: list[str], streams: Streams) -> Running:
    typed, status = session.typed, 0
    while True:
        if typed.text:
            streams.stdin, typed.text = typed.text, ""
            status = int(program(session, arguments, streams))
        if typed.closed:
            return status
        yield WAIT_FOR_TEXT


def reading_a_line(program: Program) -> Program:
    """The same for one that reads no more than a line."""

    def run(session: Session, arguments: list[str], streams: Streams) -> Any:
        if streams.stdin or session.typed.closed:
            return program(session, arguments, streams)
        return _when_a_line_is_typed(program, session, arguments, streams)

    return run


def _when_a_line_is_typed(program: Program, session: Session, arguments: list[str], streams: Streams) -> Running:
    typed = session.typed
    while "\n" not in typed.text and not typed.closed:
        yield WAIT_FOR_INPUT
    line, newline, typed.text = typed.text.partition("\n")
    streams.stdin = line + newline
    outcome = program(session, arguments, streams)
    return int(outcome) if isinstance(outcome, int) else (yield from outcome)
