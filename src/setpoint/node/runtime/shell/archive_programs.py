"""`gzip`, `gunzip` and `zcat`, and links between files."""

from __future__ import annotations

import gzip
import zlib

from setpoint.node.runtime.shell.connecting import options_of
from setpoint.node.runtime.shell.session import Program, Session, Streams
from setpoint.node.runtime.shell.typed_input import reading

_MOST_BYTES = 1 << 20
"""What a simulated file can hold: nothing is unpacked beyond it."""


def _packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _unpacked(data: bytes) -> bytes | None:
    """Return what was compressed; None if it was not, or is too large."""
    try:
        unpacking = zlib.decompressobj(wbits=31)
        found = unpacking.decompress(data, _MOST_BYTES + 1)
    except zlib.error:
        return None
    return found if unpacking.eof and len(found) <= _MOST_BYTES else None


def _gzip(who: str, unpacks: bool, to_output: bool) -> Program:
    def program(session: Session, arguments: list[str], streams: Streams) -> int:
        options, names = options_of(arguments, frozenset("S"))
        back = unpacks or "d" in options
        shows = to_output or "c" in options
        status = 0
        for name in names or ["-"]:
            text = streams.stdin if name == "-" else session.files.read(session.path(name))
            if text is None:
                streams.err(f"{who}: {name}: No such file or directory\n")
                status = 1
                continue
            data = text.encode("utf-8", "surrogateescape")
            made = _unpacked(data) if back else _packed(data)
            if made is None:
                streams.err(f"{who}: invalid magic\n")
                status = 1
                continue
            result = made.decode("utf-8", "surrogateescape")
            if shows or name == "-":
                streams.out(result)
                continue
            target = name.removesuffix(".gz") if back else f"{name}.gz"
            if target == name or not session.files.write(session.path(target), result):
                streams.err(f"{who}: {name}: unknown suffix - ignored\n")
                status = 1
            elif "k" not in options:
                session.files.remove(session.path(name))
        return status

    return program


def _ln(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = options_of(arguments, frozenset())
    if not words:
        streams.err("ln: missing file operand\n")
        return 1
    target, name = words[0], words[1] if len(words) > 1 else words[0].rpartition("/")[2]
    files, path = session.files, session.path(name)
    if files.is_directory(path) and "n" not in options and "T" not in options:
        name = f"{name.rstrip('/')}/{target.rstrip('/').rpartition('/')[2]}"
        path = session.path(name)
    if "s" not in options and not files.is_file(session.path(target)):
        streams.err(f"ln: {target}: No such file or directory\n")
        return 1
    if refusal := files.refusal(path):
        streams.err(f"ln: {name}: {refusal}\n")
        return 1
    if files.is_file(path) or files.link_at(path):
        if "f" not in options:
            streams.err(f"ln: {name}: File exists\n")
            return 1
        files.remove(path)
    files.link(path, target if "s" in options else session.path(target))
    return 0


ARCHIVE_PROGRAMS: dict[str, Program] = {
    "gzip": reading(_gzip("gzip", unpacks=False, to_output=False)),
    "gunzip": reading(_gzip("gunzip", unpacks=True, to_output=False)),
    "zcat": reading(_gzip("zcat", unpacks=True, to_output=True)),
    "ln": _ln,
}
