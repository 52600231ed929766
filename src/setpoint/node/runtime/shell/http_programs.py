"""`curl` and `wget` (busybox's): they reach what simulated Pods serve, and fail as the real ones do."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import pairwise

from setpoint.node.runtime.network import Failure
from setpoint.node.runtime.shell.connecting import Url, network_ready, options_of, seconds_of, takes, url_of
from setpoint.node.runtime.shell.session import Program, Running, Session, Streams
from setpoint.node.runtime.web_messages import WebAnswer, WebRequest

_CURL_VALUES = frozenset((
    "o", "X", "d", "H", "m", "w", "A", "u", "T", "b", "c", "e", "F", "E", "x", "connect-timeout", "max-time", "output",
    "request", "data", "data-raw", "data-binary", "json", "header", "write-out", "retry", "retry-delay",
    "retry-max-time", "interface", "cacert", "cert", "key", "user", "user-agent", "resolve", "url", "form", "cookie",
    "proxy",
))  # fmt: skip
_WGET_VALUES = frozenset((
    "O", "T", "t", "U", "Y", "P", "o", "post-data", "post-file", "header", "timeout", "tries", "user-agent",
    "output-document", "spider-timeout",
))  # fmt: skip

_UNTRUSTED = """SSL certificate problem: unable to get local issuer certificate
More details here: https://curl.se/docs/sslcerts.html

