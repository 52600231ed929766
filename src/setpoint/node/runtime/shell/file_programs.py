"""Programs that look at files and directories, make them and remove them."""

from __future__ import annotations

import re
from collections.abc import Callable
from posixpath import basename
from typing import Any

from setpoint.node.runtime.shell.dd import dd
from setpoint.node.runtime.shell.session import Program, Session, Streams, texts
from setpoint.node.runtime.shell.tar import tar
from setpoint.node.runtime.shell.typed_input import reading, streaming


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
        refusal = session.files.refusal(session.path(name))
        if refusal:
            streams.err(f"{complaint.format(name)}: {refusal}\n")
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
        if refusal := session.files.refusal(path):
            streams.err(f"tee: {name}: {refusal}\n")
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

    return streaming(copy, 99)(session, arguments, streams)


def _cp(session: Session, arguments: list[str], streams: Streams) -> int:
    return _copy(session, arguments, streams, "cp")


def _mv(session: Session, arguments: list[str], streams: Streams) -> int:
    return _copy(session, arguments, streams, "mv")


def _copy(session: Session, arguments: list[str], streams: Streams, who: str) -> int:
    words = [each for each in arguments if not each.startswith("-")]
    if len(words) < 2:
        return 1
    target, files, status = session.path(words[-1]), session.files, 0
    for name in words[:-1]:
        source = session.path(name)
        text = files.read(source)
        place = (
            f"{target.rstrip('/')}/{basename(source)}" if files.is_directory(target) or target.endswith("/") else target
        )
        if text is None:
            streams.err(f"{who}: can't {'stat' if who == 'cp' else 'rename'} '{name}': No such file or directory\n")
            status = 1
        elif refusal := files.refusal(place) or (files.refusal(source) if who == "mv" else ""):
            streams.err(f"{who}: can't create '{place}': {refusal}\n")
            status = 1
        else:
            files.write(place, text)
            if who == "mv":
                files.remove(source)
            if any(re.fullmatch("-[a-z]*v[a-z]*", each) for each in arguments):
                streams.out(f"'{name}' -> '{place}'\n" if who == "cp" else f"renamed '{name}' -> '{place}'\n")
    return status


FILE_PROGRAMS: dict[str, Program] = {
    "cat": streaming(_cat), "touch": _touch, "rm": _rm, "unlink": _rm, "mkdir": _mkdir, "chmod": _chmod,
    "tee": _tee, "cp": _cp, "mv": _mv, "tar": reading(tar, 99), "dd": dd,
}  # fmt: skip
