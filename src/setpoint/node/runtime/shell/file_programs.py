"""Programs that create, copy, remove, find and describe files and directories."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from posixpath import basename
from typing import Any

from setpoint.node.runtime.files import Files
from setpoint.node.runtime.shell.session import (
    Program,
    Session,
    Streams,
    parse_integer,
    streams_stdin,
    texts,
)

_DISK_BLOCKS = 100 << 20
"""The size of the simulated nodes' disks, in blocks of 1 KiB."""
_FIND_TESTS = ("-name", "-iname", "-path", "-type", "-maxdepth", "-mindepth")
_FIND_ACTIONS = ("-print", "-delete", "-empty")


def _cat(session: Session, arguments: list[str], streams: Streams) -> int:
    status = 0
    for text in texts(session, [each for each in arguments if not re.fullmatch("-[a-z]+", each)], streams, "cat"):
        if text is None:
            status = 1
        else:
            streams.out(text)
    return status


def _touch(session: Session, arguments: list[str], streams: Streams) -> int:
    return _make(session, arguments, streams, "touch: {}", lambda path: session.files.write(path, "", append=True))


def _mkdir(session: Session, arguments: list[str], streams: Streams) -> int:
    return _make(session, arguments, streams, "mkdir: can't create directory '{}'", session.files.make_directory)


def _make(
    session: Session, arguments: list[str], streams: Streams, complaint: str, make: Callable[[str], object]
) -> int:
    status = 0
    for name in arguments:
        if name.startswith("-"):
            continue
        write_error = session.files.write_error(session.path(name))
        if write_error:
            streams.err(f"{complaint.format(name)}: {write_error}\n")
            status = 1
        else:
            make(session.path(name))
    return status


def _rm(session: Session, arguments: list[str], streams: Streams) -> int:
    flags = "".join(each[1:] for each in arguments if each.startswith("-"))
    status = 0
    for name in arguments:
        if name.startswith("-"):
            continue
        if not session.files.remove(session.path(name), "r" in flags.lower()) and "f" not in flags:
            streams.err(f"rm: can't remove '{name}': No such file or directory\n")
            status = 1
    return status


def _chmod(session: Session, arguments: list[str], streams: Streams) -> int:
    words = [each for each in arguments if not each.startswith("-")]
    if words and re.fullmatch("[0-7]{3,4}", words[0]):
        for name in words[1:]:
            session.files.change_mode(session.path(name), int(words[0], 8))
    return 0


def _tee(session: Session, arguments: list[str], streams: Streams) -> Any:
    status, targets = 0, []
    for name in (each for each in arguments if not each.startswith("-")):
        path = session.path(name)
        if write_error := session.files.write_error(path):
            streams.err(f"tee: {name}: {write_error}\n")
            status = 1
            continue
        targets.append(path)
        if "-a" not in arguments:
            session.files.write(path, "")

    def copy(session: Session, arguments: list[str], streams: Streams) -> int:
        for path in targets:
            session.files.write(path, streams.stdin, append=True)
        streams.out(streams.stdin)
        return status

    return streams_stdin(copy, 99)(session, arguments, streams)


def _cp(session: Session, arguments: list[str], streams: Streams) -> int:
    return _copy(session, arguments, streams, "cp")


def _mv(session: Session, arguments: list[str], streams: Streams) -> int:
    return _copy(session, arguments, streams, "mv")


def _copy(session: Session, arguments: list[str], streams: Streams, who: str) -> int:
    words = [each for each in arguments if not each.startswith("-")]
    flags = {letter for each in arguments if re.fullmatch("-[A-Za-z]+", each) for letter in each[1:]}
    if len(words) < 2:
        return 1
    target, files, status = session.path(words[-1]), session.files, 0
    for name in words[:-1]:
        source = session.path(name)
        path = (
            f"{target.rstrip('/')}/{basename(source)}" if files.is_directory(target) or target.endswith("/") else target
        )
        found = [each for each, _ in _walk(session, source)]
        if not found:
            streams.err(f"{who}: can't {'stat' if who == 'cp' else 'rename'} '{name}': No such file or directory\n")
            status = 1
        elif files.is_directory(source) and who == "cp" and not flags & set("rRa"):
            streams.err(f"cp: omitting directory '{name}'\n")
            status = 1
        elif write_error := files.write_error(path) or (files.write_error(source) if who == "mv" else ""):
            streams.err(f"{who}: can't create '{path}': {write_error}\n")
            status = 1
        else:
            for each in found:
                _copy_entry(files, each, path + each[len(source) :])
            if who == "mv":
                files.remove(source, recursive=True)
            if "v" in flags:
                streams.out(f"'{name}' -> '{path}'\n" if who == "cp" else f"renamed '{name}' -> '{path}'\n")
    return status


def _copy_entry(files: Files, source: str, target: str) -> None:
    text = files.read(source)
    if text is None:
        files.make_directory(target)
    else:
        files.write(target, text)


