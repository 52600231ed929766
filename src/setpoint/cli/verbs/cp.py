"""`cp`: copy files and directories to and from containers, with their `tar`."""

from __future__ import annotations

import asyncio
import posixpath
from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.copying import Place, joined, local_source, packed, place, unpack, without_shortcuts
from setpoint.cli.failures import Exit, Failed
from setpoint.cli.flags import number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.pod_choice import PODS, container_of
from setpoint.cli.pod_session import Session, must_live, run_session
from setpoint.client.transport import Unreachable
from setpoint.meta.goformat import quote

Obj = dict[str, Any]
_EXEC_TIMEOUT = 30.0


async def run(call: Invocation) -> None:
    if len(call.args) != 2:
        raise Failed("source and destination are required")
    source, target = map(place, call.args)
    if source.pod and target.pod:
        raise Failed("one of src or dest must be a local file specification")
    if not source.path or not target.path:
        raise Failed("filepath can not be empty")
    if source.pod:
        await _from_pod(call, source, target.path)
    elif target.pod:
        await _to_pod(call, source.path, target)
    else:
        raise Failed("one of src or dest must be a remote file specification")


async def _pod(call: Invocation, where: Place) -> Obj:
    found = await call.client.get(PODS, where.pod, where.namespace or call.namespace)
    must_live(found, "exec into")
    return found


async def _to_pod(call: Invocation, source: str, target: Place) -> None:
    feed_as, own_name = local_source(source)
    pod = await _pod(call, target)
    path = target.path
    container = container_of(call, pod, call.flags.container, quiet=True)
    try:
        async with asyncio.timeout(_EXEC_TIMEOUT):
            nowhere = Session(output=len, errors=len)
            await run_session(call, pod, "exec", container, nowhere, ("test", "-d", path))
        path = joined(path, own_name)
    except TimeoutError:
        raise Failed("context deadline exceeded") from None
    except (Exit, Failed):
        pass  # it is not a directory, or the container has no `test`
    path = posixpath.normpath(path)
    command = ["tar", "--no-same-permissions", "--no-same-owner"] if call.flags.no_preserve else ["tar"]
    command += ["-xmf", "-", "-C", posixpath.dirname(path) or "."]
    container_of(call, pod, call.flags.container)
    feed = packed(feed_as, posixpath.basename(path), call.print_err)
    await run_session(call, pod, "exec", container, Session(stdin=True, feed=feed), command)


async def _from_pod(call: Invocation, source: Place, target: str) -> None:
    # Imported here because it is slow to load.
    from tempfile import TemporaryFile

    pod = await _pod(call, source)
    container = container_of(call, pod, call.flags.container)
    prefix = without_shortcuts(posixpath.normpath(source.path.lstrip("/\\")))
    with TemporaryFile() as archive:
        failure = None
        try:
            await _fetched(call, pod, container, source.path, archive)
        except Exit as error:
            failure = error
        archive.seek(0)
        explained = False

        def complain(warning: str, link: str) -> None:
            nonlocal explained
            if link and not explained:
                explained = True
                where = f"-n {quote(source.namespace)} {quote(source.pod)} -- tar cf - {quote(source.path)}"
                warning += f' (consider using "{call.command.rpartition(" ")[0]} exec {where} | tar xf -")'
            call.print_err(warning)

        unpack(archive, prefix, target, complain)
    if failure is not None:
        raise failure


async def _fetched(call: Invocation, pod: Obj, container: str, path: str, archive: Any) -> None:
    """Download the complete archive; an interrupted transfer is resumed as often as requested."""
    most, retries = call.flags.retries, 0
    command = ["tar", "cf", "-", path]
    while True:
        if most:
            escaped = path.replace("'", "'\\''")
            command = ["sh", "-c", f"tar cf - '{escaped}' | tail -c+{archive.tell() + 1}"]
        try:
            await run_session(call, pod, "exec", container, Session(output=archive.write, errors=call.write), command)
            return
        except (Unreachable, Exit):
            if 0 <= most <= retries:
                if most:
                    call.print(f"Dropping out copy after {retries} retries")
                raise
            retries += 1
            call.print(f"Resuming copy at {archive.tell()} bytes, retry {retries}/{most}")
            if retries > 1:  # repeated failures are retried with a pause
                await call.io.clock.sleep(min(retries, 30))


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
