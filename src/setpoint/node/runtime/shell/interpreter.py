"""Interprets the syntax tree of a script step by step; the caller determines how fast time passes."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from setpoint.node.runtime.shell import builtins
from setpoint.node.runtime.shell.expansion import expand, expand_with_paths, redirected
from setpoint.node.runtime.shell.pipes import Stage, run_concurrently
from setpoint.node.runtime.shell.program_names import COMPLETING_PROGRAMS, NOT_SIMULATED, SERVERS, is_shell
from setpoint.node.runtime.shell.programs import PROGRAMS
from setpoint.node.runtime.shell.session import (
    FOREVER,
    MAX_ARGUMENTS,
    MAX_VALUE,
    MAX_WORDS,
    WAIT_FOR_INPUT,
    WAIT_FOR_JOBS,
    Aborted,
    Break,
    Continue,
    Exit,
    ProgramRun,
    Return,
    Session,
    Streams,
)
from setpoint.node.runtime.shell.syntax import ShellSyntaxError, parse
from setpoint.node.runtime.shell.syntax_tree import (
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

_NO_DELAY = 0.0
"""The pause after each iteration of a loop, by which the caller counts iterations and slows down busy loops."""
_INTERPRETER_BUILTINS = ("exec", "eval", "trap", "wait", ".", "source")
"""Builtins that the interpreter implements itself."""
_LOOKUPS = ("which", "type", "command")
_WRAPPERS = {"timeout": builtins.timeout, "xargs": builtins.xargs, "su": builtins.su}


def _expand(session: Session, word: Word, streams: Streams) -> Generator[float, None, list[str]]:
    return expand(_run_script, session, word, streams)


def _redirected(
    session: Session, redirections: tuple[Redirection, ...], streams: Streams
) -> Generator[float, None, Streams | None]:
    return redirected(_run_script, session, redirections, streams)


def run_argv(session: Session, argv: list[str], streams: Streams) -> ProgramRun:
    """Run a program as the kernel would start it."""
    return (yield from _program(session, argv, streams))


def run_line(session: Session, text: str, streams: Streams) -> ProgramRun:
    """Run a line that was typed into a shell. Raise Exit if it ends the shell."""
    return (yield from _eval(session, text, streams))


def _run_text(session: Session, text: str, streams: Streams) -> ProgramRun:
    """Run a whole script, which `exit` ends."""
    try:
        script = parse(text)
    except ShellSyntaxError as problem:
        streams.err(f"sh: {problem}\n")
        return 2
    try:
        code = yield from _run_script(session, script, streams)
    except Exit as ended:
        code = ended.code
    except Return as ended:
        code = ended.code
    except (Break, Continue):
        code = 0
    if handler := session.traps.pop("EXIT", ""):
        yield from _run_text(session, handler, streams)
    return code


def _run_script(session: Session, script: Script, streams: Streams) -> ProgramRun:
    for item in script.items:
        if item.background:
            session.last_job = session.spawn(_background(session, item, streams))
            session.status = 0
        else:
            yield from _item(session, item, streams)
        if session.signal:
            yield from _run_trap(session, streams)
    return session.status


def _background(session: Session, item: Item, streams: Streams) -> ProgramRun:
    inner = replace(session, traps={}, signal="")
    try:
        yield from _item(inner, item, streams)
    except (Exit, Return) as ended:
        return ended.code
    except (Break, Continue):
        return 0
    return inner.status


def _run_trap(session: Session, streams: Streams) -> ProgramRun:
    handler = session.traps.get(session.signal, "")
    session.signal = ""
    if handler:
        yield from _eval(session, handler, streams)
    return session.status


def _item(session: Session, item: Item, streams: Streams) -> ProgramRun:
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


def _pipeline(session: Session, pipeline: Pipeline, streams: Streams) -> ProgramRun:
    commands = pipeline.commands
    if len(commands) == 1:
        status = yield from _command(session, commands[0], streams)
    elif session.wake_after is not None:
        stages = [_stage(command) for command in commands]
        status = yield from run_concurrently(session, stages, streams)
    else:
        status = yield from _one_after_another(session, commands, streams)
    return int(not status) if pipeline.negated else status


def _stage(command: Command) -> Stage:
    return lambda session, streams: _command(session, command, streams)


def _one_after_another(session: Session, commands: tuple[Command, ...], streams: Streams) -> ProgramRun:
    io = Streams(streams.out, streams.err, streams.stdin, streams.redirected)
    for command in commands[:-1]:
        captured: list[str] = []
        yield from _command(session, command, Streams(captured.append, io.err, io.stdin, io.redirected))
        io.stdin, io.redirected = "".join(captured), True
    return (yield from _command(session, commands[-1], io))


def _command(session: Session, command: Command, streams: Streams) -> ProgramRun:
    match command:
        case Simple():
            return (yield from _simple(session, command, streams))
        case Group(body, subshell, redirections):
            with_files = yield from _redirected(session, redirections, streams)
            if with_files is None:
                return 1
            run = _subshell if subshell else _run_script
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


def _subshell(session: Session, body: Script, streams: Streams) -> ProgramRun:
    inner = replace(session, traps={}, _variables=dict(session.variables))
    try:
        return (yield from _run_script(inner, body, streams))
    except (Exit, Return) as ended:
        return ended.code


def _if(
    session: Session, branches: Iterable[tuple[Script, Script]], otherwise: Script | None, streams: Streams
) -> ProgramRun:
    for condition, body in branches:
        if (yield from _without_errexit(session, condition, streams)) == 0:
            return (yield from _run_script(session, body, streams))
    if otherwise is None:
        return 0
    return (yield from _run_script(session, otherwise, streams))


def _without_errexit(session: Session, condition: Script, streams: Streams) -> ProgramRun:
    """Run a condition, whose failure does not end the shell."""
    saved, session.exit_on_failure = session.exit_on_failure, False
    try:
        return (yield from _run_script(session, condition, streams))
    finally:
        session.exit_on_failure = saved


def _loop(session: Session, loop: Loop, streams: Streams) -> ProgramRun:
    with_files = yield from _redirected(session, loop.redirections, streams)
    if with_files is None:
        return 1
    status = 0
    while True:
        condition_status = yield from _without_errexit(session, loop.condition, with_files)
        if (condition_status == 0) == loop.until:
            return status
        try:
            status = yield from _run_script(session, loop.body, with_files)
        except Break:
            return 0
        except Continue:
            pass
        yield _NO_DELAY


def _for(session: Session, name: str, words: tuple[Word, ...], body: Script, streams: Streams) -> ProgramRun:
    status = 0
    for value in (yield from _expand_all(session, words, streams)):
        session.variables[name] = value
        try:
            status = yield from _run_script(session, body, streams)
        except Break:
            return 0
        except Continue:
            continue
        yield _NO_DELAY
    return status


def _case(
    session: Session, subject: str, branches: Iterable[tuple[tuple[Word, ...], Script]], streams: Streams
) -> ProgramRun:
    for patterns, body in branches:
        for pattern in patterns:
            texts = yield from _expand(session, pattern, streams)
            if fnmatchcase(subject, texts[0] if texts else ""):
                return (yield from _run_script(session, body, streams))
    return 0


def _expand_all(session: Session, words: Iterable[Word], streams: Streams) -> Generator[float, None, list[str]]:
    found: list[str] = []
    size = 0
    for word in words:
        fields = yield from expand_with_paths(_run_script, session, word, streams)
        size += sum(map(len, fields)) + len(fields)
        if size > MAX_ARGUMENTS:
            streams.err(f"{session.name}: Argument list too long\n")
            raise Aborted(126)
        found += fields
    return found


# -- simple commands --------------------------------------------------------------------------------------------------


def _simple(session: Session, command: Simple, streams: Streams) -> ProgramRun:
    words = yield from _expand_all(session, command.words, streams)
    io = yield from _redirected(session, command.redirections, streams)
    if io is None:
        return 1
    saved: dict[str, str | None] = {}
    status = 0
    for name, value in command.assignments:
        texts = yield from _expand(session, value, io)
        if any(part.kind == "command" for part in value):
            status = session.status
        if words:
            saved[name] = session.variables.get(name)
        text = " ".join(texts)
        if len(text) > MAX_VALUE:
            streams.err(f"{session.name}: {name}: more than {MAX_VALUE >> 20} MiB\n")
            raise Aborted(2)
        session.variables[name] = text
    if not words:
        return status
    try:
        status = yield from _program(session, words, io)
    finally:
        for name, before in saved.items():
            if before is None:
                session.variables.pop(name, None)
            else:
                session.variables[name] = before
    if not command.redirections:
        streams.stdin = io.stdin
    return status


def _program(session: Session, words: list[str], streams: Streams) -> ProgramRun:
    name, arguments = words[0], words[1:]
    if len(words) > MAX_WORDS:
        streams.err(f"{session.name}: {name}: Argument list too long\n")
        return 126
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
        return (yield from _eval(session, " ".join(arguments), streams))
    if name in (".", "source"):
        return (yield from _source(session, name, arguments, streams))
    if base in _LOOKUPS and (base != "command" or arguments[:1] in (["-v"], ["-V"])):
        return _locate_programs(session, base, arguments, streams)
    if base in builtins.PREFIXES and (arguments or base != "env"):
        return (yield from builtins.prefixed(_program, session, arguments, streams))
    own = session.programs.get(base) if session.programs is not None else None
    if base in _WRAPPERS and own is None:
        return (yield from _WRAPPERS[base](_program, session, arguments, streams))
    if name == "trap":
        return _trap(session, arguments)
    if name == "wait":
        yield WAIT_FOR_JOBS
        return 0
    program = own if session.programs is not None else PROGRAMS.get(base)
    if program is not None:
        outcome = program(session, arguments, streams)
        return outcome if isinstance(outcome, int) else (yield from outcome)
    script = session.files.read(session.path(name)) if "/" in name else None
    if script is not None:
        return (yield from _shell(session, [name, *arguments], streams))
    if session.image_fully_known and "/" not in name and name not in SERVERS:
        return _command_not_found(session, name, streams)
    if base in COMPLETING_PROGRAMS or base in NOT_SIMULATED or not session.unknown_programs_run:
        return 0
    session.on_server_start(words)
    yield FOREVER
    return 0


def _command_not_found(session: Session, name: str, streams: Streams) -> int:
    if name in NOT_SIMULATED:
        streams.err(f"{name}: this program is not simulated\n")
        return 126
    bash = session.name.endswith("bash")
    streams.err(f"bash: line 1: {name}: command not found\n" if bash else f"{session.name}: {name}: not found\n")
    return 127


def _call(session: Session, name: str, arguments: list[str], streams: Streams) -> ProgramRun:
    saved, session.arguments = session.arguments, tuple(arguments)
    try:
        return (yield from _run_script(session, session.functions[name], streams))
    except Return as ended:
        return ended.code
    finally:
        session.arguments = saved


def _shell(session: Session, arguments: list[str], streams: Streams, name: str = "sh") -> ProgramRun:
    """Run a nested shell, which has its own variables and its own exit."""
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
        return (yield from _run_inner_shell(session, inner, rest[0], streams))
    if rest:
        text = session.files.read(session.path(rest[0]))
        if text is None:
            streams.err(f"sh: {rest[0]}: not found\n")
            return 127
        inner.arguments = tuple(rest[1:])
        return (yield from _run_inner_shell(session, inner, text, streams))
    return (yield from _interactive(inner, streams))


def _run_inner_shell(session: Session, inner: Session, text: str, streams: Streams) -> ProgramRun:
    running = _run_text(inner, text, streams)
    while True:
        try:
            pause = next(running)
        except StopIteration as ended:
            return int(ended.value)
        # Signals to the container are for its first process, which this shell may be.
        session.traps.update(inner.traps)
        yield pause
        if session.signal:
            inner.signal, session.signal = session.signal, ""


def _interactive(session: Session, streams: Streams) -> ProgramRun:
    """Read and run commands until the end of the input."""
    status = yield from _run_text(session, streams.stdin, streams)
    while True:
        line, newline, rest = session.stdin_buffer.text.partition("\n")
        if newline or (session.stdin_buffer.closed and line):
            session.stdin_buffer.text = rest
            try:
                status = yield from _run_script(session, parse(line), streams)
            except ShellSyntaxError as problem:
                streams.err(f"sh: {problem}\n")
                status = 2
            except (Exit, Return) as ended:
                return ended.code
            except (Break, Continue):
                pass
        elif session.stdin_buffer.closed:
            return status
        else:
            yield WAIT_FOR_INPUT


def _source(session: Session, name: str, arguments: list[str], streams: Streams) -> ProgramRun:
    """Run a script in the current shell."""
    text = session.files.read(session.path(arguments[0])) if arguments else None
    if text is None:
        streams.err(f"{session.name}: {name}: can't open '{arguments[0] if arguments else ''}'\n")
        return 2
    return (yield from _eval(session, text, streams))


def _eval(session: Session, text: str, streams: Streams) -> ProgramRun:
    """Run a text in the current shell; return 2 if it has a syntax error."""
    try:
        script = parse(text)
    except ShellSyntaxError as problem:
        streams.err(f"{session.name}: {problem}\n")
        return 2
    yield _NO_DELAY
    return (yield from _run_script(session, script, streams))


def _locate_programs(session: Session, how: str, arguments: list[str], streams: Streams) -> int:
    """Locate programs, as `which`, `type` and `command -v` do."""
    status = 0
    for name in (each for each in arguments if not each.startswith("-")):
        found = name in session.functions or exists(name, session) or session.files.is_file(session.path(name))
        if found:
            path = name if "/" in name or name in session.functions else f"/bin/{name}"
            streams.out(f"{name} is {path}\n" if how == "type" else f"{path}\n")
        else:
            if how == "type":
                streams.err(f"{session.name}: {name}: not found\n")
            status = 127 if how != "which" else 1
    return status


def exists(program: str, session: Session | None = None) -> bool:
    """Return whether the program is simulated, or is one of the session."""
    name = program.rpartition("/")[2]
    programs = PROGRAMS if session is None or session.programs is None else session.programs
    known = is_shell(program) or is_shell(name) or name in programs or name in _WRAPPERS or name in _LOOKUPS
    return known or name in builtins.PREFIXES or name in _INTERPRETER_BUILTINS


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
