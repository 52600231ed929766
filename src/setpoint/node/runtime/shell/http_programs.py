"""`curl` and `wget` (busybox's): they reach what simulated Pods serve, and fail as the real programs do."""

from __future__ import annotations

import re
from collections.abc import Generator
from http import HTTPStatus
from itertools import pairwise
from typing import NamedTuple

from setpoint.node.runtime.network import ConnectionFailure, PodRequest, PodResponse, response_head
from setpoint.node.runtime.shell.session import Program, ProgramRun, Session, Streams, parse_options

_MAX_POLLS, _POLL_INTERVAL = 50, 0.1
_FAILURE_DELAYS = {
    ConnectionFailure.REFUSED: 0.0,
    ConnectionFailure.RESET: 0.0,
    ConnectionFailure.UNREACHABLE: 3.0,
    ConnectionFailure.TIMED_OUT: 134.0,
}
"""Seconds until a program notices a failure, as on Linux."""
_URL = re.compile(
    r"(?:(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*)://)?(?:[^/@?#]*@)?(?P<host>\[[0-9a-fA-F:]+\]|[^/:?#]+)"
    r"(?::(?P<port>\d{1,5}))?(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?:#.*)?",
    re.DOTALL,
)
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)")
_UNTRUSTED = """SSL certificate problem: unable to get local issuer certificate
More details here: https://curl.se/docs/sslcerts.html

curl failed to verify the legitimacy of the server and therefore could not
establish a secure connection to it. To learn more about this situation and
how to fix it, please visit the webpage mentioned above."""


class Url(NamedTuple):
    """The parts of a URL."""

    scheme: str
    host: str
    port: int
    path: str
    query: str

    @property
    def tls(self) -> bool:
        return self.scheme == "https"


def parse_url(text: str) -> Url | None:
    """Parse a URL, whose scheme is http by default; return None if it has no host."""
    found = _URL.fullmatch(text)
    if found is None:
        return None
    scheme = (found["scheme"] or "http").lower()
    port = int(found["port"] or (443 if scheme == "https" else 80))
    return Url(scheme, found["host"].strip("[]"), port, found["path"] or "/", found["query"] or "")


def seconds_option(options: dict[str, str], *names: str) -> float | None:
    """Return the first of the named options that is a positive number; None if none is."""
    for name in names:
        if (match := _SECONDS.fullmatch(options.get(name, ""))) is not None and float(match[1]) > 0:
            return float(match[1])
    return None


def wait_for_network(session: Session) -> Generator[float, None, None]:
    """Wait until Services and their endpoints are known, for at most a few seconds."""
    for _ in range(_MAX_POLLS):
        if session.network.ready:
            return
        yield _POLL_INTERVAL


def failure_delay(failure: ConnectionFailure, limit: float | None = None) -> tuple[float, bool]:
    """Return after how many seconds the failure occurs, and whether the limit ends the wait before that."""
    delay = _FAILURE_DELAYS[failure]
    return (limit, True) if limit is not None and limit < delay else (delay, False)


_CURL_VALUES = frozenset(
    (
        "o",
        "X",
        "d",
        "H",
        "m",
        "w",
        "A",
        "u",
        "T",
        "b",
        "c",
        "e",
        "F",
        "E",
        "x",
        "connect-timeout",
        "max-time",
        "output",
        "request",
        "data",
        "data-raw",
        "data-binary",
        "json",
        "header",
        "write-out",
        "retry",
        "retry-delay",
        "retry-max-time",
        "interface",
        "cacert",
        "cert",
        "key",
        "user",
        "user-agent",
        "resolve",
        "url",
        "form",
        "cookie",
        "proxy",
    )
)
_WGET_VALUES = frozenset(
    (
        "O",
        "T",
        "t",
        "U",
        "Y",
        "P",
        "o",
        "post-data",
        "post-file",
        "header",
        "timeout",
        "tries",
        "user-agent",
        "output-document",
        "spider-timeout",
    )
)


