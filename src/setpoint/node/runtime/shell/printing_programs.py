"""Programs that produce or encode text."""

from __future__ import annotations

import base64
import hashlib
import re

from setpoint.node.runtime.shell.session import (
    OutputMeter,
    Program,
    Session,
    Streams,
    parse_integer,
    reads_stdin,
    texts,
)

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "a": "\a", "b": "\b", "e": "\x1b", '"': '"', "'": "'"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|(0?[0-7]{1,3})|(.))", re.DOTALL)


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        if found[1] or found[2]:
            return chr(int(found[1], 16) if found[1] else int(found[2], 8) & 0xFF)
        return _ESCAPES.get(found[3], found[0])

    return _ESCAPE.sub(character, text)


def _echo(session: Session, arguments: list[str], streams: Streams) -> int:
    newline, escapes = True, False
    words = list(arguments)
    while words and re.fullmatch(r"-[neE]+", words[0]):
        flags = words.pop(0)
        newline = newline and "n" not in flags
        escapes = escapes or "e" in flags
    text = " ".join(words)
    streams.out((_unescaped(text) if escapes else text) + ("\n" if newline else ""))
    return 0


def _printf(session: Session, arguments: list[str], streams: Streams) -> int:
    if not arguments:
        return 2
    values = list(arguments[1:])
    pattern = _unescaped(arguments[0])
    meter = OutputMeter(streams, "printf")
    used = False

    def next_value() -> str:
        nonlocal used
        used = True
        return values.pop(0) if values else ""

    def put(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        value, kind = next_value(), found[2]
        if kind in "di":
            return ("%" + found[1] + "d") % parse_integer(value or "0")
        return ("%" + found[1] + "s") % (_unescaped(value) if kind == "b" else value)

    while True:
        used = False
        streams.out(meter.count(re.sub(r"%(-?0?[0-9]{0,4})([sdibc])|%%", lambda found: put(found), pattern)))
        if not values or not used:
            return 0


def _seq(session: Session, arguments: list[str], streams: Streams) -> int:
    numbers = [parse_integer(each) for each in arguments]
    first, step, last = 1, 1, 0
    match numbers:
        case [last]:
            pass
        case [first, last]:
            pass
        case [first, step, last]:
            pass
    if step:
        values = range(first, last + (1 if step > 0 else -1), step)
        streams.out("".join(f"{value}\n" for value in values[:100_000]))
    return 0


def _hexdump(session: Session, arguments: list[str], streams: Streams) -> int:
    """Print the canonical form, regardless of the options."""
    for text in texts(session, [each for each in arguments if not each.startswith("-")], streams, "hexdump"):
        if text is None:
            return 1
        data = text.encode("utf-8", "surrogateescape")
        for at in range(0, len(data), 16):
            row = data[at : at + 16]
            left, right = row[:8].hex(" "), row[8:].hex(" ")
            shown = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
            streams.out(f"{at:08x}  {left:23}  {right:23}  |{shown}|\n")
        if data:
            streams.out(f"{len(data):08x}\n")
    return 0


def _digest(kind: str) -> Program:
    def program(session: Session, arguments: list[str], streams: Streams) -> int:
        for name, text in zip(arguments or ["-"], texts(session, arguments, streams, kind), strict=False):
            if text is None:
                return 1
            data = text.encode("utf-8", "surrogateescape")
            streams.out(f"{hashlib.new(kind.removesuffix('sum'), data).hexdigest()}  {name}\n")
        return 0

    return program


def _base64(session: Session, arguments: list[str], streams: Streams) -> int:
    decode = any(each in ("-d", "--decode", "-D") for each in arguments)
    for text in texts(session, [each for each in arguments if not each.startswith("-")], streams, "base64"):
        try:
            data = (text or "").encode("utf-8", "surrogateescape")
            decoded = base64.b64decode(data).decode("utf-8", "surrogateescape") if decode else ""
            streams.out(decoded if decode else base64.b64encode(data).decode() + "\n")
        except ValueError:
            streams.err("base64: invalid input\n")
            return 1
    return 0


def _perl(session: Session, arguments: list[str], streams: Streams) -> int:
    """Print digits of pi, which is the one program of perl that is simulated."""
    requested = re.search(r"bpi\((\d{1,4})\)", " ".join(arguments))
    if requested is not None:
        streams.out(f"{_pi(int(requested[1]))}\n")
    return 0


def _pi(digits: int) -> str:
    digits = min(digits, 4000)
    unit = int(10 ** (digits + 10))

    def arctangent(inverse: int) -> int:
        total = term = unit // inverse
        odd, sign = 1, 1
        while term:
            term //= inverse * inverse
            odd, sign = odd + 2, -sign
            total += sign * (term // odd)
        return total

    text = str(4 * (4 * arctangent(5) - arctangent(239)) // 10**10)
    return f"{text[0]}.{text[1:digits]}"


PRINTING_PROGRAMS: dict[str, Program] = {
    "echo": _echo,
    "printf": _printf,
    "seq": _seq,
    "hexdump": reads_stdin(_hexdump),
    "base64": reads_stdin(_base64),
    "perl": _perl,
    **{name: reads_stdin(_digest(name)) for name in ("md5sum", "sha1sum", "sha256sum", "sha512sum")},
}
