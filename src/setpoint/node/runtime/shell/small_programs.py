"""Small programs that scripts use in passing: `mktemp`, `diff`, `tac`, `rmdir`, `pidof` and the like."""

from __future__ import annotations

import difflib
from hashlib import sha256

from setpoint.node.runtime.shell.connecting import options_of
from setpoint.node.runtime.shell.session import Program, Running, Session, Streams, number, texts
from setpoint.node.runtime.shell.typed_input import reading

_CORES = 8
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def _mktemp(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = options_of(arguments, frozenset("p"))
    form = words[0] if words else "tmp.XXXXXX"
    place = options.get("p") or ("/tmp" if not words or "t" in options else "")
    stem, asked = form.rstrip("X"), len(form) - len(form.rstrip("X"))
    for attempt in range(1000):
        digest = sha256(f"{session.hostname} {session.now()} {form} {attempt}".encode()).digest()
        name = stem + "".join(_LETTERS[each % len(_LETTERS)] for each in digest[:asked])
        path = session.path(f"{place}/{name}" if place else name)
        if session.files.is_file(path) or session.files.is_directory(path):
            continue
        if refusal := session.files.refusal(path):
            streams.err(f"mktemp: (null): {refusal}\n")
            return 1
        if "d" in options:
            session.files.make_directory(path)
        else:
            session.files.write(path, "", mode=0o600)
        streams.out(f"{f'{place}/{name}' if place else name}\n")
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
            why = session.files.refusal(path)
        if why:
            streams.err(f"rmdir: '{name}': {why}\n")
            status = 1
        else:
            session.files.remove(path, recursive=True)
    return status


def _truncate(session: Session, arguments: list[str], streams: Streams) -> int:
    options, words = options_of(arguments, frozenset("s"))
    size = options.get("s", "")
    if not size.isdigit() or not words:
        streams.err("truncate: a size in bytes (-s) and a file are needed\n")
        return 1
    status = 0
    for name in words:
        data = (session.files.read(session.path(name)) or "").encode("utf-8", "surrogateescape")
        wanted = data[: int(size)].ljust(min(int(size), 2 << 20), b"\0").decode("utf-8", "surrogateescape")
        if not session.files.write(session.path(name), wanted):
            streams.err(f"truncate: {name}: {session.files.refusal(session.path(name)) or 'No space left on device'}\n")
            status = 1
    return status


def _compare(who: str) -> Program:
    def program(session: Session, arguments: list[str], streams: Streams) -> int:
        options, names = options_of(arguments, frozenset())
        if len(names) != 2:
            streams.err(f"{who}: two files are needed\n")
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
    """`rev`, `tac` and `nl`."""

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
    """The number of a process by the name of its program; the patterns of `pgrep` are plain parts of it."""
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


def _usleep(session: Session, arguments: list[str], streams: Streams) -> Running:
    yield max(number(arguments[0]), 0) / 1e6 if arguments else 0.0
    return 0


def _for_people(session: Session, arguments: list[str], streams: Streams) -> int:
    """What concerns only shells that somebody types into: aliases, jobs, history."""
    return 0


SMALL_PROGRAMS: dict[str, Program] = {
    "mktemp": _mktemp, "rmdir": _rmdir, "truncate": _truncate, "diff": _compare("diff"), "cmp": _compare("cmp"),
    "pidof": _pidof, "pgrep": _pidof, "nproc": _nproc, "tty": _tty, "usleep": _usleep,
    **{name: reading(_each_line(name)) for name in ("rev", "tac", "nl")},
    **dict.fromkeys(("alias", "unalias", "bg", "fg", "jobs", "history", "hash", "disown", "shopt"), _for_people),
}  # fmt: skip