def curl(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    options, words = parse_options(arguments, _CURL_VALUES)
    words += [options["url"]] if "url" in options else []
    if not words:
        streams.err("curl: (2) no URL specified\ncurl: try 'curl --help' or 'curl --manual' for more information\n")
        return 2
    yield from wait_for_network(session)
    status = 0
    for word in words:
        status = yield from _curl(session, word, options, arguments, streams)
    return status


def _curl(session: Session, word: str, options: dict[str, str], arguments: list[str], streams: Streams) -> ProgramRun:
    url, silent = parse_url(word), "s" in options or "silent" in options
    shows_errors = not silent or "S" in options or "show-error" in options

    def failed(code: int, text: str) -> int:
        if shows_errors:
            streams.err(f"curl: ({code}) {text}\n")
        return code

    if url is None:
        return failed(3, "URL rejected: No host part in the URL")
    if url.scheme not in ("http", "https"):
        return failed(1, f'Protocol "{url.scheme}" not supported')
    data = next((options[name] for name in ("d", "data", "data-raw", "data-binary", "json") if name in options), None)
    head = "I" in options or "head" in options
    method = options.get("X") or options.get("request") or ("HEAD" if head else "GET" if data is None else "POST")
    address = session.network.resolve(url.host)
    if not address:
        return failed(6, f"Could not resolve host: {url.host}")
    body = (data or "").encode("utf-8", "surrogateescape")
    problem = _trust_error(session, options) if url.tls else None
    if problem is not None and session.network.connect(address, url.port) is None:
        return failed(*problem)
    request = PodRequest(url.port, url.path, url.query, method, url.tls, body=body, headers=_headers(arguments))
    found = yield from session.network.request(address, request)
    total_limit = seconds_option(options, "m", "max-time")
    if isinstance(found, ConnectionFailure):
        elapsed, code, text = _connection_error(found, url, total_limit, seconds_option(options, "connect-timeout"))
        yield elapsed
        return failed(code, text)
    if found.delay:
        yield min(found.delay, total_limit or found.delay)
        if total_limit is not None and found.delay > total_limit:
            return failed(28, f"Operation timed out after {int(total_limit * 1000)} milliseconds with 0 bytes received")
    if ("f" in options or "fail" in options) and found.status >= 400:
        return failed(22, f"The requested URL returned error: {found.status}")
    shown = response_head(found, session.now()) if head or "i" in options or "include" in options else ""
    target = options.get("o", options.get("output", ""))
    if "O" in options or "remote-name" in options:
        target = url.path.rpartition("/")[2]
        if not target:
            return failed(23, "Failed to open the file curl_response: Is a directory")
    if not _write_output(session, streams, target, shown + ("" if head else found.body)):
        return failed(23, f"Failed to open the file {target}: {session.files.write_error(session.path(target))}")
    streams.out(_format_write_out(options.get("w", options.get("write-out", "")), found, url, address))
    return 0


def _connection_error(
    failure: ConnectionFailure, url: Url, total_limit: float | None, connect_limit: float | None
) -> tuple[float, int, str]:
    """Return the delay of a failure in seconds, curl's exit code and its message.

    `total_limit` is the timeout of the whole transfer, `connect_limit` that of the connection."""
    limits = [each for each in (total_limit, connect_limit) if each is not None]
    elapsed, timed_out = failure_delay(failure, min(limits) if limits else None)
    if failure is ConnectionFailure.RESET:
        return elapsed, 52, "Empty reply from server"
    milliseconds = int(elapsed * 1000)
    if timed_out and elapsed == total_limit:
        return elapsed, 28, f"Connection timed out after {milliseconds} milliseconds"
    where = f"Failed to connect to {url.host} port {url.port} after {milliseconds} ms"
    if timed_out:
        return elapsed, 28, f"{where}: Timeout was reached"
    return elapsed, 28 if failure is ConnectionFailure.TIMED_OUT else 7, f"{where}: Could not connect to server"


def _headers(arguments: list[str]) -> tuple[tuple[str, str], ...]:
    """Return the headers of all -H and --header options."""
    found = []
    for option, value in pairwise([*arguments, ""]):
        if option in ("-H", "--header"):
            name, _, content = value.partition(":")
            found.append((name.strip().lower(), content.strip()))
        elif option.startswith("-H") and len(option) > 2:
            name, _, content = option[2:].partition(":")
            found.append((name.strip().lower(), content.strip()))
    return tuple(found)


def _trust_error(session: Session, options: dict[str, str]) -> tuple[int, str] | None:
    """Return why the certificate of a server is not trusted: no public authority has signed that of a Pod; None if it
    is."""
    if "k" in options or "insecure" in options:
        return None
    authority = options.get("cacert")
    if not authority:
        return 60, _UNTRUSTED
    if session.files.read(session.path(authority)) is None:
        return 77, f"error setting certificate file: {authority}"
    return None


def _format_write_out(form: str, found: PodResponse, url: Url, address: str) -> str:
    values = {
        "http_code": str(found.status),
        "response_code": str(found.status),
        "content_type": found.content_type,
        "size_download": str(len(found.body.encode("utf-8", "surrogateescape"))),
        "remote_ip": address,
        "remote_port": str(url.port),
        "time_total": "0.001000",
        "time_connect": "0.000500",
    }
    for name, value in values.items():
        form = form.replace(f"%{{{name}}}", value)
    return form.replace("\\n", "\n").replace("\\t", "\t")


def wget(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    options, words = parse_options(arguments, _WGET_VALUES)
    if not words:
        streams.err("BusyBox v1.37.0 multi-call binary.\n\nUsage: wget [-cqS] [--spider] [-O FILE] URL...\n")
        return 1
    yield from wait_for_network(session)
    for word in words:
        problem = yield from _wget(session, word, options, arguments, streams)
        if problem:
            streams.err(f"wget: {problem}\n")
            return 1
    return 0


def _wget(
    session: Session, word: str, options: dict[str, str], arguments: list[str], streams: Streams
) -> Generator[float, None, str]:
    """Download a URL. Return why it failed; empty if it succeeded."""
    quiet, url = "q" in options, parse_url(word)
    if url is None or url.scheme not in ("http", "https"):
        return f"not an http or ftp url: {word}"
    address = session.network.resolve(url.host)
    if not address:
        return f"bad address '{url.host}'"
    if not quiet:
        streams.err(f"Connecting to {url.host} ({address}:{url.port})\n")
    data = options.get("post-data")
    request = PodRequest(
        url.port,
        url.path,
        url.query,
        "GET" if data is None else "POST",
        url.tls,
        body=(data or "").encode("utf-8", "surrogateescape"),
        headers=_headers(_split_header_options(arguments)),
    )
    found = yield from session.network.request(address, request)
    if isinstance(found, ConnectionFailure):
        elapsed, timed_out = failure_delay(found, seconds_option(options, "T", "timeout"))
        yield elapsed
        if timed_out:
            return "download timed out"
        if found is ConnectionFailure.RESET:
            return "error getting response"
        return f"can't connect to remote host ({address}): {found.value}"
    yield found.delay
    if found.status >= 400:
        phrase = HTTPStatus(found.status).phrase if found.status in HTTPStatus._value2member_map_ else ""
        return f"server returned error: HTTP/1.1 {found.status} {phrase}".rstrip()
    if "spider" in options:
        if not quiet:
            streams.err("remote file exists\n")
        return ""
    target = options.get("O") or options.get("output-document") or url.path.rpartition("/")[2] or "index.html"
    if not _write_output(session, streams, "" if target == "-" else target, found.body):
        return f"can't open '{target}': {session.files.write_error(session.path(target)) or 'No space left on device'}"
    if not quiet:
        doing, done = ("writing to", "written to") if target == "-" else ("saving to", "saved")
        named = "stdout" if target == "-" else f"'{target}'"
        bar = f"{target:<20} 100% |{'*' * 32}| {len(found.body):5d}  0:00:00 ETA"
        streams.err(f"{doing} {named}\n{bar}\n{f'{done} {named}' if target == '-' else f'{named} {done}'}\n")
    return ""


def _split_header_options(arguments: list[str]) -> list[str]:
    """Split `--header=x` into `--header x`."""
    return [part for each in arguments for part in (each.split("=", 1) if each.startswith("--header=") else [each])]


def _write_output(session: Session, streams: Streams, target: str, text: str) -> bool:
    if not target or target == "-":
        streams.out(text)
        return True
    return session.files.write(session.path(target), text)


HTTP_PROGRAMS: dict[str, Program] = {"curl": curl, "wget": wget}
