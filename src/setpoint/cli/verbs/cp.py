"""`cp`: copy files and directories to and from containers, with their `tar`.

Files are never written outside of the target.
"""

from __future__ import annotations

import asyncio
import posixpath
import stat
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from setpoint.cli.command import Command
from setpoint.cli.failures import Exit, Failed
from setpoint.cli.files import CommandFiles, FileStatus
from setpoint.cli.flags import number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.pod_choice import PODS, container_of
from setpoint.cli.pod_session import Session, must_live, run_session
from setpoint.client.transport import Unreachable
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

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


def local_source(files: CommandFiles, path: str) -> tuple[str, str]:
    """Return the directory and the name of a local file. Raise Failed."""
    if files.status(path) is None:
        raise Failed(f"{path} doesn't exist in local filesystem")
    path = posixpath.normpath(path)
    return path, posixpath.basename(path)


async def packed(files: CommandFiles, source: str, name: str, complain: Callable[[str], None]) -> AsyncIterator[bytes]:
    """Yield a tar archive of the file or directory under the name `name`."""
    for piece in _packed(files, source, name, complain, 0):
        yield piece
    yield bytes(2 * _BLOCK)


def _packed(files: CommandFiles, path: str, name: str, complain: Callable[[str], None], depth: int) -> Iterator[bytes]:
    found = files.status(path, follow=False)
    if found is None:
        raise Failed(f"{path} disappeared while it was copied")
    if found.is_directory:
        if depth > _DEEPEST:
            raise Failed(f"{path} is too deep a directory")
        entries = files.entries(path)
        if not entries:
            yield _header(name, found, tarfile.DIRTYPE)
        for entry in entries:
            yield from _packed(files, posixpath.join(path, entry), f"{name}/{entry}", complain, depth + 1)
    elif found.target:
        yield _header(name, found, tarfile.SYMTYPE)
    elif found.is_file:
        with files.open(path) as file:
            yield from _contents(name, file, found, path)
    else:
        complain(f"warning: skipping {path}: it is neither a file nor a directory")


def _contents(name: str, file: BinaryIO, found: FileStatus, path: str) -> Iterator[bytes]:
    yield _header(name, found, tarfile.REGTYPE)
    left = found.size
    while left:
        piece = file.read(min(left, _PIECE))
        if not piece:
            raise Failed(f"{path} became shorter while it was copied")
        left -= len(piece)
        yield piece
    yield bytes(-found.size % _BLOCK)


def _header(name: str, found: FileStatus, kind: bytes) -> bytes:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, found.target
    made.mode, made.uid, made.gid = stat.S_IMODE(found.mode), found.uid, found.gid
    made.mtime, made.size = found.modified, found.size if kind == tarfile.REGTYPE else 0
    return made.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


# -- download ----------------------------------------------------------------------------------------------------------


def unpack(
    files: CommandFiles, archive: BinaryIO, prefix: str, target: str, complain: Callable[[str, str], None]
) -> None:
    """Extract files and directories only. `complain` is called with the reason and the link target of each skipped
    entry."""
    made: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=archive, mode="r|") as entries:
            for entry in entries:
                _unpack(files, entries, entry, prefix, target, complain, made)
    except tarfile.ReadError as error:
        if str(error) != "empty file":
            raise Failed(f"the archive from the container is broken: {error}") from None


