"""`curl` and `wget`, as far as what they ask for is at a simulated Pod.

Of the rest of the world nothing is known: there they end well and say nothing."""

from __future__ import annotations

import re

from setpoint.node.runtime.shell.session import Program, Session, Streams
from setpoint.node.runtime.shell.typed_input import reading

_URL = re.compile(r"(?:(https?)://)?(\[[0-9a-fA-F:]+\]|[^/:?#]+)(?::(\d{1,5}))?([^?#]*)(?:\?([^#]*))?.*")
_WITH_VALUE = frozenset((
    "o", "X", "d", "H", "m", "w", "A", "u", "T", "O", "t", "connect-timeout", "max-time", "output", "request", "data",
    "header", "write-out", "post-data", "timeout", "tries", "retry", "retry-delay", "interface",
))  # fmt: skip


def curl(session: Session, arguments: list[str], streams: Streams) -> int:
    from setpoint.node.runtime.web import WebRequest

    options, words = _options(arguments)
    url = _URL.fullmatch(words[0] if words else "")
    if url is None or session.reach is None:
        return 0
    tls, host = url[1] == "https", url[2].strip("[]")
    port = int(url[3] or (443 if tls else 80))
    data = options.get("d", options.get("data"))
    method = options.get("X", options.get("request", "GET" if data is None else "POST"))
    try:
        asked = WebRequest(port, url[4] or "/", url[5] or "", method, tls, body=(data or "").encode())
        found = session.reach(host, asked)
    except LookupError:
        return 0
    if found is None:
        streams.err(f"curl: (7) Failed to connect to {host} port {port} after 0 ms: Could not connect to server\n")
        return 7
    if "f" in options and found.status >= 400:
        streams.err(f"curl: (22) The requested URL returned error: {found.status}\n")
        return 22
    _put(session, streams, options.get("o", options.get("output", "")), found.body)
    form = options.get("w", options.get("write-out", ""))
    streams.out(form.replace("%{http_code}", str(found.status)).replace("\\n", "\n"))
    return 0


def wget(session: Session, arguments: list[str], streams: Streams) -> int:
    from setpoint.node.runtime.web import WebRequest

    options, words = _options(arguments)
    url = _URL.fullmatch(words[0] if words else "")
    if url is None or session.reach is None:
        return 0
    tls, host = url[1] == "https", url[2].strip("[]")
    port = int(url[3] or (443 if tls else 80))
    try:
        data = options.get("post-data")
        method = "GET" if data is None else "POST"
        found = session.reach(
            host, WebRequest(port, url[4] or "/", url[5] or "", method, tls, body=(data or "").encode())
        )
    except LookupError:
        return 0
    if found is None:
        streams.err(f"wget: can't connect to remote host ({host}): Connection refused\n")
        return 1
    if found.status >= 400:
        streams.err(f"wget: server returned error: HTTP/1.1 {found.status}\n")
        return 1
    target = options.get("O") or url[4].rstrip("/").rpartition("/")[2] or "index.html"
    _put(session, streams, "" if target == "-" else target, found.body)
    return 0


def nc(session: Session, arguments: list[str], streams: Streams) -> int:
    """Sends what it reads over UDP (-u), or looks whether something listens (-z)."""
    from setpoint.node.runtime.web import WebRequest

    options, words = _options(arguments, frozenset("wps"))
    if session.reach is None or len(words) != 2 or not words[1].isdigit() or not ("u" in options or "z" in options):
        return 0
    host, port = words[0], int(words[1])
    sent = streams.stdin if "u" in options and "z" not in options else None
    try:
        found = session.reach(host, WebRequest(port, datagram=sent))
    except LookupError:
        return 0
    if sent is not None:
        streams.out(found.body if found is not None else "")
        return 0 if found is not None else 1
    if "v" in options:
        open_ = f"Connection to {host} {port} port [tcp/*] succeeded!\n"
        refused = f"nc: connect to {host} port {port} (tcp) failed: Connection refused\n"
        streams.err(open_ if found is not None else refused)
    return 0 if found is not None else 1


def _options(arguments: list[str], with_value: frozenset[str] = _WITH_VALUE) -> tuple[dict[str, str], list[str]]:
    found: dict[str, str] = {}
    words: list[str] = []
    rest = list(arguments)
    while rest:
        each = rest.pop(0)
        if each.startswith("--"):
            name, equals, value = each[2:].partition("=")
            found[name] = value if equals or name not in with_value or not rest else rest.pop(0)
        elif each.startswith("-") and len(each) > 1:
            letters = each[1:]
            while letters:
                letter, letters = letters[0], letters[1:]
                found[letter] = ""
                if letter in with_value:
                    found[letter], letters = letters or (rest.pop(0) if rest else ""), ""
        else:
            words.append(each)
    return found, words


def _put(session: Session, streams: Streams, target: str, text: str) -> None:
    if target:
        session.files.write(session.path(target), text)
    else:
        streams.out(text)


WEB_PROGRAMS: dict[str, Program] = {"curl": curl, "wget": wget, "nc": reading(nc, 2)}
