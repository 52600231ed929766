"""Programs that pick lines of texts, or count them."""

from __future__ import annotations

import re

import re2

from setpoint.node.runtime.shell.session import FOREVER, Program, Running, Session, Streams, number, texts
from setpoint.node.runtime.shell.typed_input import reading


def _count_of(arguments: list[str]) -> tuple[int, list[str]]:
    count, names = 10, []
    rest = list(arguments)
    while rest:
        each = rest.pop(0)
        if each in ("-n", "-c") and rest:
            count = abs(number(rest.pop(0)))
        elif re.fullmatch(r"-n?\d+", each):
            count = number(each.lstrip("-n"))
        elif not each.startswith("-"):
            names.append(each)
    return count, names


def _head(session: Session, arguments: list[str], streams: Streams) -> int:
    count, names = _count_of(arguments)
    for text in texts(session, names, streams, "head"):
        if text is None:
            return 1
        streams.out("".join(text.splitlines(keepends=True)[:count]))
    return 0


def _tail(session: Session, arguments: list[str], streams: Streams) -> Running:
    count, names = _count_of(arguments)
    follows = any(re.fullmatch("-[a-zA-Z0-9]*[fF][a-zA-Z0-9]*", each) for each in arguments)
    if follows and names == ["/dev/null"]:
        names = []
        yield FOREVER
    for text in texts(session, names, streams, "tail"):
        if text is None and not follows:
            return 1
        streams.out("".join((text or "").splitlines(keepends=True)[-count:] if count else []))
    if follows:
        yield FOREVER
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
    for text in texts(session, [each for each in arguments if not each.startswith("-")], streams, "wc"):
        text = text or ""
        counts = {"l": text.count("\n"), "w": len(text.split()), "c": len(text.encode())}
        streams.out(" ".join(str(counts[kind]) for kind in "lwc" if kind in (flags or "lwc")) + "\n")
    return 0


LINE_PROGRAMS: dict[str, Program] = {
    "head": reading(_head, 1),
    "tail": reading(_tail, 1),
    "grep": reading(_grep, 1),
    "wc": reading(_wc),
}
