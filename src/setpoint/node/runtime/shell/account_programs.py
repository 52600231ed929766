"""Programs about owners and accounts: `chown`, `chgrp`, `adduser` and their kin, `umask`, `ulimit`."""

from __future__ import annotations

import re

from setpoint.node.runtime.shell.connecting import options_of
from setpoint.node.runtime.shell.session import Program, Session, Streams

_USERS, _GROUPS = "/etc/passwd", "/etc/group"
_FIRST_ID = 1000
_LIMITS = "core file size (blocks)         (-c) 0\nopen files                      (-n) 1048576\n"


def _numbers(session: Session, path: str) -> dict[str, int]:
    """Names in a file of accounts, with their numbers."""
    lines = (session.files.read(path) or "").splitlines()
    found = {parts[0]: int(parts[2]) for line in lines if len(parts := line.split(":")) > 2 and parts[2].isdigit()}
    return {"root": 0, **found}


def _number(session: Session, name: str, path: str) -> int | None:
    return int(name) if re.fullmatch(r"\d{1,9}", name) else _numbers(session, path).get(name)


def _chown(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = options_of(arguments, frozenset())
    owner, _, group = words[0].partition(":") if words else ("", "", "")
    return _change(session, streams, "chown", (owner, group), words[1:], "R" in options)


def _chgrp(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = options_of(arguments, frozenset())
    return _change(session, streams, "chgrp", ("", words[0] if words else ""), words[1:], "R" in options)


def _change(
    session: Session, streams: Streams, who: str, names: tuple[str, str], paths: list[str], recursive: bool
) -> int:
    numbers: list[int | None] = []
    for name, path, kind in ((names[0], _USERS, "user"), (names[1], _GROUPS, "group")):
        number = _number(session, name, path) if name else None
        if name and number is None:
            streams.err(f"{who}: unknown {kind} {name}\n")
            return 1
        numbers.append(number)
    status = 0
    for name in paths:
        path = session.path(name)
        if not (session.files.is_file(path) or session.files.is_directory(path)):
            streams.err(f"{who}: {name}: No such file or directory\n")
            status = 1
        elif session.files.user.uid:
            streams.err(f"{who}: {name}: Operation not permitted\n")
            status = 1
        elif refusal := session.files.refusal(path):
            streams.err(f"{who}: {name}: {refusal}\n")
            status = 1
        else:
            session.files.change_owner(path, numbers[0], numbers[1], recursive)
    return status


def _add_account(who: str, path: str, other: str) -> Program:
    def program(session: Session, arguments: list[str], streams: Streams) -> int:
        options, words = options_of(arguments, frozenset("ugGshdc") | {"uid", "gid", "shell", "home", "comment"})
        if not words:
            streams.err(f"{who}: no name given\n")
            return 1
        if session.files.user.uid:
            streams.err(f"{who}: /etc/{path.rpartition('/')[2]}: Permission denied\n")
            return 1
        name, known = words[0], _numbers(session, path)
        if name in known:
            streams.err(f"{who}: {other} '{name}' in use\n")
            return 1
        asked = options.get("u" if path == _USERS else "g") or options.get("uid" if path == _USERS else "gid") or ""
        number = int(asked) if re.fullmatch(r"\d{1,9}", asked) else max([_FIRST_ID - 1, *known.values()]) + 1
        before = session.files.read(path) or ("root:x:0:0:root:/root:/bin/sh\n" if path == _USERS else "root:x:0:\n")
        line = f"{name}:x:{number}:{number}::/home/{name}:/bin/sh\n" if path == _USERS else f"{name}:x:{number}:\n"
        return 0 if session.files.write(path, before + line) else 1

    return program


def _umask(session: Session, arguments: list[str], streams: Streams) -> int:
    if not arguments:
        streams.out("0022\n")
    return 0


def _ulimit(session: Session, arguments: list[str], streams: Streams) -> int:
    if arguments == ["-a"]:
        streams.out(_LIMITS)
    elif len(arguments) < 2:
        streams.out("1048576\n" if arguments == ["-n"] else "unlimited\n")
    return 0


def _nothing_to_say(session: Session, arguments: list[str], streams: Streams) -> int:
    """What it does cannot be seen from within the container: writing buffers to disk, or a line to the system log."""
    return 0


def _clear(session: Session, arguments: list[str], streams: Streams) -> int:
    streams.out("\x1b[H\x1b[2J")
    return 0


ACCOUNT_PROGRAMS: dict[str, Program] = {
    "chown": _chown, "chgrp": _chgrp, "umask": _umask, "ulimit": _ulimit, "clear": _clear,
    "sync": _nothing_to_say, "logger": _nothing_to_say,
    **{name: _add_account(name, _USERS, "user") for name in ("adduser", "useradd")},
    **{name: _add_account(name, _GROUPS, "group") for name in ("addgroup", "groupadd")},
}  # fmt: skip
