"""Programs that pick lines of texts, or count them."""

from __future__ import annotations

import re

import re2

from setpoint.node.runtime.shell.session import FOREVER, Program, Running, Session, Streams, number, texts
from setpoint.node.runtime.shell.typed_input import reading

_FOLLOW_EVERY = 1.0
"""Seconds between two looks at the files that `tail -f` follows."""


def _count_of(arguments: list[str]) -> tuple[int, list[str]]:
    count, names = 10, []
    rest = list(arguments)
    while rest:
        each = rest.pop(0)
        if each in ("-n", "-c") and rest:
            count = abs(number(rest.pop(0)))
        elif re.fullmatch(r"-[nc]?\d+", each):
            count = number(each.lstrip("-nc"))
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
            streams.out("".join(text.splitlines(keepends=True)[:count]))
    return 0


def _tail(session: Session, arguments: list[str], streams: Streams) -> Running:
    count, names = _count_of(arguments)
    follows = any(re.fullmatch("-[a-zA-Z0-9]*[fF][a-zA-Z0-9]*", each) for each in arguments)
    from_line = next((number(each.lstrip("-n+")) for each in arguments if re.fullmatch(r"(-n)?\+\d+", each)), None)
    names = [each for each in names if not re.fullmatch(r"\+\d+", each)]
    if follows and names == ["/dev/null"]:
        yield FOREVER
    shown: dict[str, int] = {}
    for name, text in zip(names or ["-"], texts(session, names, streams, "tail"), strict=True):
        if text is None and not follows:
            return 1
        lines = (text or "").splitlines(keepends=True)
        streams.out("".join(lines[from_line - 1 if from_line else max(len(lines) - count, 0) :]))
        shown[name] = len(text or "")
    while follows:
        yield _FOLLOW_EVERY
        for name, seen in shown.items():
            text = session.files.read(session.path(name)) or ""
            if len(text) != seen:
                # A file that became shorter was written anew.
                streams.out(text[seen:] if len(text) > seen else text)
                shown[name] = len(text)
    return 0


def _grep(session: Session, arguments: list[str], streams: Streams) -> int:
    flags = "".join(each[1:] for each in arguments if re.fullmatch("-[a-zA-Z]+", each))
    words = [each for each in arguments if not re.fullmatch("-[a-zA-Z]+", each)]
    if not words:
        return 2
    options = re2.Options()
    options.case_sensitive = "i" not in flags
    options.log_errors = False
    try:
        pattern = re2.compile(re2.escape(words[0]) if "F" in flags else words[0], options)
    except re2.error:
        return 2
    lines = [
        line
        for text in texts(session, words[1:], streams, "grep")
        for line in (text or "").splitlines()
        if (pattern.search(line) is not None) != ("v" in flags)
    ]
    if "c" in flags:
        streams.out(f"{len(lines)}\n")
    elif "q" not in flags:
        streams.out("".join(f"{line}\n" for line in lines))
    return 0 if lines else 1


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


LINE_PROGRAMS: dict[str, Program] = {
    "head": reading(_head, 1),
    "tail": reading(_tail, 1),
    "grep": reading(_grep, 1),
    "egrep": reading(_grep, 1),
    "fgrep": reading(lambda session, arguments, streams: _grep(session, ["-F", *arguments], streams), 1),
    "wc": reading(_wc),
}
