"""The clients that come with postgres. Simulated servers of its image accept connections, and have no data."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime

from setpoint.node.runtime.network import Failure
from setpoint.node.runtime.shell.connecting import network_ready, options_of, takes
from setpoint.node.runtime.shell.session import Program, Running, Session, Streams

_WITH_VALUE = frozenset((
    "h", "p", "U", "d", "D", "f", "c", "t", "host", "port", "username", "dbname", "pgdata", "file", "command",
    "timeout",
))  # fmt: skip
_SOCKET = "/var/run/postgresql"
_VERSION = "17"


def _connected(session: Session, options: dict[str, str]) -> Generator[float, None, tuple[str, str]]:
    """Return `host:port` as it was named, and why there is no connection; empty if there is one."""
    yield from network_ready(session)
    host = options.get("h") or options.get("host") or session.variables.get("PGHOST", "")
    port = options.get("p") or options.get("port") or session.variables.get("PGPORT", "5432")
    if not host:
        failure = session.network.connect("127.0.0.1", int(port) if port.isdigit() else 0)
        why = f'connection to server on socket "{_SOCKET}/.s.PGSQL.{port}" failed: No such file or directory'
        return f"{_SOCKET}:{port}", why if failure is not None else ""
    address = session.network.resolve(host)
    if not address:
        return f"{host}:{port}", f'could not translate host name "{host}" to address: Name or service not known'
    failure = session.network.connect(address, int(port) if port.isdigit() else 0)
    if failure is None:
        return f"{host}:{port}", ""
    yield takes(failure, 10.0)[0]
    told = Failure.LOST if failure is Failure.CLOSED else failure
    return f"{host}:{port}", f'connection to server at "{host}" ({address}), port {port} failed: {told.value}'


def _pg_isready(session: Session, arguments: list[str], streams: Streams) -> Running:
    options, _ = options_of(arguments, _WITH_VALUE)
    where, problem = yield from _connected(session, options)
    if "q" not in options and "quiet" not in options:
        streams.out(f"{where} - {'no response' if problem else 'accepting connections'}\n")
    return 2 if problem else 0


def _psql(session: Session, arguments: list[str], streams: Streams) -> Running:
    options, _ = options_of(arguments, _WITH_VALUE)
    where, problem = yield from _connected(session, options)
    if not problem:
        host = where.rpartition(":")[0]
        problem = f'connection to server at "{host}" failed: server closed the connection unexpectedly'
        problem += "\n\tThis probably means the server terminated abnormally\n\tbefore or while processing the request."
    streams.err(f"psql: error: {problem}\n")
    return 2


def _dump(who: str, title: str) -> Program:
    def program(session: Session, arguments: list[str], streams: Streams) -> Running:
        options, _ = options_of(arguments, _WITH_VALUE)
        _, problem = yield from _connected(session, options)
        if problem:
            streams.err(f"{who}: error: {problem}\n")
            return 1
        now = f"{datetime.fromtimestamp(session.now(), UTC):%Y-%m-%d %H:%M:%S} UTC"
        text = f"--\n-- {title}\n--\n\n-- Started on {now}\n\n\n-- Completed on {now}\n\n"
        text += f"--\n-- {title} complete\n--\n\n"
        target = options.get("f") or options.get("file")
        if not target:
            streams.out(text)
        elif not session.files.write(session.path(target), text):
            streams.err(f'{who}: error: could not open output file "{target}"\n')
            return 1
        return 0

    return program


def _pg_basebackup(session: Session, arguments: list[str], streams: Streams) -> Running:
    options, _ = options_of(arguments, _WITH_VALUE)
    target = options.get("D") or options.get("pgdata")
    if not target:
        streams.err("pg_basebackup: error: must specify output directory or backup target\n")
        return 1
    _, problem = yield from _connected(session, options)
    if problem:
        streams.err(f"pg_basebackup: error: {problem}\n")
        return 1
    files = {"PG_VERSION": f"{_VERSION}\n", "postgresql.auto.conf": ""}
    if "R" in options or "write-recovery-conf" in options:
        files["standby.signal"] = ""
    for name, text in files.items():
        path = session.path(f"{target.rstrip('/')}/{name}")
        if not session.files.write(path, text):
            why = session.files.refusal(path) or "No space left on device"
            streams.err(f'pg_basebackup: error: could not create file "{path}": {why}\n')
            return 1
    return 0


POSTGRES_PROGRAMS: dict[str, Program] = {
    "pg_isready": _pg_isready, "psql": _psql, "pg_basebackup": _pg_basebackup,
    "pg_dump": _dump("pg_dump", "PostgreSQL database dump"),
    "pg_dumpall": _dump("pg_dumpall", "PostgreSQL database cluster dump"),
}  # fmt: skip
