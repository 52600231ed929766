"""Programs about the system: time, environment, users and accounts, processes, temporary files."""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime
from hashlib import sha256

from setpoint.node.runtime.shell.session import (
    FOREVER,
    Program,
    ProgramRun,
    Session,
    Streams,
    parse_integer,
    parse_options,
    reads_stdin,
    texts,
)

_SLEEP = re.compile(r"([0-9]++(?:\.[0-9]++)?|\.[0-9]++)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_USERS, _GROUPS = "/etc/passwd", "/etc/group"
_FIRST_ID = 1000
_ULIMIT_OUTPUT = "core file size (blocks)         (-c) 0\nopen files                      (-n) 1048576\n"
_CORES = 8
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def _sleep(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    total = 0.0
    if not arguments:
        streams.err("sleep: missing operand\n")
        return 1
    for argument in arguments:
        if argument in ("infinity", "inf"):
            total = FOREVER
            continue
        match = _SLEEP.fullmatch(argument)
        if match is None:
            streams.err(f"sleep: invalid time interval '{argument}'\n")
            return 1
        total += float(match[1]) * _UNITS[match[2]]
    yield total
    return 0


def _date(session: Session, arguments: list[str], streams: Streams) -> int:
    now = datetime.fromtimestamp(session.now(), UTC)
    pattern = next((each[1:] for each in arguments if each.startswith("+")), "%a %b %e %H:%M:%S UTC %Y")
    pattern = pattern.replace("%s", str(int(now.timestamp()))).replace("%N", f"{now.microsecond * 1000:09d}")
    streams.out(now.strftime(pattern) + "\n")
    return 0


def _env(session: Session, arguments: list[str], streams: Streams) -> int:
    streams.out("".join(f"{name}={value}\n" for name, value in session.variables.items()))
    return 0


def _printenv(session: Session, arguments: list[str], streams: Streams) -> int:
    if not arguments:
        return _env(session, arguments, streams)
    status = 0
    for name in arguments:
        if name in session.variables:
            streams.out(session.variables[name] + "\n")
        else:
            status = 1
    return status


def _whoami(session: Session, arguments: list[str], streams: Streams) -> int:
    uid = session.files.user.uid
    if uid:
        streams.err(f"whoami: unknown uid {uid}\n")
        return 1
    streams.out("root\n")
    return 0


def _id(session: Session, arguments: list[str], streams: Streams) -> int:
    uid, gid, groups = session.files.user[:3]
    everyone = [gid, *(each for each in groups if each != gid)]
    flags = "".join(each[1:] for each in arguments if each.startswith("-"))
    if "u" in flags:
        streams.out(f"{uid}\n")
    elif "g" in flags:
        streams.out(f"{gid}\n")
    elif "G" in flags:
        streams.out(" ".join(str(each) for each in everyone) + "\n")
    else:
        named = [f"{each}(root)" if not each else str(each) for each in (uid, gid, *everyone)]
        streams.out(f"uid={named[0]} gid={named[1]} groups={','.join(named[2:])}\n")
    return 0


def _mount(session: Session, arguments: list[str], streams: Streams) -> int:
    """Show the mounts that every container has. Mounting needs a privileged container."""
    everything = {"overlay": "/", "proc": "/proc", "sysfs": "/sys", "cgroup2": "/sys/fs/cgroup"}
    if not arguments or (arguments[0] == "-t" and len(arguments) == 2):
        for kind, mount_point in everything.items():
            if not arguments or arguments[1] == kind:
                streams.out(f"{kind} on {mount_point} type {kind} (ro,relatime)\n")
    elif not session.files.user.privileged:
        streams.err("mount: permission denied (are you root?)\n")
        return 1
    return 0


def _sysctl(session: Session, arguments: list[str], streams: Streams) -> int:
    status = 0
    for name in (each for each in arguments if not each.startswith("-")):
        name, equals, _ = name.partition("=")
        path = "/proc/sys/" + name.replace(".", "/")
        text = session.files.read(path)
        if text is None:
            streams.err(f"sysctl: error: '{path}' No such file or directory\n")
            status = 1
        elif equals:
            streams.err(f"sysctl: error setting key '{name}': Read-only file system\n")
            status = 1
        else:
            streams.out(text if "-n" in arguments else f"{name} = {text}")
    return status


def _uname(session: Session, arguments: list[str], streams: Streams) -> int:
    streams.out(f"Linux {session.hostname} simulated x86_64 GNU/Linux\n" if arguments else "Linux\n")
    return 0


def _ps(session: Session, arguments: list[str], streams: Streams) -> int:
    user = str(session.files.user.uid or "root")
    streams.out("PID   USER     TIME  COMMAND\n")
    for process, command in enumerate((*session.processes(), " ".join(["ps", *arguments])), start=1):
        streams.out(f"{process:5d} {user:<8}  0:00 {command}\n")
    return 0


def _numbers(session: Session, path: str) -> dict[str, int]:
    """Return the ids by name in a file of accounts."""
    lines = (session.files.read(path) or "").splitlines()
    found = {parts[0]: int(parts[2]) for line in lines if len(parts := line.split(":")) > 2 and parts[2].isdigit()}
    return {"root": 0, **found}


def _number(session: Session, name: str, path: str) -> int | None:
    return int(name) if re.fullmatch(r"\d{1,9}", name) else _numbers(session, path).get(name)


def _chown(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = parse_options(arguments, frozenset())
    owner, _, group = words[0].partition(":") if words else ("", "", "")
    return _change_owner(session, streams, "chown", (owner, group), words[1:], "R" in options)


def _chgrp(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = parse_options(arguments, frozenset())
    return _change_owner(session, streams, "chgrp", ("", words[0] if words else ""), words[1:], "R" in options)


def _change_owner(
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
        elif write_error := session.files.write_error(path):
            streams.err(f"{who}: {name}: {write_error}\n")
            status = 1
        else:
            session.files.change_owner(path, numbers[0], numbers[1], recursive)
    return status


def _add_account(who: str, path: str, other: str) -> Program:
    def program(session: Session, arguments: list[str], streams: Streams) -> int:
        options, words = parse_options(arguments, frozenset("ugGshdc") | {"uid", "gid", "shell", "home", "comment"})
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
        requested_id = (
            options.get("u" if path == _USERS else "g") or options.get("uid" if path == _USERS else "gid") or ""
        )
        number = (
            int(requested_id) if re.fullmatch(r"\d{1,9}", requested_id) else max([_FIRST_ID - 1, *known.values()]) + 1
        )
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
        streams.out(_ULIMIT_OUTPUT)
    elif len(arguments) < 2:
        streams.out("1048576\n" if arguments == ["-n"] else "unlimited\n")
    return 0


def _no_output(session: Session, arguments: list[str], streams: Streams) -> int:
    """Succeed without output: the effect, such as flushing buffers or writing to the system log, is not visible."""
    return 0


def _clear(session: Session, arguments: list[str], streams: Streams) -> int:
    streams.out("\x1b[H\x1b[2J")
    return 0


def _mktemp(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = parse_options(arguments, frozenset("p"))
    template = words[0] if words else "tmp.XXXXXX"
    directory = options.get("p") or ("/tmp" if not words or "t" in options else "")
    stem, random_length = template.rstrip("X"), len(template) - len(template.rstrip("X"))
    for attempt in range(1000):
        digest = sha256(f"{session.hostname} {session.now()} {template} {attempt}".encode()).digest()
        name = stem + "".join(_LETTERS[each % len(_LETTERS)] for each in digest[:random_length])
        path = session.path(f"{directory}/{name}" if directory else name)
        if session.files.is_file(path) or session.files.is_directory(path):
            continue
        if write_error := session.files.write_error(path):
            streams.err(f"mktemp: (null): {write_error}\n")
            return 1
        if "d" in options:
            session.files.make_directory(path)
        else:
            session.files.write(path, "", mode=0o600)
        streams.out(f"{f'{directory}/{name}' if directory else name}\n")
        return 0
    return 1


def _rmdir(session: Session, arguments: list[str], streams: Streams) -> int:
    status = 0
    for name in (each for each in arguments if not each.startswith("-")):
        path = session.path(name)
        if not session.files.is_directory(path):
            why = "Not a directory" if session.files.is_file(path) else "No such file or directory"
        elif session.files.entries(path):
            why = "Directory not empty"
        else:
            why = session.files.write_error(path)
        if why:
            streams.err(f"rmdir: '{name}': {why}\n")
            status = 1
        else:
            session.files.remove(path, recursive=True)
    return status


def _truncate(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = parse_options(arguments, frozenset("s"))
    size = options.get("s", "")
    if not size.isdigit() or not words:
        streams.err("truncate: a size in bytes (-s) and a file are required\n")
        return 1
    status = 0
    for name in words:
        data = (session.files.read(session.path(name)) or "").encode("utf-8", "surrogateescape")
        wanted = data[: int(size)].ljust(min(int(size), 2 << 20), b"\0").decode("utf-8", "surrogateescape")
        if not session.files.write(session.path(name), wanted):
            streams.err(
                f"truncate: {name}: {session.files.write_error(session.path(name)) or 'No space left on device'}\n"
            )
            status = 1
    return status


def _compare(who: str) -> Program:
    def program(session: Session, arguments: list[str], streams: Streams) -> int:
        options, names = parse_options(arguments, frozenset())
        if len(names) != 2:
            streams.err(f"{who}: two files are required\n")
            return 2
        found = [*texts(session, names, streams, who)]
        if None in found:
            return 2
        one, other = (each or "" for each in found)
        if one == other:
            return 0
        if who == "cmp":
            at = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
            if "s" not in options and at is not None:
                line = one.count("\n", 0, at) + 1
                streams.out(f"{names[0]} {names[1]} differ: char {at + 1}, line {line}\n")
            elif "s" not in options:
                streams.err(f"cmp: EOF on {names[0] if len(one) < len(other) else names[1]}\n")
        elif "q" in options:
            streams.out(f"Files {names[0]} and {names[1]} differ\n")
        else:
            lines = difflib.unified_diff(one.splitlines(), other.splitlines(), names[0], names[1], lineterm="")
            streams.out("".join(f"{line}\n" for line in lines))
        return 1

    return program


def _each_line(who: str) -> Program:
    """Return `rev`, `tac` or `nl`."""

    def program(session: Session, arguments: list[str], streams: Streams) -> int:
        for text in texts(session, [each for each in arguments if not each.startswith("-")], streams, who):
            if text is None:
                return 1
            lines = text.splitlines()
            match who:
                case "rev":
                    lines = [line[::-1] for line in lines]
                case "tac":
                    lines.reverse()
                case _:
                    lines = [f"{count:6d}\t{line}" for count, line in enumerate(lines, 1)]
            streams.out("".join(f"{line}\n" for line in lines))
        return 0

    return program


def _pidof(session: Session, arguments: list[str], streams: Streams) -> int:
    """Print the ids of processes by the name of their program; patterns of `pgrep` match as substrings."""
    names = [each for each in arguments if not each.startswith("-")]
    found = []
    for pid, command in enumerate(session.processes(), 1):
        program = command.partition(" ")[0].rpartition("/")[2]
        if any(name in (command if "-f" in arguments else program) for name in names):
            found.append(str(pid))
    if found:
        streams.out(" ".join(found) + "\n")
    return 0 if found else 1


def _nproc(session: Session, arguments: list[str], streams: Streams) -> int:
    quota, _, period = (session.files.read("/sys/fs/cgroup/cpu.max") or "max 100000").partition(" ")
    cores = -(-int(quota) // int(period)) if quota.isdigit() and period.strip().isdigit() else _CORES
    streams.out(f"{min(max(cores, 1), _CORES)}\n")
    return 0


def _tty(session: Session, arguments: list[str], streams: Streams) -> int:
    streams.out("not a tty\n")
    return 1


def _usleep(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    yield max(parse_integer(arguments[0]), 0) / 1e6 if arguments else 0.0
    return 0


def _interactive_only(session: Session, arguments: list[str], streams: Streams) -> int:
    """Succeed: aliases, jobs and history only matter in interactive shells."""
    return 0


SYSTEM_PROGRAMS: dict[str, Program] = {
    "sleep": _sleep,
    "date": _date,
    "env": _env,
    "printenv": _printenv,
    "whoami": _whoami,
    "id": _id,
    "mount": _mount,
    "sysctl": _sysctl,
    "ps": _ps,
    "uname": _uname,
    "pause": lambda session, arguments, streams: _sleep(session, ["infinity"], streams),
    "chown": _chown,
    "chgrp": _chgrp,
    "umask": _umask,
    "ulimit": _ulimit,
    "clear": _clear,
    "sync": _no_output,
    "logger": _no_output,
    **{name: _add_account(name, _USERS, "user") for name in ("adduser", "useradd")},
    **{name: _add_account(name, _GROUPS, "group") for name in ("addgroup", "groupadd")},
    "mktemp": _mktemp,
    "rmdir": _rmdir,
    "truncate": _truncate,
    "diff": _compare("diff"),
    "cmp": _compare("cmp"),
    "pidof": _pidof,
    "pgrep": _pidof,
    "nproc": _nproc,
    "tty": _tty,
    "usleep": _usleep,
    **{name: reads_stdin(_each_line(name)) for name in ("rev", "tac", "nl")},
    **dict.fromkeys(("alias", "unalias", "bg", "fg", "jobs", "history", "hash", "disown", "shopt"), _interactive_only),
}
