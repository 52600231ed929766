"""Programs that select, count and transform lines of text, as far as scripts in containers commonly use them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from posixpath import basename as last_part
from posixpath import dirname as without_last_part
from typing import Any

import re2

from setpoint.node.runtime.shell.session import (
    FOREVER,
    WAIT_FOR_INPUT,
    Aborted,
    OutputMeter,
    Program,
    ProgramRun,
    Session,
    Streams,
    filters_lines,
    parse_integer,
    reads_stdin,
    stdin_arrives,
    texts,
)

_FOLLOW_EVERY = 1.0
"""Seconds between two reads of the files that `tail -f` follows."""
_MAX_LINES = 100_000
"""The maximum number of lines that a program processes one by one."""
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""A line with its end. For `str.splitlines`, other characters end lines too, such as U+2028."""
_TR_RANGES = re.compile(r"(.)-(.)", re.DOTALL)
_TR_CLASSES = {
    "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "[:lower:]": "abcdefghijklmnopqrstuvwxyz",
    "[:digit:]": "0123456789",
    "[:space:]": " \t\n\r\v\f",
}


def _count_of(arguments: list[str]) -> tuple[int, list[str]]:
    count, names = 10, []
    rest = list(arguments)
    while rest:
        each = rest.pop(0)
        if each in ("-n", "-c") and rest:
            count = abs(parse_integer(rest.pop(0)))
        elif re.fullmatch(r"-[nc]?\d+", each):
            count = parse_integer(each.lstrip("-nc"))
        elif not each.startswith("-"):
            names.append(each)
    return count, names


def _head(session: Session, arguments: list[str], streams: Streams) -> int:
    count, names = _count_of(arguments)
    for text in texts(session, names, streams, "head"):
        if text is None:
            return 1
        if any(re.fullmatch(r"-c\d*", each) for each in arguments):
            data = text.encode("utf-8", "surrogateescape")[:count]
            streams.out(data.decode("utf-8", "surrogateescape"))
        else:
            streams.out("".join(_LINE.findall(text)[:count]))
    return 0


def _head_of_input(session: Session, arguments: list[str], streams: Streams) -> Any:
    """Print the first lines of the input as they arrive, and end after the last one of them."""
    count, names = _count_of(arguments)
    if names or not stdin_arrives(session, [], streams):
        return _head(session, arguments, streams)
    if any(re.fullmatch(r"-c\d*", each) for each in arguments):
        return reads_stdin(_head, 1)(session, arguments, streams)
    return _first_lines(session, count, streams)


def _first_lines(session: Session, count: int, streams: Streams) -> ProgramRun:
    stdin_buffer = session.stdin_buffer
    while count > 0:
        line, newline, rest = stdin_buffer.text.partition("\n")
        if newline or stdin_buffer.closed:
            stdin_buffer.text = rest
            streams.out(line + newline)
            count -= 1
        if stdin_buffer.closed and not stdin_buffer.text:
            break
        if not newline:
            yield WAIT_FOR_INPUT
    return 0


