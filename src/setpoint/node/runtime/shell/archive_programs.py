"""`tar`, `gzip`, `gunzip`, `zcat`, `dd` and `ln`."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from hashlib import sha256
from posixpath import basename, dirname, join, normpath
from typing import Any

from setpoint.node.runtime.shell.session import Program, Session, Streams, parse_options, reads_stdin

_MAX_OUTPUT_LINES = 1_900
"""The maximum number of output lines of one command."""
_MAX_MEMBERS = 1_000
_DD_SIZE = re.compile(r"([0-9]{1,12})(c|w|b|kB|k|K|KiB|MB|M|MiB|GB|G|GiB)?")
_DD_OPERANDS = ("if", "of", "bs", "ibs", "obs", "count", "skip", "seek", "conv", "status", "iflag", "oflag")
_DD_SIZES = ("bs", "ibs", "obs", "count", "skip", "seek")
_ENDLESS_DEVICES = ("/dev/zero", "/dev/urandom", "/dev/random")
_DD_MAX_BYTES = 2 << 20
"""The maximum number of bytes that one call copies, which is more than a simulated file can hold."""
_DD_BYTES_PER_SECOND = 100 << 20
"""The rate in the summary: simulated copies take no time."""
_MAX_UNPACKED_BYTES = 1 << 20
"""The maximum size of unpacked data, which is that of a simulated file."""


def _tar(session: Session, arguments: list[str], streams: Streams) -> int:
    words, flags, directory = list(arguments), "", session.directory
    named: list[str] = []
    streamed = False
    if words and not words[0].startswith("-"):
        flags = words.pop(0)
    while words:
        word = words.pop(0)
        if word in ("-C", "--directory") and words:
            directory = session.path(words.pop(0))
        elif word == "-":
            streamed = True
        elif word.startswith("--"):
            continue
        elif word.startswith("-"):
            flags += word[1:]
        else:
            named.append(word)
    if "f" in flags and not streamed:
        return 0  # archives in files are not supported
    if "x" in flags:
        return _unpack(session, directory, streams)
    if "c" in flags:
        return _pack(session, directory, named, streams)
    streams.err("tar: the simulation supports only -c and -x\n")
    return 1


def _unpack(session: Session, directory: str, streams: Streams) -> int:
    import tarfile  # takes 0.4 MB with its compressions, and few clusters use it

    raw, streams.stdin = streams.stdin.encode("utf-8", "surrogateescape"), ""
    try:
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            for number, member in enumerate(archive):
                if number >= _MAX_MEMBERS:
                    streams.err("tar: too many files\n")
                    return 1
                path = normpath(join(directory, member.name.lstrip("/")))
                if not f"{path}/".startswith(f"{directory.rstrip('/')}/"):
                    streams.err(f"tar: {member.name}: paths outside of the directory are skipped\n")
                    continue
                if member.isdir():
                    session.files.make_directory(path)
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    text = content.read().decode("utf-8", "surrogateescape")
                    if not session.files.write(path, text, mode=member.mode & 0o777):
                        streams.err(f"tar: {member.name}: Cannot write\n")
                        return 2
    except tarfile.TarError:
        streams.err("tar: This does not look like a tar archive\n")
        return 2
    return 0


def _pack(session: Session, directory: str, named: list[str], streams: Streams) -> int:
    import tarfile  # see _unpack

    buffer, status = io.BytesIO(), 0
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in named:
            found = False
            for path, text in _walk(session, normpath(join(directory, name))):
                found = True
                inside = path[len(dirname(normpath(join(directory, name)))) :].lstrip("/") or basename(path)
                shown = join(dirname(name.lstrip("/")), inside)
                data = (text or "").encode("utf-8", "surrogateescape")
                entry = tarfile.TarInfo(shown)
                entry.size, entry.mtime, entry.mode = len(data), int(session.now()), 0o644
                if text is None:
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry, io.BytesIO(data))
                if buffer.tell() > session.max_text:
                    return _too_large(streams)
            if not found:
                streams.err(f"tar: {name}: No such file or directory\n")
                status = 2
    packed = buffer.getvalue().decode("utf-8", "surrogateescape")
    if packed.count("\n") > _MAX_OUTPUT_LINES:
        return _too_large(streams)
    streams.out(packed)
    return status


def _too_large(streams: Streams) -> int:
    streams.err("tar: the archive is too large for a simulated container\n")
    return 2


def _walk(session: Session, path: str) -> Iterator[tuple[str, str | None]]:
    """Yield the files below a path with their content, and directories with None, in order."""
    text = session.files.read(path)
    if text is not None:
        yield path, text
    elif session.files.is_directory(path):
        yield path, None
        for name in session.files.entries(path):
            yield from _walk(session, join(path, name))


_DD_UNITS = {
    "": 1,
    "c": 1,
    "w": 2,
    "b": 512,
    "kB": 1000,
    "k": 1024,
    "K": 1024,
    "KiB": 1024,
    "MB": 10**6,
    "M": 1 << 20,
    "MiB": 1 << 20,
    "GB": 10**9,
    "G": 1 << 30,
    "GiB": 1 << 30,
}


class _Usage(ValueError):
    """An operand is wrong; the message is what `dd` prints."""


def _dd(session: Session, arguments: list[str], streams: Streams) -> Any:
    reads_input = not any(each.startswith("if=") for each in arguments)
    return (_copy_stdin if reads_input else _copy)(session, arguments, streams)


def _copy(session: Session, arguments: list[str], streams: Streams) -> int:
    try:
        operands = _operands(arguments)
        sizes = {name: _size(operands[name]) for name in _DD_SIZES if name in operands}
        block = sizes.get("bs", sizes.get("ibs", 512))
        if not block:
            raise _Usage("number 0 is not in 1..2147483647 range")
        data = _read_source(session, operands, sizes, block, streams)
        written = _write_target(session, operands, sizes, data, streams)
    except _Usage as problem:
        streams.err(f"dd: {problem}\n")
        return 1
    if operands.get("status") != "none":
        streams.err(_summary(written, block, operands.get("status") == "noxfer"))
    return 0 if written == len(data) else 1


_copy_stdin = reads_stdin(_copy, 99)


def _read_source(
    session: Session, operands: dict[str, str], sizes: dict[str, int], block: int, streams: Streams
) -> bytes:
    name = operands.get("if", "")
    wanted = sizes["count"] * block if "count" in sizes else None
    if name in _ENDLESS_DEVICES:
        return _device_bytes(name, _DD_MAX_BYTES if wanted is None else min(wanted, _DD_MAX_BYTES), session)
    if not name:
        found, streams.stdin = streams.stdin, ""
    elif name == "/dev/null":
        found = ""
    else:
        text = session.files.read(session.path(name))
        if text is None:
            raise _Usage(f"can't open '{name}': No such file or directory")
        found = text
    return found.encode("utf-8", "surrogateescape")[sizes.get("skip", 0) * block :][:wanted]


def _operands(arguments: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in arguments:
        name, equals, value = each.partition("=")
        if not equals or name not in _DD_OPERANDS:
            raise _Usage(f"unrecognized operand '{each}'")
        found[name] = value
    return found


def _size(text: str) -> int:
    match = _DD_SIZE.fullmatch(text)
    if match is None:
        raise _Usage(f"invalid number '{text}'")
    return int(match[1]) * _DD_UNITS[match[2] or ""]


def _device_bytes(device: str, length: int, session: Session) -> bytes:
    """Return bytes of a device; random ones depend only on the container and the time."""
    if device == "/dev/zero":
        return bytes(length)
    seed = f"{session.hostname} {session.now()}".encode()
    return b"".join(sha256(seed + str(at).encode()).digest() for at in range(-(-length // 32)))[:length]


def _write_target(
    session: Session, operands: dict[str, str], sizes: dict[str, int], data: bytes, streams: Streams
) -> int:
    """Write the data and return the number of bytes written; write an error message if not all were."""
    target = operands.get("of", "")
    if not target:
        streams.out(data.decode("utf-8", "surrogateescape"))
        return len(data)
    if target == "/dev/null":
        return len(data)
    path = session.path(target)
    if write_error := session.files.write_error(path):
        raise _Usage(f"can't open '{target}': {write_error}")
    before = (session.files.read(path) or "").encode("utf-8", "surrogateescape")
    offset = min(sizes.get("seek", 0) * sizes.get("bs", sizes.get("obs", 512)), _DD_MAX_BYTES)
    remainder = before[offset + len(data) :] if "notrunc" in operands.get("conv", "").split(",") else b""
    whole = before[:offset].ljust(offset, b"\0") + data + remainder
    if session.files.write(path, whole.decode("utf-8", "surrogateescape")):
        return len(data)
    streams.err(f"dd: error writing '{target}': No space left on device\n")
    return 0


def _summary(size: int, block: int, short: bool) -> str:
    whole, part = divmod(size, block)
    records = f"{whole}+{int(part > 0)} records in\n{whole}+{int(part > 0)} records out\n"
    if short:
        return records
    rate = _DD_BYTES_PER_SECOND
    return f"{records}{size} bytes ({_human(size)}B) copied, {size / rate:.6f} seconds, {_human(rate)}B/s\n"


def _human(size: float) -> str:
    unit = ""
    for larger in "KMGT":
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f}{unit}" if unit else f"{size:g}"


def _compress(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _decompress(data: bytes) -> bytes | None:
    """Return decompressed data; None if it is not compressed or too large."""
    try:
        unpacking = zlib.decompressobj(wbits=31)
        found = unpacking.decompress(data, _MAX_UNPACKED_BYTES + 1)
    except zlib.error:
        return None
    return found if unpacking.eof and len(found) <= _MAX_UNPACKED_BYTES else None


def _gzip(who: str, decompress: bool, to_output: bool) -> Program:
    def program(session: Session, arguments: list[str], streams: Streams) -> int:
        options, names = parse_options(arguments, frozenset("S"))
        decompressing = decompress or "d" in options
        to_stdout = to_output or "c" in options
        status = 0
        for name in names or ["-"]:
            text = streams.stdin if name == "-" else session.files.read(session.path(name))
            if text is None:
                streams.err(f"{who}: {name}: No such file or directory\n")
                status = 1
                continue
            data = text.encode("utf-8", "surrogateescape")
            result_bytes = _decompress(data) if decompressing else _compress(data)
            if result_bytes is None:
                streams.err(f"{who}: invalid magic\n")
                status = 1
                continue
            result = result_bytes.decode("utf-8", "surrogateescape")
            if to_stdout or name == "-":
                streams.out(result)
                continue
            target = name.removesuffix(".gz") if decompressing else f"{name}.gz"
            if target == name or not session.files.write(session.path(target), result):
                streams.err(f"{who}: {name}: unknown suffix - ignored\n")
                status = 1
            elif "k" not in options:
                session.files.remove(session.path(name))
        return status

    return program


def _ln(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = parse_options(arguments, frozenset())
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
    if write_error := files.write_error(path):
        streams.err(f"ln: {name}: {write_error}\n")
        return 1
    if files.is_file(path) or files.link_at(path):
        if "f" not in options:
            streams.err(f"ln: {name}: File exists\n")
            return 1
        files.remove(path)
    files.link(path, target if "s" in options else session.path(target))
    return 0


ARCHIVE_PROGRAMS: dict[str, Program] = {
    "tar": reads_stdin(_tar, 99),
    "dd": _dd,
    "gzip": reads_stdin(_gzip("gzip", decompress=False, to_output=False)),
    "gunzip": reads_stdin(_gzip("gunzip", decompress=True, to_output=False)),
    "zcat": reads_stdin(_gzip("zcat", decompress=True, to_output=True)),
    "ln": _ln,
}