def _unpack(
    files: CommandFiles,
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
    path = posixpath.normpath(posixpath.join(target, inside))
    if not _within(files, target, path):
        complain(f"warning: file {_quoted(path)} is outside target destination, skipping", "")
        return
    if entry.issym():
        complain(f"warning: skipping symlink: {_quoted(path)} -> {_quoted(entry.linkname)}", entry.linkname)
        return
    files.make_directory(posixpath.dirname(path) or ".")
    if entry.isdir():
        files.make_directory(path)
    elif entry.islnk():
        if entry.linkname in made:  # a hard link to a file that was extracted already
            files.write(path, files.read(made[entry.linkname]))
    elif entry.isreg():
        content = entries.extractfile(entry)
        assert content is not None
        files.write(path, b"")
        while piece := content.read(_PIECE):
            files.write(path, piece, append=True)
        made[entry.name] = path
    else:
        complain(f"warning: skipping {_quoted(path)}: it is neither a file nor a directory", "")


def _within(files: CommandFiles, target: str, path: str) -> bool:
    """Return whether a path is within the target, by its name and after resolving existing links."""
    relative = posixpath.relpath(path, target)
    if not (relative == "." or relative == without_shortcuts(relative)):
        return False
    real, place = files.resolved(target), files.resolved(path)
    return place == real or place.startswith(real.rstrip("/") + "/")


def _quoted(text: str) -> str:
    from setpoint.meta.goformat import quote

    return quote(text)


def joined(directory: str, name: str) -> str:
    return trimmed(posixpath.normpath(posixpath.join(directory, name)))


_EXEC_TIMEOUT = 30.0


async def run(invocation: Invocation) -> None:
    if len(invocation.args) != 2:
        raise Failed("source and destination are required")
    source, target = map(place, invocation.args)
    if source.pod and target.pod:
        raise Failed("one of src or dest must be a local file specification")
    if not source.path or not target.path:
        raise Failed("filepath can not be empty")
    if source.pod:
        await _from_pod(invocation, source, target.path)
    elif target.pod:
        await _to_pod(invocation, source.path, target)
    else:
        raise Failed("one of src or dest must be a remote file specification")


async def _pod(invocation: Invocation, where: Place) -> Obj:
    found = await invocation.client.get(PODS, where.pod, where.namespace or invocation.namespace)
    must_live(found, "exec into")
    return found


async def _to_pod(invocation: Invocation, source: str, target: Place) -> None:
    files = invocation.io.files
    feed_as, own_name = local_source(files, source)
    pod = await _pod(invocation, target)
    path = target.path
    container = container_of(invocation, pod, invocation.flags.container, quiet=True)
    try:
        async with asyncio.timeout(_EXEC_TIMEOUT):
            nowhere = Session(output=len, errors=len)
            await run_session(invocation, pod, "exec", container, nowhere, ("test", "-d", path))
        path = joined(path, own_name)
    except TimeoutError:
        raise Failed("context deadline exceeded") from None
    except (Exit, Failed):
        pass  # it is not a directory, or the container has no `test`
    path = posixpath.normpath(path)
    command = ["tar", "--no-same-permissions", "--no-same-owner"] if invocation.flags.no_preserve else ["tar"]
    command += ["-xmf", "-", "-C", posixpath.dirname(path) or "."]
    container_of(invocation, pod, invocation.flags.container)
    feed = packed(files, feed_as, posixpath.basename(path), invocation.print_err)
    await run_session(invocation, pod, "exec", container, Session(stdin=True, feed=feed), command)


async def _from_pod(invocation: Invocation, source: Place, target: str) -> None:
    pod = await _pod(invocation, source)
    container = container_of(invocation, pod, invocation.flags.container)
    prefix = without_shortcuts(posixpath.normpath(source.path.lstrip("/\\")))
    with invocation.io.files.scratch() as archive:
        failure = None
        try:
            await _fetched(invocation, pod, container, source.path, archive)
        except Exit as error:
            failure = error
        archive.seek(0)
        explained = False

        def complain(warning: str, link: str) -> None:
            nonlocal explained
            if link and not explained:
                explained = True
                where = f"-n {quote(source.namespace)} {quote(source.pod)} -- tar cf - {quote(source.path)}"
                warning += f' (consider using "{invocation.command.rpartition(" ")[0]} exec {where} | tar xf -")'
            invocation.print_err(warning)

        unpack(invocation.io.files, archive, prefix, target, complain)
    if failure is not None:
        raise failure


async def _fetched(invocation: Invocation, pod: Obj, container: str, path: str, archive: Any) -> None:
    """Download the complete archive; an interrupted transfer is resumed as often as requested."""
    most, retries = invocation.flags.retries, 0
    command = ["tar", "cf", "-", path]
    while True:
        if most:
            escaped = path.replace("'", "'\\''")
            command = ["sh", "-c", f"tar cf - '{escaped}' | tail -c+{archive.tell() + 1}"]
        try:
            await run_session(
                invocation, pod, "exec", container, Session(output=archive.write, errors=invocation.write), command
            )
            return
        except (Unreachable, Exit):
            if 0 <= most <= retries:
                if most:
                    invocation.print(f"Dropping out copy after {retries} retries")
                raise
            retries += 1
            invocation.print(f"Resuming copy at {archive.tell()} bytes, retry {retries}/{most}")
            if retries > 1:  # repeated failures are retried with a pause
                await invocation.io.clock.sleep(min(retries, 30))


COMMAND = Command(
    "Copy files and directories to and from containers",
    run,
    (
        text("container", "c", help="Container name; the Pod's default, or its first, if omitted."),
        switch("no-preserve", help="Do not preserve ownership and permissions in the container."),
        number("retries", help="How often to take up a copy from a container that broke off; negative: always."),
    ),
    usage="<file-spec-src> <file-spec-dest>",
    about="""
    A place in a container is written `pod:path` or `namespace/pod:path`. There must be a `tar` in the container.
    Symbolic links in what is copied from a container are left out, and nothing is written outside the destination.
    """,
    examples="""
    # Into a container, and back
    setpoint cp ./site web:/usr/share/nginx/html
    setpoint cp web:/etc/nginx/nginx.conf nginx.conf

    # Of another namespace, one of several containers
    setpoint cp backup.sql data/db-0:/tmp/backup.sql -c postgres
    """,
)