def _ls(session: Session, arguments: list[str], streams: Streams) -> int:
    flags = "".join(each[1:] for each in arguments if each.startswith("-") and not each.startswith("--"))
    status, files = 0, session.files
    names = [each for each in arguments if not each.startswith("-")] or [session.directory]

    def show(path: str, name: str) -> None:
        streams.out(f"{_long_entry(files, path)} {name}\n" if "l" in flags else f"{name}\n")

    def entries(name: str, *, below: bool) -> None:
        path, subdirectories = session.path(name).rstrip("/"), []
        if below or titled:
            streams.out(("\n" if below else "") + f"{name}:\n")
        for each in files.entries(path or "/"):
            if not each.startswith(".") or set("aA") & set(flags):
                show(f"{path}/{each}", each)
                if files.is_directory(f"{path}/{each}"):
                    subdirectories.append(f"{name.rstrip('/')}/{each}")
        for each in subdirectories if "R" in flags else ():
            entries(each, below=True)

    titled = len(names) > 1 or "R" in flags
    for count, name in enumerate(names):
        path = session.path(name)
        if files.is_file(path) or ("d" in flags and files.is_directory(path)):
            show(path, name)
        elif files.is_directory(path):
            streams.out("\n" if count else "")
            entries(name, below=False)
        else:
            streams.err(f"ls: {name}: No such file or directory\n")
            status = 1
    return status


def _long_entry(files: Files, path: str) -> str:
    """Return mode, owner and size of a file. There are no timestamps."""
    known = files.status(path)
    if known is None:
        return "?---------    ? ?        ?               ?"
    kind = stat.S_IFLNK if files.link_at(path) else stat.S_IFDIR if known.directory else stat.S_IFREG
    size = 4096 if known.directory else len((files.read(path) or "").encode("utf-8", "surrogateescape"))
    user, group = ("root" if not each else str(each) for each in (known.uid, known.gid))
    return f"{stat.filemode(kind | known.mode)}    1 {user:<8} {group:<8} {size:>9}"


# -- find -------------------------------------------------------------------------------------------------------------


def _find(session: Session, arguments: list[str], streams: Streams) -> int:
    rest, roots = list(arguments), []
    while rest and not rest[0].startswith(("-", "!", "(")):
        roots.append(rest.pop(0))
    tests: dict[str, str] = {}
    while rest:
        word = rest.pop(0)
        if word in _FIND_TESTS and rest:
            tests[word] = rest.pop(0)
        elif word in _FIND_ACTIONS:
            tests[word] = ""
        else:
            streams.err(f"find: unrecognized: {word}\n")
            return 1
    status, files = 0, session.files
    for root in roots or ["."]:
        if not (files.is_file(session.path(root)) or files.is_directory(session.path(root))):
            streams.err(f"find: {root}: No such file or directory\n")
            status = 1
        found = [name for name, depth in _walk(session, root) if _matches(session, name, depth, tests)]
        for name in reversed(found) if "-delete" in tests else found:
            if "-delete" in tests:
                files.remove(session.path(name), recursive=False)
            if "-delete" not in tests or "-print" in tests:
                streams.out(f"{name}\n")
    return status


def _walk(session: Session, name: str, depth: int = 0) -> Iterator[tuple[str, int]]:
    path = session.path(name)
    directory = session.files.is_directory(path)
    if directory or session.files.is_file(path):
        yield name, depth
    if directory:
        for each in session.files.entries(path):
            yield from _walk(session, f"{name.rstrip('/')}/{each}", depth + 1)


def _matches(session: Session, name: str, depth: int, tests: dict[str, str]) -> bool:
    directory = session.files.is_directory(session.path(name))
    for test, wanted in tests.items():
        match test:
            case "-name":
                matched = fnmatchcase(basename(name), wanted)
            case "-iname":
                matched = fnmatchcase(basename(name).lower(), wanted.lower())
            case "-path":
                matched = fnmatchcase(name, wanted)
            case "-type":
                matched = directory == (wanted == "d") and wanted in ("d", "f")
            case "-maxdepth":
                matched = depth <= parse_integer(wanted)
            case "-mindepth":
                matched = depth >= parse_integer(wanted)
            case "-empty":
                path = session.path(name)
                matched = not (session.files.entries(path) if directory else session.files.read(path))
            case _:
                matched = True
        if not matched:
            return False
    return True


# -- stat --------------------------------------------------------------------------------------------------------------


