"""`nslookup` (busybox's), `dig`, `host` and `getent hosts`: they ask cluster DNS."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

from setpoint.node.runtime.container_network import is_address
from setpoint.node.runtime.network import Failure, Record
from setpoint.node.runtime.shell.connecting import network_ready, options_of
from setpoint.node.runtime.shell.session import Program, Running, Session, Streams

_NO_SERVER = ";; connection timed out; no servers could be reached\n"
_TRIES_LAST = 15.0
_KINDS = ("A", "AAAA", "SRV", "PTR", "CNAME", "ANY", "TXT", "MX", "NS", "SOA")


def reverse_name(address: str) -> str:
    return ".".join(reversed(address.split("."))) + ".in-addr.arpa"


def _nslookup(session: Session, arguments: list[str], streams: Streams) -> Running:
    _, words = options_of(arguments, frozenset())
    if not words:
        usage = "Usage: nslookup [-type=QUERY_TYPE] [-debug] HOST [DNS_SERVER]"
        streams.err(f"BusyBox v1.37.0 multi-call binary.\n\n{usage}\n")
        return 1
    yield from network_ready(session)
    kinds = [each.partition("=")[2] for each in arguments if each.startswith(("-type=", "-q=", "-querytype="))]
    kind = kinds[-1].upper() if kinds else "A"
    server, asked = words[1] if len(words) > 1 else session.network.name_server, words[0]
    own = server == session.network.name_server
    if is_address(asked):
        asked, kind = reverse_name(asked), "PTR"
    found = session.network.lookup(asked, kind) if own else Failure.LOST
    if isinstance(found, Failure):
        yield _TRIES_LAST
        streams.out(f"{_NO_SERVER}\n")
        return 1
    streams.out(f"Server:\t\t{server}\nAddress:\t{server}:53\n\n")
    if found is None:
        streams.out(f"** server can't find {asked}: NXDOMAIN\n\n")
        return 1
    if not found:
        streams.out(f"*** Can't find {asked}: No answer\n\n")
        return 0
    for each in found:
        streams.out(_NSLOOKUP_FORMS[each.kind].format(*each))
    streams.out("\n")
    return 0


_NSLOOKUP_FORMS = {
    "A": "Name:\t{0}\nAddress: {2}\n", "CNAME": "{0}\tcanonical name = {2}\n", "PTR": "{0}\tname = {2}\n",
    "SRV": "{0}\tservice = {2}\n",
}  # fmt: skip


def _host(session: Session, arguments: list[str], streams: Streams) -> Running:
    options, words = options_of(arguments, frozenset("tWc"))
    if not words:
        streams.err("Usage: host [-aCdilrTvVw] [-c class] [-t type] [-W time] hostname [server]\n")
        return 1
    yield from network_ready(session)
    asked, kind = words[0], options.get("t", "A").upper()
    if is_address(asked):
        asked, kind = reverse_name(asked), "PTR"
    found = session.network.lookup(asked, kind)
    if isinstance(found, Failure):
        yield _TRIES_LAST
        streams.out(_NO_SERVER)
        return 1
    if found is None:
        streams.out(f"Host {asked} not found: 3(NXDOMAIN)\n")
        return 1
    if not found:
        streams.out(f"{asked} has no {kind} record\n")
    for each in found:
        streams.out(_HOST_FORMS[each.kind].format(*each))
    return 0


_HOST_FORMS = {
    "A": "{0} has address {2}\n", "CNAME": "{0} is an alias for {2}.\n", "PTR": "{0} domain name pointer {2}\n",
    "SRV": "{0} has SRV record {2}\n",
}  # fmt: skip


def _getent(session: Session, arguments: list[str], streams: Streams) -> Running:
    if arguments[:1] not in (["hosts"], ["ahosts"]) or len(arguments) < 2:
        streams.err(f"Unknown database: {arguments[0] if arguments else ''}\n")
        return 1
    yield from network_ready(session)
    status = 0
    for name in arguments[1:]:
        address = session.network.resolve(name)
        if address:
            streams.out(f"{address:<15} {name}\n")
        else:
            status = 2
    return status


def _dig(session: Session, arguments: list[str], streams: Streams) -> Running:
    name, kind, flags, server, at = "", "A", set(), "", 0
    while at < len(arguments):
        word = arguments[at]
        if word.startswith("+"):
            flags.add(word[1:])
        elif word.startswith("@"):
            server = word[1:]
        elif word in ("-x", "-t") and at + 1 < len(arguments):
            at += 1
            name, kind = (reverse_name(arguments[at]), "PTR") if word == "-x" else (name, arguments[at].upper())
        elif word.upper() in _KINDS:
            kind = word.upper()
        elif not word.startswith("-"):
            name = word
        at += 1
    yield from network_ready(session)
    own = session.network.name_server
    asked = session.network.resolve(server) if server else own
    if server and not asked:
        streams.err(f"dig: couldn't get address for '{server}': not found\n")
        return 10
    found = session.network.lookup(name, kind, search="search" in flags) if asked == own else Failure.LOST
    if isinstance(found, Failure):
        yield _TRIES_LAST
        streams.out(f";; communications error to {asked}#53: timed out\n{_NO_SERVER}")
        return 9
    if "short" in flags:
        streams.out("".join(f"{each.value}\n" for each in found or ()))
        return 0
    streams.out(_dug(session, name.rstrip("."), kind, found, asked))
    return 0


def _dug(session: Session, name: str, kind: str, found: list[Record] | None, server: str) -> str:
    status = "NXDOMAIN" if found is None else "NOERROR"
    number = int.from_bytes(sha256(f"{name} {session.now()}".encode()).digest()[:2], "big")
    answers = "".join(f"{each.name}.\t30\tIN\t{each.kind}\t{each.value}\n" for each in found or ())
    return (
        f"\n; <<>> DiG 9.18 <<>> {name} {kind}\n;; global options: +cmd\n;; Got answer:\n"
        f";; ->>HEADER<<- opcode: QUERY, status: {status}, id: {number}\n"
        f";; flags: qr aa rd; QUERY: 1, ANSWER: {len(found or ())}, AUTHORITY: 0, ADDITIONAL: 0\n\n"
        f";; QUESTION SECTION:\n;{name}.\t\tIN\t{kind}\n\n"
        + (f";; ANSWER SECTION:\n{answers}\n" if answers else "")
        + f";; Query time: 0 msec\n;; SERVER: {server}#53({server}) (UDP)\n"
        f";; WHEN: {datetime.fromtimestamp(session.now(), UTC):%a %b %d %H:%M:%S UTC %Y}\n\n"
    )


NAME_PROGRAMS: dict[str, Program] = {"nslookup": _nslookup, "dig": _dig, "host": _host, "getent": _getent}
