"""The tar archives of `cp`; files are never written outside of the target."""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from setpoint.cli.failures import Failed

_PIECE = 64 * 1024
_DEEPEST = 200
_BLOCK = tarfile.BLOCKSIZE
FORMAT = "filespec must match the canonical format: [[namespace/]pod:]file/path"


class Place(NamedTuple):
    """A location: `path`, `pod:path` or `namespace/pod:path`."""

    path: str
    pod: str = ""
    namespace: str = ""


def place(word: str) -> Place:
    owner, colon, path = word.partition(":")
    if not colon:
        return Place(trimmed(word))
    namespace, _, pod = owner.rpartition("/")
    if not owner or "/" in namespace:
        raise Failed(FORMAT)
    return Place(trimmed(path.replace("\\", "/")), pod, namespace)


def trimmed(path: str) -> str:
    return path[:-1] if path != "/" and path.endswith("/") else path


def without_shortcuts(path: str) -> str:
    """Return the path without leading `../`, so that it cannot leave the target."""
    while path.startswith(("../", "..\\")):
        path = path[3:]
    path = "" if path in (".", "..") else path
    return path[1:] if path.startswith(("/", "\\")) else path


# -- upload ------------------------------------------------------------------------------------------------------------


def local_source(path: str) -> tuple[str, str]:
    """Return the directory and the name of a local file. Raise Failed."""
    if not os.path.exists(path):
        raise Failed(f"{path} doesn't exist in local filesystem")
    path = os.path.normpath(path)
    return path, os.path.basename(path)


async def packed(source: str, name: str, complain: Callable[[str], None]) -> AsyncIterator[bytes]:
    """Yield a tar archive of the file or directory under the name `name`."""
    for piece in _packed(Path(source), name, complain, 0):
        yield piece
    yield bytes(2 * _BLOCK)


def _packed(path: Path, name: str, complain: Callable[[str], None], depth: int) -> Iterator[bytes]:
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode):
        if depth > _DEEPEST:
            raise Failed(f"{path} is too deep a directory")
        entries = sorted(path.iterdir())
        if not entries:
            yield _header(name, found, tarfile.DIRTYPE)
        for entry in entries:
            yield from _packed(entry, f"{name}/{entry.name}", complain, depth + 1)
    elif stat.S_ISLNK(found.st_mode):
        yield _header(name, found, tarfile.SYMTYPE, os.readlink(path))
    elif stat.S_ISREG(found.st_mode):
        with path.open("rb") as file:
            yield from _contents(name, file, path)
    else:
        complain(f"warning: skipping {path}: it is neither a file nor a directory")


def _contents(name: str, file: BinaryIO, path: Path) -> Iterator[bytes]:
    found = os.fstat(file.fileno())
    yield _header(name, found, tarfile.REGTYPE)
    left = found.st_size
    while left:
        piece = file.read(min(left, _PIECE))
        if not piece:
            raise Failed(f"{path} became shorter while it was copied")
        left -= len(piece)
        yield piece
    yield bytes(-found.st_size % _BLOCK)


def _header(name: str, found: os.stat_result, kind: bytes, link: str = "") -> bytes:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    made.mode, made.uid, made.gid = stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid
    made.mtime, made.size = int(found.st_mtime), found.st_size if kind == tarfile.REGTYPE else 0
    return made.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


# -- download ----------------------------------------------------------------------------------------------------------


def unpack(archive: BinaryIO, prefix: str, target: str, complain: Callable[[str, str], None]) -> None:
    """Extract files and directories only. `complain` is called with the reason and the link target of each skipped
    entry."""
    made: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=archive, mode="r|") as entries:
            for entry in entries:
                _unpack(entries, entry, prefix, target, complain, made)
    except tarfile.ReadError as error:
        if str(error) != "empty file":
            raise Failed(f"the archive from the container is broken: {error}") from None


def _unpack(
    entries: tarfile.TarFile,
    entry: tarfile.TarInfo,
    prefix: str,
    target: str,
    complain: Callable[[str, str], None],
    made: dict[str, str],
) -> None:
    # Every name begins with the requested prefix, except in an archive that was tampered with.
    if not entry.name.startswith(prefix):
        raise Failed("tar contents corrupted")
    inside = entry.name[len(prefix) :].replace("\\", "/").lstrip("/")
    path = os.path.normpath(os.path.join(target, inside))
    if not _within(target, path):
        complain(f"warning: file {_quoted(path)} is outside target destination, skipping", "")
        return
    if entry.issym():
        complain(f"warning: skipping symlink: {_quoted(path)} -> {_quoted(entry.linkname)}", entry.linkname)
        return
    os.makedirs(os.path.dirname(path) or ".", 0o755, exist_ok=True)
    if entry.isdir():
        os.makedirs(path, 0o755, exist_ok=True)
    elif entry.islnk():
        if entry.linkname in made:  # a hard link to a file that was extracted already
            shutil.copyfile(made[entry.linkname], path)
    elif entry.isreg():
        content = entries.extractfile(entry)
        assert content is not None
        with open(path, "wb") as file:
            shutil.copyfileobj(content, file, _PIECE)
        made[entry.name] = path
    else:
        complain(f"warning: skipping {_quoted(path)}: it is neither a file nor a directory", "")


def _within(target: str, path: str) -> bool:
    """Return whether a path is within the target, by its name and after resolving existing links."""
    relative = os.path.relpath(path, target)
    if not (relative == "." or relative == without_shortcuts(relative)):
        return False
    real, place = os.path.realpath(target), os.path.realpath(path)
    return place == real or place.startswith(real.rstrip("/") + "/")


def _quoted(text: str) -> str:
    from setpoint.meta.goformat import quote

    return quote(text)


def joined(directory: str, name: str) -> str:
    return trimmed(posixpath.normpath(posixpath.join(directory, name)))
