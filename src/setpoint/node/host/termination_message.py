"""Reads the termination message of a container: from its file, or from the end of its log."""

from __future__ import annotations

import os
from pathlib import Path

_MAX_FILE = 4096
_MAX_LOG_LINES = 80
_MAX_LOG = 2048
_LOG_TAIL = 256 * 1024
"""Bytes at the end of a log in which the last lines are looked for."""
_MAX_PER_POD = 12 * 1024


def message_limit(containers: int) -> int:
    """Return the maximum length of a message in bytes, in a Pod with so many containers."""
    return _MAX_PER_POD // max(containers, 1)


def truncate(message: str, limit: int) -> str:
    """Return the first `limit` bytes of a message, without a part of a character at the end."""
    encoded = message.encode()
    return message if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore")


def read_termination_message(path: str, log: str) -> str:
    """Return the message in the file `path`. Without a message there, return the end of the log. An empty path means
    that there is no such file. Blocks."""
    if path:
        try:
            data = _tail(path, _MAX_FILE)
        except FileNotFoundError:
            data = b""
        except OSError as error:
            return f"Error on reading termination log {path}: {error.strerror}"
        if data:
            return data.decode("utf-8", "replace")
    return _last_output(log) if log else ""


def _last_output(log: str) -> str:
    try:
        size = os.stat(log).st_size
        data = _tail(log, _LOG_TAIL)
    except OSError as error:
        return f"Error on reading termination message from logs: {error.strerror}"
    lines = data.splitlines(keepends=True)
    if size > _LOG_TAIL:
        del lines[:1]  # a part of a line
    output = bytearray()
    for line in lines[-_MAX_LOG_LINES:]:
        # "<time> <stream> <tag> <text>", where the tag P marks a part of a line.
        fields = line.split(b" ", 3)
        if len(fields) == 4:
            output += fields[3].rstrip(b"\n") if fields[2].startswith(b"P") else fields[3]
    return bytes(output[-_MAX_LOG:]).decode("utf-8", "replace")


def _tail(path: str, limit: int) -> bytes:
    # The container can replace the file by a link or a pipe: neither is followed or waited for.
    descriptor = os.open(Path(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        file.seek(max(0, size - limit))
        return file.read(limit)
