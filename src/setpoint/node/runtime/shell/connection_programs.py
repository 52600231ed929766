"""`ping`, `nc` and `telnet` (busybox's): whether something answers at an address."""

from __future__ import annotations

from setpoint.node.runtime.network import TCP, UDP, Failure
from setpoint.node.runtime.shell.connecting import network_ready, options_of, seconds_of, takes
from setpoint.node.runtime.shell.http_programs import head_of
from setpoint.node.runtime.shell.session import FOREVER, Program, Running, Session, Streams
from setpoint.node.runtime.shell.typed_input import reading
from setpoint.node.runtime.web_messages import WebRequest

_MOST_PINGS = 1_000_000
_TRIP = "0.080"
"""Milliseconds that the answer to a ping takes."""


def _ping(session: Session, arguments: list[str], streams: Streams) -> Running:
    options, words = options_of(arguments, frozenset("cswWiIt"))
    if not words:
        streams.err("BusyBox v1.37.0 multi-call binary.\n\nUsage: ping [OPTIONS] HOST\n")
        return 1
    yield from network_ready(session)
    host, count = words[0], options.get("c", "")
    address = session.network.resolve(host)
    if not address:
        streams.err(f"ping: bad address '{host}'\n")
        return 1
    size, deadline = int(options["s"]) if options.get("s", "").isdigit() else 56, seconds_of(options, "w")
    interval, reply_timeout = seconds_of(options, "i") or 1.0, seconds_of(options, "W") or 10.0
    wanted, sent, received, begun = int(count) if count.isdigit() else _MOST_PINGS, 0, 0, session.now()
    streams.out(f"PING {host} ({address}): {size} data bytes\n")
    while sent < wanted:
        answered = session.network.echoes(address) is None
        if answered:
            streams.out(f"{size + 8} bytes from {address}: seq={sent} ttl=63 time={_TRIP} ms\n")
            received += 1
        sent += 1
        last = sent == wanted
        yield (0.0 if answered else reply_timeout) if last else interval
        if deadline is not None and session.now() - begun >= deadline:
            break
    lost = 100 * (sent - received) // sent
    streams.out(f"\n--- {host} ping statistics ---\n")
    streams.out(f"{sent} packets transmitted, {received} packets received, {lost}% packet loss\n")
    if received:
        streams.out(f"round-trip min/avg/max = {_TRIP}/{_TRIP}/{_TRIP} ms\n")
    return 0 if received else 1


def _nc(session: Session, arguments: list[str], streams: Streams) -> Running:
    """Sends what it reads and shows what comes back, or only looks whether something listens (-z)."""
    options, words = options_of(arguments, frozenset("wpsieq"))
    if "l" in options:
        # Nobody reaches a program of the shell: it listens as long as it is let.
        yield seconds_of(options, "w") or FOREVER
        return 1
    if len(words) != 2 or not words[1].isdigit():
        streams.err("BusyBox v1.37.0 multi-call binary.\n\nUsage: nc [OPTIONS] HOST PORT  - connect\n")
        return 1
    yield from network_ready(session)
    host, port, limit = words[0], int(words[1]), seconds_of(options, "w")
    address = session.network.resolve(host)
    if not address:
        streams.err(f"nc: bad address '{host}'\n")
        return 1
    udp = "u" in options
    if udp and "z" not in options:
        found = session.network.exchange(address, WebRequest(port, datagram=streams.stdin))
        if isinstance(found, Failure):
            yield limit or 0.0
            return 1
        streams.out(found.body)
        return 0
    failure = session.network.connect(address, port, UDP if udp else TCP)
    if failure is not None:
        lasted, cut = takes(failure, limit)
        yield lasted
        why = "timed out" if cut else failure.value
        streams.err(f"nc: {host} ({address}:{port}): {why}\n" if not cut else f"nc: {why}\n")
        return 1
    if "v" in options:
        streams.err(f"{host} ({address}:{port}) open\n")
    request = streams.stdin.split(" ", 2)
    if "z" not in options and len(request) == 3 and request[0] in ("GET", "HEAD", "POST", "PUT", "DELETE"):
        path, _, query = request[1].partition("?")
        answer = session.network.exchange(address, WebRequest(port, path, query, request[0]))
        if not isinstance(answer, Failure):
            streams.out(head_of(answer, session.now()) + answer.body)
    return 0


def _telnet(session: Session, arguments: list[str], streams: Streams) -> Running:
    _, words = options_of(arguments, frozenset("l"))
    if not words:
        streams.err("BusyBox v1.37.0 multi-call binary.\n\nUsage: telnet [-a] [-l USER] HOST [PORT]\n")
        return 1
    yield from network_ready(session)
    host, port = words[0], int(words[1]) if len(words) > 1 and words[1].isdigit() else 23
    address = session.network.resolve(host)
    if not address:
        streams.err(f"telnet: bad address '{host}'\n")
        return 1
    failure = session.network.connect(address, port)
    if failure is not None:
        yield takes(failure)[0]
        streams.err(f"telnet: can't connect to remote host ({address}): {failure.value}\n")
        return 1
    streams.out("Connected to " + host + "\n")
    streams.err("Connection closed by foreign host\n")
    return 1


CONNECTION_PROGRAMS: dict[str, Program] = {
    "ping": _ping, "nc": reading(_nc, 2), "netcat": reading(_nc, 2), "telnet": _telnet,
}  # fmt: skip