curl failed to verify the legitimacy of the server and therefore could not
establish a secure connection to it. To learn more about this situation and
how to fix it, please visit the webpage mentioned above."""


def curl(session: Session, arguments: list[str], streams: Streams) -> Running:
    options, words = options_of(arguments, _CURL_VALUES)
    words += [options["url"]] if "url" in options else []
    if not words:
        streams.err("curl: (2) no URL specified\ncurl: try 'curl --help' or 'curl --manual' for more information\n")
        return 2
    yield from network_ready(session)
    status = 0
    for word in words:
        status = yield from _curl(session, word, options, arguments, streams)
    return status


def _curl(session: Session, word: str, options: dict[str, str], arguments: list[str], streams: Streams) -> Running:
    url, silent = url_of(word), "s" in options or "silent" in options
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
    problem = _untrusted(session, options) if url.tls else None
    if problem is not None and session.network.connect(address, url.port) is None:
        return failed(*problem)
    request = WebRequest(url.port, url.path, url.query, method, url.tls, body=body, headers=_headers(arguments))
    found = yield from session.network.request(address, request)
    whole = seconds_of(options, "m", "max-time")
    if isinstance(found, Failure):
        lasted, code, text = _no_answer(found, url, whole, seconds_of(options, "connect-timeout"))
        yield lasted
        return failed(code, text)
    if found.delay:
        yield min(found.delay, whole or found.delay)
        if whole is not None and found.delay > whole:
            return failed(28, f"Operation timed out after {int(whole * 1000)} milliseconds with 0 bytes received")
    if ("f" in options or "fail" in options) and found.status >= 400:
        return failed(22, f"The requested URL returned error: {found.status}")
    shown = head_of(found, session.now()) if head or "i" in options or "include" in options else ""
    target = options.get("o", options.get("output", ""))
    if "O" in options or "remote-name" in options:
        target = url.path.rpartition("/")[2]
        if not target:
            return failed(23, "Failed to open the file curl_response: Is a directory")
    if not _put(session, streams, target, shown + ("" if head else found.body)):
        return failed(23, f"Failed to open the file {target}: {session.files.refusal(session.path(target))}")
    streams.out(_written_out(options.get("w", options.get("write-out", "")), found, url, address))
    return 0


def _no_answer(failure: Failure, url: Url, whole: float | None, connecting: float | None) -> tuple[float, int, str]:
    """Return how long the failure takes to show, and the code and the text of it.

    `whole` is the limit for all of the transfer, `connecting` that for the connection alone."""
    limits = [each for each in (whole, connecting) if each is not None]
    lasted, cut = takes(failure, min(limits) if limits else None)
    if failure is Failure.CLOSED:
        return lasted, 52, "Empty reply from server"
    milliseconds = int(lasted * 1000)
    if cut and lasted == whole:
        return lasted, 28, f"Connection timed out after {milliseconds} milliseconds"
    where = f"Failed to connect to {url.host} port {url.port} after {milliseconds} ms"
    if cut:
        return lasted, 28, f"{where}: Timeout was reached"
    return lasted, 28 if failure is Failure.LOST else 7, f"{where}: Could not connect to server"


def _headers(arguments: list[str]) -> tuple[tuple[str, str], ...]:
    """Return those that are given with -H and --header, of which there may be several."""
    found = []
    for option, value in pairwise([*arguments, ""]):
        if option in ("-H", "--header"):
            name, _, content = value.partition(":")
            found.append((name.strip().lower(), content.strip()))
        elif option.startswith("-H") and len(option) > 2:
            name, _, content = option[2:].partition(":")
            found.append((name.strip().lower(), content.strip()))
    return tuple(found)


def _untrusted(session: Session, options: dict[str, str]) -> tuple[int, str] | None:
    """Return why the certificate of a server is not trusted: no public authority has signed that of a Pod."""
    if "k" in options or "insecure" in options:
        return None
    authority = options.get("cacert")
    if not authority:
        return 60, _UNTRUSTED
    if session.files.read(session.path(authority)) is None:
        return 77, f"error setting certificate file: {authority}"
    return None


def _written_out(form: str, found: WebAnswer, url: Url, address: str) -> str:
    values = {
        "http_code": str(found.status), "response_code": str(found.status), "content_type": found.content_type,
        "size_download": str(len(found.body.encode("utf-8", "surrogateescape"))), "remote_ip": address,
        "remote_port": str(url.port), "time_total": "0.001000", "time_connect": "0.000500",
    }  # fmt: skip
    for name, value in values.items():
        form = form.replace(f"%{{{name}}}", value)
    return form.replace("\\n", "\n").replace("\\t", "\t")


def head_of(found: WebAnswer, now: float) -> str:
    """Return the status line and the headers of an answer."""
    phrase = HTTPStatus(found.status).phrase if found.status in HTTPStatus._value2member_map_ else ""
    size = len(found.body.encode("utf-8", "surrogateescape"))
    return (
        f"HTTP/1.1 {found.status} {phrase}\r\nDate: {datetime.fromtimestamp(now, UTC):%a, %d %b %Y %H:%M:%S GMT}\r\n"
        f"Content-Type: {found.content_type}\r\nContent-Length: {size}\r\n\r\n"
    )


def wget(session: Session, arguments: list[str], streams: Streams) -> Running:
    options, words = options_of(arguments, _WGET_VALUES)
    if not words:
        streams.err("BusyBox v1.37.0 multi-call binary.\n\nUsage: wget [-cqS] [--spider] [-O FILE] URL...\n")
        return 1
    yield from network_ready(session)
    for word in words:
        problem = yield from _wget(session, word, options, arguments, streams)
        if problem:
            streams.err(f"wget: {problem}\n")
            return 1
    return 0


def _wget(
    session: Session, word: str, options: dict[str, str], arguments: list[str], streams: Streams
) -> Generator[float, None, str]:
    """Return why it failed; empty if it did not."""
    quiet, url = "q" in options, url_of(word)
    if url is None or url.scheme not in ("http", "https"):
        return f"not an http or ftp url: {word}"
    address = session.network.resolve(url.host)
    if not address:
        return f"bad address '{url.host}'"
    if not quiet:
        streams.err(f"Connecting to {url.host} ({address}:{url.port})\n")
    data = options.get("post-data")
    request = WebRequest(
        url.port, url.path, url.query, "GET" if data is None else "POST", url.tls,
        body=(data or "").encode("utf-8", "surrogateescape"), headers=_headers(_spaced(arguments)),
    )  # fmt: skip
    found = yield from session.network.request(address, request)
    if isinstance(found, Failure):
        lasted, cut = takes(found, seconds_of(options, "T", "timeout"))
        yield lasted
        if cut:
            return "download timed out"
        if found is Failure.CLOSED:
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
    if not _put(session, streams, "" if target == "-" else target, found.body):
        return f"can't open '{target}': {session.files.refusal(session.path(target)) or 'No space left on device'}"
    if not quiet:
        begun, ended = ("writing to", "written to") if target == "-" else ("saving to", "saved")
        named = "stdout" if target == "-" else f"'{target}'"
        bar = f"{target:<20} 100% |{'*' * 32}| {len(found.body):5d}  0:00:00 ETA"
        streams.err(f"{begun} {named}\n{bar}\n{f'{ended} {named}' if target == '-' else f'{named} {ended}'}\n")
    return ""


def _spaced(arguments: list[str]) -> list[str]:
    """`--header=x` as `--header x`."""
    return [part for each in arguments for part in (each.split("=", 1) if each.startswith("--header=") else [each])]


def _put(session: Session, streams: Streams, target: str, text: str) -> bool:
    if not target or target == "-":
        streams.out(text)
        return True
    return session.files.write(session.path(target), text)


HTTP_PROGRAMS: dict[str, Program] = {"curl": curl, "wget": wget}