def _stat(session: Session, arguments: list[str], streams: Streams) -> int:
    rest, pattern, names = list(arguments), "", []
    while rest:
        word = rest.pop(0)
        if word in ("-c", "--format") and rest:
            pattern = rest.pop(0)
        elif word.startswith("--format="):
            pattern = word.partition("=")[2]
        elif not word.startswith("-"):
            names.append(word)
    status = 0
    for name in names:
        known = session.files.status(session.path(name))
        if known is None:
            streams.err(f"stat: can't stat '{name}': No such file or directory\n")
            status = 1
            continue
        size = len((session.files.read(session.path(name)) or "").encode("utf-8", "surrogateescape"))
        what = "directory" if known.directory else "regular file" if size else "regular empty file"
        kind = stat.S_IFDIR if known.directory else stat.S_IFREG
        facts = {
            "n": name,
            "s": f"{size}",
            "a": f"{known.mode:o}",
            "A": stat.filemode(kind | known.mode),
            "F": what,
            "u": f"{known.uid}",
            "g": f"{known.gid}",
            "U": _owner(known.uid),
            "G": _owner(known.gid),
            "h": "1",
            "b": f"{-(-size // 512)}",
            "%": "%",
        }
        if pattern:
            streams.out(_format_stat(pattern, facts) + "\n")
            continue
        streams.out(
            f"  File: {name}\n  Size: {size:<15} Blocks: {facts['b']:<10} IO Block: 4096   {what}\n"
            f"Access: ({known.mode:04o}/{facts['A']})  Uid: ({known.uid:5d}/{facts['U']:>8})   "
            f"Gid: ({known.gid:5d}/{facts['G']:>8})\n"
        )
    return status


def _owner(number: int) -> str:
    return "UNKNOWN" if number else "root"


def _format_stat(pattern: str, facts: dict[str, str]) -> str:
    made, at = "", 0
    while at < len(pattern):
        if pattern[at] == "%" and at + 1 < len(pattern):
            made += facts.get(pattern[at + 1], "?")
            at += 2
        else:
            made += pattern[at]
            at += 1
    return made


def _realpath(session: Session, arguments: list[str], streams: Streams) -> int:
    for name in (each for each in arguments if not each.startswith("-")):
        streams.out(session.files.resolved(session.path(name)) + "\n")
    return 0


def _readlink(session: Session, arguments: list[str], streams: Streams) -> int:
    if any(each.startswith("-") and set(each) & set("fem") for each in arguments):
        return _realpath(session, arguments, streams)
    target = session.files.link_at(session.path(arguments[-1])) if arguments else ""
    if target:
        streams.out(f"{target}\n")
    return 0 if target else 1


# -- du, df ------------------------------------------------------------------------------------------------------------


def _blocks(files: Files, path: str) -> int:
    """Return the size in blocks of 1 KiB; a file occupies multiples of four."""
    if not files.is_directory(path):
        return -(-len(files.read(path) or "") // 4096) * 4
    return 4 + sum(_blocks(files, f"{path.rstrip('/')}/{each}") for each in files.entries(path))


def _du(session: Session, arguments: list[str], streams: Streams) -> int:
    flags = "".join(each[1:] for each in arguments if each.startswith("-"))
    status, files = 0, session.files
    for root in [each for each in arguments if not each.startswith("-")] or ["."]:
        paths = [name for name, _ in _walk(session, root)]
        if not paths:
            streams.err(f"du: {root}: No such file or directory\n")
            status = 1
        shown = [name for name in paths[1:] if "a" in flags or files.is_directory(session.path(name))]
        for name in (*(() if "s" in flags else reversed(shown)), *paths[:1]):
            streams.out(f"{_format_blocks(_blocks(files, session.path(name)), 'h' in flags)}\t{name}\n")
    return status


def _df(session: Session, arguments: list[str], streams: Streams) -> int:
    human = any(each.startswith("-") and "h" in each for each in arguments)
    title = "Size" if human else "1K-blocks"
    streams.out(f"{'Filesystem':<20} {title:>10} {'Used':>9} {'Available':>9} {'Use%':>4} Mounted on\n")
    for kind, path in session.files.mount_points():
        used = _blocks(session.files, path)
        cells = [_format_blocks(each, human) for each in (_DISK_BLOCKS, used, _DISK_BLOCKS - used)]
        share = f"{-(-used * 100 // _DISK_BLOCKS)}%"
        streams.out(f"{kind:<20} {cells[0]:>10} {cells[1]:>9} {cells[2]:>9} {share:>4} {path}\n")
    return 0


def _format_blocks(blocks: int, human: bool) -> str:
    if not human:
        return str(blocks)
    amount, unit = float(blocks), "K"
    for larger in "MGT":
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f}{unit}"


FILE_PROGRAMS: dict[str, Program] = {
    "cat": streams_stdin(_cat),
    "touch": _touch,
    "rm": _rm,
    "unlink": _rm,
    "mkdir": _mkdir,
    "chmod": _chmod,
    "tee": _tee,
    "cp": _cp,
    "mv": _mv,
    "ls": _ls,
    "find": _find,
    "stat": _stat,
    "readlink": _readlink,
    "realpath": _realpath,
    "du": _du,
    "df": _df,
}
