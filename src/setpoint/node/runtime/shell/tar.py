"""`tar`, as far as copying files into and out of a container needs it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from posixpath import basename, dirname, join, normpath

from setpoint.node.runtime.shell.session import Session, Streams

_MOST_LINES = 1_900
"""What one command can say at once."""
_MOST_FILES = 1_000


def tar(session: Session, arguments: list[str], streams: Streams) -> int:
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
        return 0  # archives that are files are not looked into
    if "x" in flags:
        return _unpack(session, directory, streams)
    if "c" in flags:
        return _pack(session, directory, named, streams)
    streams.err("tar: only -c and -x are understood here\n")
    return 1


def _unpack(session: Session, directory: str, streams: Streams) -> int:
    raw, streams.stdin = streams.stdin.encode("utf-8", "surrogateescape"), ""
    try:
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            for number, member in enumerate(archive):
                if number >= _MOST_FILES:
                    streams.err("tar: too many files\n")
                    return 1
                path = normpath(join(directory, member.name.lstrip("/")))
                if not f"{path}/".startswith(f"{directory.rstrip('/')}/"):
                    streams.err(f"tar: {member.name}: names beyond the directory are left out\n")
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
    buffer, status = io.BytesIO(), 0
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in named:
            found = False
            for path, text in _below(session, normpath(join(directory, name))):
                found = True
                inside = path[len(dirname(normpath(join(directory, name)))) :].lstrip("/") or basename(path)
                shown = join(dirname(name.lstrip("/")), inside)
                data = (text or "").encode("utf-8", "surrogateescape")
                entry = tarfile.TarInfo(shown)
                entry.size, entry.mtime, entry.mode = len(data), int(session.now()), 0o644
                if text is None:
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry, io.BytesIO(data))
            if not found:
                streams.err(f"tar: {name}: No such file or directory\n")
                status = 2
    packed = buffer.getvalue().decode("utf-8", "surrogateescape")
    if packed.count("\n") > _MOST_LINES:
        streams.err("tar: this is more than a simulated container can say at once\n")
        return 2
    streams.out(packed)
    return status


def _below(session: Session, path: str) -> Iterator[tuple[str, str | None]]:
    """Files with their text, and directories, in order."""
    text = session.files.read(path)
    if text is not None:
        yield path, text
    elif session.files.is_directory(path):
        yield path, None
        for name in session.files.entries(path):
            yield from _below(session, join(path, name))