def _tail(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    count, names = _count_of(arguments)
    follows = any(re.fullmatch("-[a-zA-Z0-9]*[fF][a-zA-Z0-9]*", each) for each in arguments)
    from_line = next(
        (parse_integer(each.lstrip("-n+")) for each in arguments if re.fullmatch(r"(-n)?\+\d+", each)), None
    )
    names = [each for each in names if not re.fullmatch(r"\+\d+", each)]
    if follows and names == ["/dev/null"]:
        yield FOREVER
    shown: dict[str, int] = {}
    for name, text in zip(names or ["-"], texts(session, names, streams, "tail"), strict=True):
        if text is None and not follows:
            return 1
        lines = _LINE.findall(text or "")
        streams.out("".join(lines[from_line - 1 if from_line else max(len(lines) - count, 0) :]))
        shown[name] = len(text or "")
    while follows:
        yield _FOLLOW_EVERY
        for name, seen in shown.items():
            text = session.files.read(session.path(name)) or ""
            if len(text) != seen:
                # A file that became shorter was written again.
                streams.out(text[seen:] if len(text) > seen else text)
                shown[name] = len(text)
    return 0


def _tail_of_input(session: Session, arguments: list[str], streams: Streams) -> Any:
    """Print the last lines of files, or of the input up to its end."""
    has_files = any(not each.startswith("+") for each in _count_of(arguments)[1])
    return (_tail if has_files else reads_stdin(_tail, 1))(session, arguments, streams)


def _grep(session: Session, arguments: list[str], streams: Streams) -> int:
    flags = "".join(each[1:] for each in arguments if re.fullmatch("-[a-zA-Z]+", each))
    words = [each for each in arguments if not re.fullmatch(r"-[a-zA-Z]+|-[ABC]\d+", each)]
    if not words:
        return 2
    options = re2.Options()
    options.case_sensitive = "i" not in flags
    options.log_errors = False
    try:
        pattern = re2.compile(re2.escape(words[0]) if "F" in flags else words[0], options)
    except re2.error:
        return 2
    before, after = _context_of(arguments)
    found, shown = 0, list[str]()
    for text in texts(session, words[1:], streams, "grep"):
        lines = _split(text or "")
        matches = [at for at, line in enumerate(lines) if (pattern.search(line) is not None) != ("v" in flags)]
        found += len(matches)
        until = 0
        for at in matches:
            begin, end = max(at - before, until), min(at + after + 1, len(lines))
            if (before or after) and shown and begin > until:
                shown.append("--")
            shown += lines[begin:end] if begin < end else []
            until = max(until, end)
    if "c" in flags:
        streams.out(f"{found}\n")
    elif "q" not in flags:
        streams.out("".join(f"{line}\n" for line in shown))
    return 0 if found else 1


def _context_of(arguments: list[str]) -> tuple[int, int]:
    """Return how many lines before and after a match are printed: `-B2`, `-A10`, `-C3`."""
    before = after = 0
    for each in arguments:
        if option := re.fullmatch(r"-([ABC])(\d{1,6})", each):
            before = int(option[2]) if option[1] in "BC" else before
            after = int(option[2]) if option[1] in "AC" else after
    return before, after


def _grep_input(session: Session, arguments: list[str], streams: Streams) -> Any:
    rest, joined = list(arguments), list[str]()
    while rest:
        each = rest.pop(0)
        joined.append(each + rest.pop(0) if each in ("-A", "-B", "-C") and rest and rest[0].isdigit() else each)
    whole = any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*|-[ABC]\d+", each) for each in joined)
    return (reads_stdin if whole else filters_lines)(_grep, 1)(session, joined, streams)


def _awk_input(session: Session, arguments: list[str], streams: Streams) -> Any:
    counts = any("NR" in each for each in arguments)
    return (reads_stdin if counts else filters_lines)(awk, 1)(session, arguments, streams)


def _wc(session: Session, arguments: list[str], streams: Streams) -> int:
    flags = "".join(each[1:] for each in arguments if each.startswith("-"))
    names, status = [each for each in arguments if not each.startswith("-")], 0
    for name, text in zip(names or [""], texts(session, names, streams, "wc"), strict=True):
        if text is None:
            status = 1
            continue
        counts = {"l": text.count("\n"), "w": len(text.split()), "c": len(text.encode("utf-8", "surrogateescape"))}
        shown = [str(counts[kind]) for kind in "lwc" if kind in (flags or "lwc")]
        streams.out(" ".join([*shown, *([name] if name else [])]) + "\n")
    return status


def _options(arguments: list[str], with_value: str) -> tuple[dict[str, str], list[str]]:
    """Return the options of one letter, with values for those in `with_value`, and the operands."""
    found: dict[str, str] = {}
    words: list[str] = []
    rest = list(arguments)
    while rest:
        each = rest.pop(0)
        if not re.fullmatch("-[a-zA-Z].*", each, re.DOTALL):
            words.append(each)
        elif each[1] in with_value:
            found[each[1]] = each[2:] or (rest.pop(0) if rest else "")
        else:
            found |= dict.fromkeys(each[1:], "")
    return found, words


def _lines(session: Session, names: list[str], streams: Streams, who: str) -> list[str] | None:
    found = [*texts(session, names, streams, who)]
    if None in found:
        return None
    text = "".join(each or "" for each in found)
    if text.count("\n") > _MAX_LINES:
        streams.err(f"{who}: more than {_MAX_LINES} lines\n")
        raise Aborted(1)
    return _split(text)


def _split(text: str) -> list[str]:
    return [line.removesuffix("\n") for line in _LINE.findall(text)]


def awk(session: Session, arguments: list[str], streams: Streams) -> int:
    """Support `{print $1, $3}`: fields, strings, NF and NR, for all lines or those that match /a pattern/."""
    options, words = _options(arguments, "Fv")
    program = re.fullmatch(r"\s*(?:/(.*)/)?\s*\{\s*print\b\s*(.*?)\s*;?\s*\}\s*", words[0] if words else "")
    if program is None:
        streams.err("awk: the simulation supports only printing of fields\n")
        return 2
    wanted = _pattern(program[1] or "", streams, "awk")
    lines = _lines(session, words[1:], streams, "awk")
    if lines is None or wanted is None:
        return 2
    meter = OutputMeter(streams, "awk")
    printed = [re.findall(r'"[^"]*"|\$?\w+', part) for part in program[2].split(",")]
    for number, line in enumerate(lines, 1):
        if wanted.search(line) is None:
            continue
        fields = line.split(options["F"]) if options.get("F") else line.split()
        known = {"0": line, "NF": fields[-1] if fields else line} | {str(at): text for at, text in enumerate(fields, 1)}

        def value(word: str, known: dict[str, str] = known, of: tuple[int, int] = (len(fields), number)) -> str:
            if word.startswith('"'):
                return word.strip('"')
            if word.startswith("$"):
                return known.get(word[1:], "")
            return str({"NF": of[0], "NR": of[1]}.get(word, ""))

        parts = ["".join(meter.count(value(word)) for word in part) for part in printed]
        streams.out(" ".join(parts if program[2] else [line]) + "\n")
    return 0


def sed(session: Session, arguments: list[str], streams: Streams) -> int:
    """Support substitutions: `s/this/that/g`, several with -e, in place with -i."""
    options, words = _options(arguments, "")
    scripts = [words.pop(0)] if words else []
    edits: list[Callable[[str], str]] = []
    for script in re.split(r";(?=\s*s)", scripts[0]) if scripts else []:
        found = re.fullmatch(r"\s*s(.)(.*?)(?<!\\)\1(.*?)(?<!\\)\1([gI]*)\s*", script, re.DOTALL)
        pattern = _pattern(found[2], streams, "sed") if found is not None else None
        if found is None or pattern is None:
            streams.err("sed: the simulation supports only substitutions\n")
            return 1
        edits.append(_replacing(pattern, found[3], 0 if "g" in found[4] else 1, OutputMeter(streams, "sed")))
    for name in words or ["-"]:
        lines = _lines(session, [name], streams, "sed")
        if lines is None:
            return 1
        for edit in edits:
            lines = [edit(line) for line in lines]
        text = "".join(f"{line}\n" for line in lines)
        if "i" in options and name != "-":
            session.files.write(session.path(name), text)
        else:
            streams.out(text)
    return 0


def _replacing(pattern: re2._Regexp[str], new: str, count: int, meter: OutputMeter) -> Callable[[str], str]:
    def put(match: re2._Match[str]) -> str:
        if not special:
            return meter.count(new)
        groups = (match[0], *match.groups())

        def part(mark: re.Match[str]) -> str:
            if mark[0] == "&":
                return str(groups[0])
            if not mark[1].isdigit():
                return {"n": "\n", "t": "\t"}.get(mark[1], mark[1])
            return groups[int(mark[1])] or "" if int(mark[1]) < len(groups) else ""

        return meter.count(re.sub(r"&|\\(.)", part, new))

    special = "&" in new or "\\" in new
    return lambda line: str(pattern.sub(put, line, count))


def _pattern(text: str, streams: Streams, who: str) -> re2._Regexp[str] | None:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error:
        streams.err(f"{who}: bad regex '{text}'\n")
        return None


_RANGES = re.compile(r"(?=\d|-\d)\d{0,9}(-\d{0,9})?(,(?=\d|-\d)\d{0,9}(-\d{0,9})?)*")
"""Numbers and ranges, of which one end may be missing."""


def cut(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = _options(arguments, "bcdf")
    ranges = options.get("f") or options.get("c") or options.get("b") or ""
    lines = _lines(session, words, streams, "cut")
    if lines is None:
        return 1
    if not _RANGES.fullmatch(ranges):
        streams.err("cut: expected a list of bytes, characters, or fields\n")
        return 1
    mark, spans = options.get("d") or "\t", _spans(ranges)
    for line in lines:
        pieces = line.split(mark) if "f" in options else [*line]
        selected: list[str] = []
        for begin, end in spans:
            if begin >= len(pieces):
                break
            selected += pieces[begin:end]
        streams.out(
            (line if "f" in options and mark not in line else (mark if "f" in options else "").join(selected)) + "\n"
        )
    return 0


def _spans(ranges: str) -> list[tuple[int, int]]:
    """Return the ranges as slices, ascending and without overlaps."""
    found = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        begin, end = int(first or 1), last if dash else first
        found.append((max(begin - 1, 0), int(end) if end else sys.maxsize))
    apart: list[tuple[int, int]] = []
    done = 0
    for begin, stop in sorted(found):
        if stop > max(begin, done):
            apart.append((max(begin, done), stop))
            done = stop
    return apart


def tr(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = _options(arguments, "")
    sets = [_characters(each) for each in words]
    text, streams.stdin = streams.stdin, ""
    if "d" in options and sets:
        text = "".join(each for each in text if each not in sets[0])
    elif "s" in options and sets:
        text = re.sub(r"(.)\1+", lambda run: run[1] if run[1] in sets[0] else run[0], text, flags=re.DOTALL)
    elif len(sets) == 2 and sets[1]:
        padded = sets[1] + sets[1][-1] * len(sets[0])
        text = text.translate({ord(old): new for old, new in zip(sets[0], padded, strict=False)})
    streams.out(text)
    return 0


def _characters(text: str) -> str:
    for name, members in _TR_CLASSES.items():
        text = text.replace(name, members)
    text = text.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r")
    return _TR_RANGES.sub(
        lambda ends: "".join(map(chr, range(ord(ends[1]), min(ord(ends[2]), ord(ends[1]) + 255) + 1))), text
    )


def sort(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = _options(arguments, "kt")
    lines = _lines(session, words, streams, "sort")
    if lines is None:
        return 2

    def number(line: str) -> float:
        found = re.match(r"\s*-?\d{1,300}(\.\d{1,300})?", line)
        return float(found[0]) if found is not None else 0.0

    lines.sort(key=(lambda line: (number(line), line)) if "n" in options else None, reverse="r" in options)
    streams.out("".join(f"{line}\n" for line in (dict.fromkeys(lines) if "u" in options else lines)))
    return 0


def uniq(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = _options(arguments, "")
    lines = _lines(session, words, streams, "uniq")
    if lines is None:
        return 1
    runs: list[tuple[str, int]] = []
    for line in lines:
        if runs and runs[-1][0] == line:
            runs[-1] = (line, runs[-1][1] + 1)
        else:
            runs.append((line, 1))
    streams.out("".join(f"{count:7d} {line}\n" if "c" in options else f"{line}\n" for line, count in runs))
    return 0


def expr(session: Session, arguments: list[str], streams: Streams) -> int:
    """Evaluate one operator with two operands."""
    if len(arguments) == 1:
        result = arguments[0]
    elif len(arguments) != 3:
        streams.err("expr: syntax error\n")
        return 2
    else:
        left, operator, right = arguments
        if operator not in ("=", "!=") and not all(re.fullmatch(r"-?\d{1,18}", each) for each in (left, right)):
            streams.err("expr: non-integer argument\n")
            return 2
        if operator in "/%" and int(right) == 0:
            streams.err("expr: division by zero\n")
            return 2
        result = _calculated(left, operator, right)
        if not result:
            streams.err("expr: syntax error\n")
            return 2
    streams.out(f"{result}\n")
    return 1 if result in ("", "0") else 0


def _calculated(left: str, operator: str, right: str) -> str:
    if operator in ("=", "!="):
        return str(int((left == right) == (operator == "=")))
    first, second = int(left), int(right)
    match operator:
        case "+":
            return str(first + second)
        case "-":
            return str(first - second)
        case "*":
            return str(first * second)
        case "/" | "%":
            quotient = abs(first) // abs(second) * (1 if (first < 0) == (second < 0) else -1)
            return str(quotient if operator == "/" else first - quotient * second)
    known = {"<": first < second, "<=": first <= second, ">": first > second, ">=": first >= second}
    return str(int(known[operator])) if operator in known else ""


def basename(session: Session, arguments: list[str], streams: Streams) -> int:
    name = last_part(arguments[0].rstrip("/")) if arguments else ""
    streams.out((name.removesuffix(arguments[1]) if len(arguments) > 1 else name) + "\n")
    return 0


def dirname(session: Session, arguments: list[str], streams: Streams) -> int:
    streams.out((without_last_part(arguments[0].rstrip("/")) if arguments else "") or ".")
    streams.out("\n")
    return 0


TEXT_PROGRAMS: dict[str, Program] = {
    "head": _head_of_input,
    "tail": _tail_of_input,
    "grep": _grep_input,
    "egrep": _grep_input,
    "fgrep": lambda session, arguments, streams: _grep_input(session, ["-F", *arguments], streams),
    "wc": reads_stdin(_wc),
    "awk": _awk_input,
    "cut": filters_lines(cut),
    "sed": filters_lines(sed, 1),
    "tr": filters_lines(tr, 9),
    "sort": reads_stdin(sort),
    "uniq": reads_stdin(uniq),
    "expr": expr,
    "basename": basename,
    "dirname": dirname,
}
