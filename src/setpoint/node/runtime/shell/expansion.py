"""Expands the words of a script (variables, substitutions, arithmetic, fields) and opens redirections."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from setpoint.node.runtime.files import Files
from setpoint.node.runtime.shell.session import MAX_ARGUMENTS, Aborted, Exit, ProgramRun, Return, Session, Streams
from setpoint.node.runtime.shell.syntax_tree import Part, Redirection, Script, Word

_TOKEN = re.compile(r"\s*(?:(\d+)|\$?([A-Za-z_]\w*)|(\*\*|<=|>=|==|!=|&&|\|\||[-+*/%()<>!]))")
_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b),
        ">": lambda a, b: int(a > b),
        "<=": lambda a, b: int(a <= b),
        ">=": lambda a, b: int(a >= b),
    },
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": lambda a, b: _divide(a, b), "%": lambda a, b: a - b * _divide(a, b)},
)


_WILDCARD = re.compile(r"[*?\[]")
_PATTERN = re.compile(r"[*?]|\[[^]]+\]")
_MAX_PATHS = 1000
_MAX_PATTERN_TEXT = 16 * 1024
"""Characters of a value whose beginning or end is removed by a pattern: this takes quadratic time."""


class ShellArithmeticError(ValueError):
    pass


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise ShellArithmeticError("divide by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def evaluate(text: str, variables: Mapping[str, str]) -> int:
    """Evaluate an arithmetic expression. Raise ShellArithmeticError."""
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ShellArithmeticError(f"arithmetic syntax error: {text.strip()}")
        at = match.end()
        if match[2]:
            text_value = variables.get(match[2], "0") or "0"
            if not re.fullmatch(r"[-+]?\d{1,18}", text_value.strip()):
                raise ShellArithmeticError(f"bad number: {text_value}")
            tokens.append(str(int(text_value)) if int(text_value) >= 0 else f"({int(text_value)})")
        else:
            tokens.append(match[1] or match[3])
    tokens = [part for token in tokens for part in re.findall(r"\d+|[()]|[^\d()]+", token)]
    value, end = _level(tokens, 0, 0)
    if end < len(tokens) or not -(2**63) <= value < 2**63:
        raise ShellArithmeticError(f"arithmetic syntax error: {text.strip()}")
    return value


def _level(tokens: Sequence[str], at: int, depth: int) -> tuple[int, int]:
    """Return the value of the operand that begins at a position, and where it ends; `depth` is the precedence."""
    if depth == len(_LEVELS):
        return _unary(tokens, at)
    operators = _LEVELS[depth]
    value, at = _level(tokens, at, depth + 1)
    while at < len(tokens) and tokens[at] in operators:
        operator = tokens[at]
        right, at = _level(tokens, at + 1, depth + 1)
        value = operators[operator](value, right)
    return value, at


def _unary(tokens: Sequence[str], at: int) -> tuple[int, int]:
    if at == len(tokens):
        raise ShellArithmeticError("arithmetic syntax error")
    first = tokens[at]
    if first.isdigit():
        return int(first[:19]), at + 1
    if first == "(":
        value, at = _level(tokens, at + 1, 0)
        if at == len(tokens) or tokens[at] != ")":
            raise ShellArithmeticError("arithmetic syntax error: missing )")
        return value, at + 1
    if first in "+-!":
        value, at = _unary(tokens, at + 1)
        return {"+": value, "-": -value, "!": int(not value)}[first], at
    raise ShellArithmeticError(f"arithmetic syntax error near {first}")


RunScript = Callable[[Session, Script, Streams], ProgramRun]
"""Runs a script, for its output."""


class _Field:
    """A word that an expansion results in."""

    def __init__(self) -> None:
        self.text = ""
        self.pattern = ""
        """The text as a pattern of paths, in which quoted wildcards are literal."""
        self.wild = False
        """Whether there are wildcards that are not quoted."""

    def add(self, text: str, quoted: bool) -> _Field:
        self.text += text
        self.pattern += _WILDCARD.sub(r"[\g<0>]", text) if quoted else text
        self.wild |= not quoted and _PATTERN.search(text) is not None
        return self


def expand(
    run: RunScript, session: Session, word: Word, streams: Streams, split: bool = True
) -> Generator[float, None, list[str]]:
    """Return the fields that a word expands to."""
    return [each.text for each in (yield from _fields(run, session, word, streams, split))]


def expand_with_paths(
    run: RunScript, session: Session, word: Word, streams: Streams
) -> Generator[float, None, list[str]]:
    """Return the fields that a word expands to; a field with wildcards results in the matching paths, if there are
    some."""
    found: list[str] = []
    for each in (yield from _fields(run, session, word, streams, True)):
        found += (match_paths(session.files, session.directory, each.pattern) if each.wild else []) or [each.text]
    return found


def match_paths(files: Files, directory: str, pattern: str) -> list[str]:
    """Return the paths that match a pattern with wildcards, sorted; relative ones are in `directory`."""
    base, parts = ("/", pattern.lstrip("/").split("/")) if pattern.startswith("/") else ("", pattern.split("/"))
    found = [base]
    for number, part in enumerate(parts):
        following = []
        for path in found:
            here = path if path.startswith("/") else f"{directory.rstrip('/')}/{path}"
            if _WILDCARD.search(part) is None:
                names = [part] if part in ("", ".", "..") or part in files.entries(here) else []
            else:
                hidden = part.startswith(".")
                names = [name for name in files.entries(here) if (hidden or name[0] != ".") and fnmatchcase(name, part)]
            last = number == len(parts) - 1
            following += [f"{path}{name}{'' if last else '/'}" for name in names]
        found = following[:_MAX_PATHS]
    return sorted(found)


def _fields(
    run: RunScript, session: Session, word: Word, streams: Streams, split: bool
) -> Generator[float, None, list[_Field]]:
    fields: list[_Field] = []
    current: _Field | None = None
    size = 0

    def add(text: str, quoted: bool) -> None:
        nonlocal current, size
        size += len(text)
        if size > MAX_ARGUMENTS:
            streams.err(f"{session.name}: a word of more than {MAX_ARGUMENTS >> 20} MiB\n")
            raise Aborted(2)
        current = (current or _Field()).add(text, quoted)

    for number, part in enumerate(word):
        if part.kind == "text":
            text = part.value
            if not number and not part.quoted and (text == "~" or text.startswith("~/")):
                add(session.variables.get("HOME", "/root"), True)
                text = text[1:]
            add(text, part.quoted)
            continue
        if part.kind == "variable" and part.value == "@" and part.quoted:
            for at, argument in enumerate(session.arguments):
                if at:
                    fields.append(current or _Field())
                    current = None
                add(argument, True)
            continue
        value = yield from _value(run, session, part, streams)
        if part.quoted or not split:
            add(value, True)
            continue
        pieces = value.split()
        if not pieces:
            continue
        if value[0].isspace() and current is not None:
            fields.append(current)
            current = None
        for at, piece in enumerate(pieces):
            if at:
                fields.append(current or _Field())
                current = None
            add(piece, False)
        if value[-1].isspace() and current is not None:
            fields.append(current)
            current = None
    if current is not None:
        fields.append(current)
    return fields


def _value(run: RunScript, session: Session, part: Part, streams: Streams) -> Generator[float, None, str]:
    if part.kind == "command":
        assert part.script is not None
        captured: list[str] = []
        size = 0

        def capture(text: str) -> None:
            nonlocal size
            size += len(text)
            if size > session.max_text:
                streams.err(f"{session.name}: more than {session.max_text >> 20} MiB of output\n")
                raise Aborted(1)
            captured.append(text)

        inner = replace(session, traps={}, _variables=dict(session.variables))
        try:
            session.status = yield from run(inner, part.script, Streams(capture, streams.err))
        except (Exit, Return) as ended:
            session.status = ended.code
        return "".join(captured).rstrip("\n")
    if part.kind == "arithmetic":
        try:
            return str(evaluate(part.value, session.variables))
        except ShellArithmeticError as problem:
            streams.err(f"sh: {problem}\n")
            raise Aborted(2) from None
    return (yield from _variable(run, session, part, streams))


def _variable(run: RunScript, session: Session, part: Part, streams: Streams) -> Generator[float, None, str]:
    name = part.value
    if name.startswith("#") and len(name) > 1:
        return str(len(_parameter(session, name[1:]) or ""))
    value = _parameter(session, name)
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
                raise Aborted(2)
            return value or ""
        case _:
            if len(value or "") > _MAX_PATTERN_TEXT:
                streams.err(f"sh: {name}: more than {_MAX_PATTERN_TEXT} characters\n")
                raise Aborted(2)
            return _remove_affix(value or "", part.operator, argument)


def _remove_affix(value: str, operator: str, pattern: str) -> str:
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


def _parameter(session: Session, name: str) -> str | None:
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


def redirected(
    run: RunScript, session: Session, redirections: tuple[Redirection, ...], streams: Streams
) -> Generator[float, None, Streams | None]:
    """Return the streams with the redirections in place; None, after an error message, if one cannot be opened."""
    if not redirections:
        return streams
    found = Streams(streams.out, streams.err, streams.stdin)
    for redirection in redirections:
        texts = yield from expand(run, session, redirection.target, streams, split=False)
        target = texts[0] if texts else ""
        if redirection.operator == "<<":
            found.stdin = target
        elif redirection.operator == "<":
            content = "" if target == "/dev/null" else session.files.read(session.path(target))
            if content is None:
                streams.err(f"sh: can't open {target}: no such file\n")
                return None
            found.stdin = content
        elif redirection.operator == ">&":
            sink = found.out if target == "1" else found.err
            found = _with_sink(found, redirection.descriptor, sink)
        else:
            if target in ("/dev/stdout", "/proc/1/fd/1"):
                sink = streams.out
            elif target in ("/dev/stderr", "/proc/1/fd/2"):
                sink = streams.err
            else:
                path = session.path(target)
                write_error = session.files.write_error(path)
                if write_error:
                    streams.err(f"{session.name}: can't create {target}: {write_error}\n")
                    return None
                if redirection.operator == ">" or not session.files.is_file(path):
                    session.files.write(path, "")
                sink = _file_sink(session, path, streams)
            found = _with_sink(found, redirection.descriptor, sink)
    return found


def _with_sink(streams: Streams, descriptor: int, sink: Callable[[str], None]) -> Streams:
    if descriptor == 2:
        return Streams(streams.out, sink, streams.stdin)
    return Streams(sink, streams.err, streams.stdin)


def _file_sink(session: Session, path: str, streams: Streams) -> Callable[[str], None]:
    is_full = False

    def write(text: str) -> None:
        nonlocal is_full
        if not session.files.write(path, text, append=True) and not is_full:
            is_full = True
            streams.err(f"{session.name}: write error: No space left on device\n")

    return write
