"""`dd`: copies blocks from a file, a device or standard input to a file or standard output."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from setpoint.node.runtime.shell.session import Session, Streams
from setpoint.node.runtime.shell.typed_input import reading

_SIZE = re.compile(r"([0-9]{1,12})(c|w|b|kB|k|K|KiB|MB|M|MiB|GB|G|GiB)?")
_UNITS = {
    "": 1, "c": 1, "w": 2, "b": 512, "kB": 1000, "k": 1024, "K": 1024, "KiB": 1024, "MB": 10**6, "M": 1 << 20,
    "MiB": 1 << 20, "GB": 10**9, "G": 1 << 30, "GiB": 1 << 30,
}  # fmt: skip
_OPERANDS = ("if", "of", "bs", "ibs", "obs", "count", "skip", "seek", "conv", "status", "iflag", "oflag")
_SIZES = ("bs", "ibs", "obs", "count", "skip", "seek")
_ENDLESS = ("/dev/zero", "/dev/urandom", "/dev/random")
_MOST = 2 << 20
"""Bytes that one call handles. It is more than a simulated file can hold."""
_RATE = 100 << 20
"""Bytes per second in the summary: simulated copies take no time."""


class _Usage(ValueError):
    """An operand is wrong; the message is what `dd` prints."""


def dd(session: Session, arguments: list[str], streams: Streams) -> Any:
    reads_input = not any(each.startswith("if=") for each in arguments)
    return (_reading if reads_input else _copy)(session, arguments, streams)


def _copy(session: Session, arguments: list[str], streams: Streams) -> int:
    try:
        operands = _operands(arguments)
        sizes = {name: _size(operands[name]) for name in _SIZES if name in operands}
        block = sizes.get("bs", sizes.get("ibs", 512))
        if not block:
            raise _Usage("number 0 is not in 1..2147483647 range")
        data = _source(session, operands, sizes, block, streams)
        written = _put(session, operands, sizes, data, streams)
    except _Usage as problem:
        streams.err(f"dd: {problem}\n")
        return 1
    if operands.get("status") != "none":
        streams.err(_summary(written, block, operands.get("status") == "noxfer"))
    return 0 if written == len(data) else 1


_reading = reading(_copy, 99)


def _source(session: Session, operands: dict[str, str], sizes: dict[str, int], block: int, streams: Streams) -> bytes:
    name = operands.get("if", "")
    wanted = sizes["count"] * block if "count" in sizes else None
    if name in _ENDLESS:
        return _made_up(name, _MOST if wanted is None else min(wanted, _MOST), session)
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
        if not equals or name not in _OPERANDS:
            raise _Usage(f"unrecognized operand '{each}'")
        found[name] = value
    return found


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise _Usage(f"invalid number '{text}'")
    return int(match[1]) * _UNITS[match[2] or ""]


def _made_up(device: str, length: int, session: Session) -> bytes:
    """Return what the device would deliver; random bytes depend on the container and the time alone."""
    if device == "/dev/zero":
        return bytes(length)
    seed = f"{session.hostname} {session.now()}".encode()
    return b"".join(sha256(seed + str(at).encode()).digest() for at in range(-(-length // 32)))[:length]


def _put(session: Session, operands: dict[str, str], sizes: dict[str, int], data: bytes, streams: Streams) -> int:
    """Write the data and return how many bytes were written; a message says why if not all were."""
    target = operands.get("of", "")
    if not target:
        streams.out(data.decode("utf-8", "surrogateescape"))
        return len(data)
    if target == "/dev/null":
        return len(data)
    path = session.path(target)
    if refusal := session.files.refusal(path):
        raise _Usage(f"can't open '{target}': {refusal}")
    before = (session.files.read(path) or "").encode("utf-8", "surrogateescape")
    offset = min(sizes.get("seek", 0) * sizes.get("bs", sizes.get("obs", 512)), _MOST)
    kept = before[offset + len(data) :] if "notrunc" in operands.get("conv", "").split(",") else b""
    whole = before[:offset].ljust(offset, b"\0") + data + kept
    if session.files.write(path, whole.decode("utf-8", "surrogateescape")):
        return len(data)
    streams.err(f"dd: error writing '{target}': No space left on device\n")
    return 0


def _summary(size: int, block: int, short: bool) -> str:
    whole, part = divmod(size, block)
    records = f"{whole}+{int(part > 0)} records in\n{whole}+{int(part > 0)} records out\n"
    if short:
        return records
    return f"{records}{size} bytes ({_human(size)}B) copied, {size / _RATE:.6f} seconds, {_human(_RATE)}B/s\n"


def _human(size: float) -> str:
    unit = ""
    for larger in "KMGT":
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f}{unit}" if unit else f"{size:g}"
