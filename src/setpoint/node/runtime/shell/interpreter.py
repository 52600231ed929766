"""Runs the tree of a script, step by step; who drives it decides how fast time passes."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from setpoint.node.runtime.shell import wrapping
from setpoint.node.runtime.shell.programs import NOT_SIMULATED, PROGRAMS, SERVERS, TASKS
from setpoint.node.runtime.shell.redirections import redirected
from setpoint.node.runtime.shell.session import (
    FOREVER,
    WAIT_FOR_INPUT,
    WAIT_FOR_JOBS,
    Break,
    Continue,
    Exit,
    Return,
    Running,
    Session,
    Streams,
)
from setpoint.node.runtime.shell.syntax import SyntaxProblem, parse
from setpoint.node.runtime.shell.tree import (
    Case,
    Command,
    For,
    Function,
    Group,
    If,
    Item,
    Loop,
    Pipeline,
    Redirection,
    Script,
    Simple,
    Word,
)
from setpoint.node.runtime.shell.words import expand

_SHELLS = ("sh", "bash", "ash", "dash", "/bin/sh", "/bin/bash", "/bin/ash", "/bin/dash", "/usr/bin/bash", "/usr/bin/sh")
_NO_TIME = 0.0
"""A pause after each round of a loop in which nothing passes: rounds can be counted, and one that spins be slowed."""


def _expand(session: Session, word: Word, streams: Streams) -> Generator[float, None, list[str]]:
    return expand(run_script, session, word, streams)


def _redirected(
    session: Session, redirections: tuple[Redirection, ...], streams: Streams
) -> Generator[float, None, Streams | None]:
    return redirected(run_script, session, redirections, streams)


def is_shell(program: str) -> bool:
    return program in _SHELLS


def run_argv(session: Session, argv: list[str], streams: Streams) -> Running:
    """A program as the kernel would start it."""
    return (yield from _program(session, argv, streams))


def run_text(session: Session, text: str, streams: Streams) -> Running:
    """A whole script; its `exit` ends it."""
    try:
        script = parse(text)
    except SyntaxProblem as problem:
        streams.err(f"sh: {problem}\n")
        return 2
    try:
        code = yield from run_script(session, script, streams)
    except Exit as ended:
        code = ended.code
    except Return as ended:
        code = ended.code
    except (Break, Continue):
        code = 0
    if handler := session.traps.pop("EXIT", ""):
        yield from run_text(session, handler, streams)
    return code


def run_script(session: Session, script: Script, streams: Streams) -> Running:
    for item in script.items:
        if item.background:
            session.last_job = session.spawn(_background(session, item, streams))
            session.status = 0
        else:
            yield from _item(session, item, streams)
        if session.signal:
            yield from _trapped(session, streams)
    return session.status


def _background(session: Session, item: Item, streams: Streams) -> Running:
    inner = replace(session, traps={}, signal="")
    try:
        yield from _item(inner, item, streams)
    except (Exit, Return) as ended:
        return ended.code
    except (Break, Continue):
        return 0
    return inner.status


def _trapped(session: Session, streams: Streams) -> Running:
    handler = session.traps.get(session.signal, "")
    session.signal = ""
    if handler:
        yield from _within(session, handler, streams)
    return session.status


def _item(session: Session, item: Item, streams: Streams) -> Running:
    for number, step in enumerate(item.steps):
        if step.joined == "&&" and session.status:
            continue
        if step.joined == "||" and not session.status:
            continue
        session.status = yield from _pipeline(session, step.pipeline, streams)
        last = number == len(item.steps) - 1
        if session.exit_on_failure and session.status and last and not step.pipeline.negated:
            raise Exit(session.status)
    return session.status


def _pipeline(session: Session, pipeline: Pipeline, streams: Streams) -> Running:
    status, fed = 0, streams.stdin
    for number, command in enumerate(pipeline.commands):
        if number == len(pipeline.commands) - 1:
            io = Streams(streams.out, streams.err, fed)
            status = yield from _command(session, command, io)
            if number == 0:
                streams.stdin = io.stdin
        else:
            caught: list[str] = []
            status = yield from _command(session, command, Streams(caught.append, streams.err, fed))
            fed = "".join(caught)
    return int(not status) if pipeline.negated else status


def _command(session: Session, command: Command, streams: Streams) -> Running:
    match command:
        case Simple():
            return (yield from _simple(session, command, streams))
        case Group(body, subshell, redirections):
            with_files = yield from _redirected(session, redirections, streams)
            if with_files is None:
                return 1
            run = _subshell if subshell else run_script
            return (yield from run(session, body, with_files))
        case If(branches, otherwise):
            return (yield from _if(session, branches, otherwise, streams))
        case Loop():
            return (yield from _loop(session, command, streams))
        case For(name, words, body, redirections):
            with_files = yield from _redirected(session, redirections, streams)
            return 1 if with_files is None else (yield from _for(session, name, words, body, with_files))
        case Case(subject, branches):
            text = (yield from _expand(session, subject, streams)) or [""]
            return (yield from _case(session, text[0], branches, streams))
        case Function(name, body):
            session.functions[name] = body
            return 0


def _subshell(session: Session, body: Script, streams: Streams) -> Running:
    inner = replace(session, traps={}, _variables=dict(session.variables))
    try:
        return (yield from run_script(inner, body, streams))
    except (Exit, Return) as ended:
        return ended.code


def _if(
    session: Session, branches: Iterable[tuple[Script, Script]], otherwise: Script | None, streams: Streams
) -> Running:
    for condition, body in branches:
        if (yield from _quietly(session, condition, streams)) == 0:
            return (yield from run_script(session, body, streams))
    if otherwise is None:
        return 0
    return (yield from run_script(session, otherwise, streams))


def _quietly(session: Session, condition: Script, streams: Streams) -> Running:
    """A condition may fail without ending the shell."""
    kept, session.exit_on_failure = session.exit_on_failure, False
    try:
        return (yield from run_script(session, condition, streams))
    finally:
        session.exit_on_failure = kept


def _loop(session: Session, loop: Loop, streams: Streams) -> Running:
    with_files = yield from _redirected(session, loop.redirections, streams)
    if with_files is None:
        return 1
    status = 0
    while True:
        held = yield from _quietly(session, loop.condition, with_files)
        if (held == 0) == loop.until:
            return status
        try:
            status = yield from run_script(session, loop.body, with_files)
        except Break:
            return 0
        except Continue:
            pass
        yield _NO_TIME


def _for(session: Session, name: str, words: tuple[Word, ...], body: Script, streams: Streams) -> Running:
    status = 0
    values: list[str] = []
    for word in words:
        values += yield from _expand(session, word, streams)
    for value in values:
        session.variables[name] = value
        try:
            status = yield from run_script(session, body, streams)
        except Break:
            return 0
        except Continue:
            continue
        yield _NO_TIME
    return status


def _case(
    session: Session, subject: str, branches: Iterable[tuple[tuple[Word, ...], Script]], streams: Streams
) -> Running:
    for patterns, body in branches:
        for pattern in patterns:
            texts = yield from _expand(session, pattern, streams)
            if fnmatchcase(subject, texts[0] if texts else ""):
                return (yield from run_script(session, body, streams))
    return 0


# -- simple commands --------------------------------------------------------------------------------------------------


def _simple(session: Session, command: Simple, streams: Streams) -> Running:
    words: list[str] = []
    for word in command.words:
        words += yield from _expand(session, word, streams)
    io = yield from _redirected(session, command.redirections, streams)
    if io is None:
        return 1
    kept: dict[str, str | None] = {}
    status = 0
    for name, value in command.assignments:
        texts = yield from _expand(session, value, io)
        if any(part.kind == "command" for part in value):
            status = session.status
        if words:
            kept[name] = session.variables.get(name)
        session.variables[name] = " ".join(texts)
    if not words:
        return status
    try:
        status = yield from _program(session, words, io)
    finally:
        for name, before in kept.items():
            if before is None:
                session.variables.pop(name, None)
            else:
                session.variables[name] = before
    if not command.redirections:
        streams.stdin = io.stdin
    return status


def _program(session: Session, words: list[str], streams: Streams) -> Running:
    name, arguments = words[0], words[1:]
    if name in session.functions:
        return (yield from _call(session, name, arguments, streams))
    base = name.rpartition("/")[2]
    if is_shell(name):
        return (yield from _shell(session, arguments, streams, name))
    if name == "exec":
        if not arguments:
            return 0
        raise Exit((yield from _program(session, arguments, streams)))
    if name == "eval":
        return (yield from _within(session, " ".join(arguments), streams))
    if name in (".", "source"):
        return (yield from _source(session, name, arguments, streams))
    if base in _LOOKUPS and (base != "command" or arguments[:1] in (["-v"], ["-V"])):
        return _look_up(session, base, arguments, streams)
    if base in wrapping.PREFIXES and (arguments or base != "env"):
        return (yield from wrapping.prefixed(_program, session, arguments, streams))
    if base in _WRAPPERS:
        return (yield from _WRAPPERS[base](_program, session, arguments, streams))
    if name == "trap":
        return _trap(session, arguments)
    if name == "wait":
        yield WAIT_FOR_JOBS
        return 0
    program = PROGRAMS.get(base)
    if program is not None:
        outcome = program(session, arguments, streams)
        return outcome if isinstance(outcome, int) else (yield from outcome)
    script = session.files.read(session.path(name)) if "/" in name else None
    if script is not None:
        return (yield from _shell(session, [name, *arguments], streams))
    if session.complete and "/" not in name and name not in SERVERS:
        return _not_there(session, name, streams)
    if base in TASKS or base in NOT_SIMULATED or not session.unknown_runs:
        return 0
    session.serve(words)
    yield FOREVER
    return 0


def _not_there(session: Session, name: str, streams: Streams) -> int:
    if name in NOT_SIMULATED:
        streams.err(f"{name}: this program is not simulated\n")
        return 126
    bash = session.name.endswith("bash")
    streams.err(f"bash: line 1: {name}: command not found\n" if bash else f"{session.name}: {name}: not found\n")
    return 127


def _call(session: Session, name: str, arguments: list[str], streams: Streams) -> Running:
    kept, session.arguments = session.arguments, tuple(arguments)
    try:
        return (yield from run_script(session, session.functions[name], streams))
    except Return as ended:
        return ended.code
    finally:
        session.arguments = kept


def _shell(session: Session, arguments: list[str], streams: Streams, name: str = "sh") -> Running:
    """A shell within a shell has its own variables, and its exit is not ours."""
    inner = replace(
        session, traps={}, functions={}, exit_on_failure=False, name=name, _variables=dict(session.variables)
    )
    rest = list(arguments)
    reads_text = False
    while rest and rest[0].startswith("-") and len(rest[0]) > 1 and not rest[0].startswith("--"):
        flags = rest.pop(0)[1:]
        inner.exit_on_failure |= "e" in flags
        reads_text |= "c" in flags
        if "o" in flags and rest:
            rest.pop(0)
        if reads_text:
            break
    if reads_text:
        if not rest:
            streams.err("sh: -c: option requires an argument\n")
            return 2
        inner.arguments = tuple(rest[2:])
        return (yield from _joined(session, inner, rest[0], streams))
    if rest:
        text = session.files.read(session.path(rest[0]))
        if text is None:
            streams.err(f"sh: {rest[0]}: not found\n")
            return 127
        inner.arguments = tuple(rest[1:])
        return (yield from _joined(session, inner, text, streams))
    return (yield from _interactive(inner, streams))


def _joined(session: Session, inner: Session, text: str, streams: Streams) -> Running:
    running = run_text(inner, text, streams)
    while True:
        try:
            pause = next(running)
        except StopIteration as ended:
            return int(ended.value)
        # A signal to the container is for its first process, which this shell may be.
        session.traps.update(inner.traps)
        yield pause
        if session.signal:
            inner.signal, session.signal = session.signal, ""


def _interactive(session: Session, streams: Streams) -> Running:
    """Reads commands until there is nothing more to read."""
    status = yield from run_text(session, streams.stdin, streams)
    while True:
        line, newline, rest = session.typed.text.partition("\n")
        if newline or (session.typed.closed and line):
            session.typed.text = rest
            try:
                status = yield from run_script(session, parse(line), streams)
            except SyntaxProblem as problem:
                streams.err(f"sh: {problem}\n")
                status = 2
            except (Exit, Return) as ended:
                return ended.code
            except (Break, Continue):
                pass
        elif session.typed.closed:
            return status
        else:
            yield WAIT_FOR_INPUT


def _source(session: Session, name: str, arguments: list[str], streams: Streams) -> Running:
    """A script that runs in this very shell."""
    text = session.files.read(session.path(arguments[0])) if arguments else None
    if text is None:
        streams.err(f"{session.name}: {name}: can't open '{arguments[0] if arguments else ''}'\n")
        return 2
    return (yield from _within(session, text, streams))


def _within(session: Session, text: str, streams: Streams) -> Running:
    """Run a text as if it stood here; one that cannot be read ends with 2."""
    try:
        script = parse(text)
    except SyntaxProblem as problem:
        streams.err(f"{session.name}: {problem}\n")
        return 2
    return (yield from run_script(session, script, streams))


def _look_up(session: Session, how: str, arguments: list[str], streams: Streams) -> int:
    """Where programs are, as `which`, `type` and `command -v` tell it."""
    status = 0
    for name in (each for each in arguments if not each.startswith("-")):
        found = name in session.functions or exists(name) or session.files.is_file(session.path(name))
        if found:
            path = name if "/" in name or name in session.functions else f"/bin/{name}"
            streams.out(f"{name} is {path}\n" if how == "type" else f"{path}\n")
        else:
            if how == "type":
                streams.err(f"{session.name}: {name}: not found\n")
            status = 127 if how != "which" else 1
    return status


def exists(program: str) -> bool:
    """Whether the programs that are simulated include it."""
    name = program.rpartition("/")[2]
    known = is_shell(program) or is_shell(name) or name in PROGRAMS or name in _WRAPPERS or name in _LOOKUPS
    return known or name in wrapping.PREFIXES or name in _OWN


_OWN = ("exec", "eval", "trap", "wait", ".", "source")
"""What only a shell can do itself."""
_LOOKUPS = ("which", "type", "command")
_WRAPPERS = {"timeout": wrapping.timeout, "xargs": wrapping.xargs, "su": wrapping.su}


def _trap(session: Session, arguments: list[str]) -> int:
    if len(arguments) < 2:
        return 0
    for name in arguments[1:]:
        name = {"15": "TERM", "2": "INT", "0": "EXIT"}.get(name, name.removeprefix("SIG"))
        if arguments[0] == "-":
            session.traps.pop(name, None)
        else:
            session.traps[name] = arguments[0]
    return 0
