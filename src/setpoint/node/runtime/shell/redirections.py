"""Where what a command reads comes from, and where what it writes goes."""

from __future__ import annotations

from collections.abc import Callable, Generator

from setpoint.node.runtime.shell.session import Session, Streams
from setpoint.node.runtime.shell.tree import Redirection
from setpoint.node.runtime.shell.words import Run, expand


def redirected(
    run: Run, session: Session, redirections: tuple[Redirection, ...], streams: Streams
) -> Generator[float, None, Streams | None]:
    """The streams with the redirections in place; None, after a complaint, if one cannot be."""
    if not redirections:
        return streams
    found = Streams(streams.out, streams.err, streams.stdin)
    for redirection in redirections:
        texts = yield from expand(run, session, redirection.target, streams, split=False)
        target = texts[0] if texts else ""
        if redirection.operator == "<<":
            found.stdin = target
        elif redirection.operator == "<":
            content = "" if target == "/dev/null" else session.files.read(session.path(target))
            if content is None:
                streams.err(f"sh: can't open {target}: no such file\n")
                return None
            found.stdin = content
        elif redirection.operator == ">&":
            sink = found.out if target == "1" else found.err
            found = _with_sink(found, redirection.descriptor, sink)
        else:
            if target in ("/dev/stdout", "/proc/1/fd/1"):
                sink = streams.out
            elif target in ("/dev/stderr", "/proc/1/fd/2"):
                sink = streams.err
            else:
                path = session.path(target)
                refusal = session.files.refusal(path)
                if refusal:
                    streams.err(f"{session.name}: can't create {target}: {refusal}\n")
                    return None
                if redirection.operator == ">" or not session.files.is_file(path):
                    session.files.write(path, "")
                sink = _file_sink(session, path)
            found = _with_sink(found, redirection.descriptor, sink)
    return found


def _with_sink(streams: Streams, descriptor: int, sink: Callable[[str], None]) -> Streams:
    if descriptor == 2:
        return Streams(streams.out, sink, streams.stdin)
    return Streams(sink, streams.err, streams.stdin)


def _file_sink(session: Session, path: str) -> Callable[[str], None]:
    def write(text: str) -> None:
        session.files.write(path, text, append=True)

    return write
