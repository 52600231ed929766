"""Network programs: `ping`, `nc`, `telnet`, DNS lookups, interface configuration, and the PostgreSQL clients."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from hashlib import sha256

from setpoint.node.runtime.network import TCP, UDP, ConnectionFailure, DnsRecord, PodRequest, is_address
from setpoint.node.runtime.shell.http_programs import failure_delay, seconds_option, wait_for_network
from setpoint.node.runtime.shell.session import (
    FOREVER,
    Program,
    ProgramRun,
    Session,
    Streams,
    parse_options,
    reads_stdin,
)

_MAX_PINGS = 1_000_000
_ROUND_TRIP_MS = "0.080"
"""The round-trip time of a ping in milliseconds."""
_NO_DNS_SERVER = ";; connection timed out; no servers could be reached\n"
_DNS_TIMEOUT = 15.0
_DNS_TYPES = ("A", "AAAA", "SRV", "PTR", "CNAME", "ANY", "TXT", "MX", "NS", "SOA")
_NSLOOKUP_FORMS = {
    "A": "Name:\t{0}\nAddress: {2}\n",
    "AAAA": "Name:\t{0}\nAddress: {2}\n",
    "CNAME": "{0}\tcanonical name = {2}\n",
    "PTR": "{0}\tname = {2}\n",
    "SRV": "{0}\tservice = {2}\n",
}
_HOST_FORMS = {
    "A": "{0} has address {2}\n",
    "AAAA": "{0} has IPv6 address {2}\n",
    "CNAME": "{0} is an alias for {2}.\n",
    "PTR": "{0} domain name pointer {2}\n",
    "SRV": "{0} has SRV record {2}\n",
}
_IP_CHANGES = ("add", "del", "delete", "set", "change", "replace", "flush", "up", "down")
_POSTGRES_SOCKET = "/var/run/postgresql"
_POSTGRES_VERSION = "17"


def _ping(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    options, words = parse_options(arguments, frozenset("cswWiIt"))
    if not words:
        streams.err("BusyBox v1.37.0 multi-call binary.\n\nUsage: ping [OPTIONS] HOST\n")
        return 1
    yield from wait_for_network(session)
    host, count = words[0], options.get("c", "")
    address = session.network.resolve(host)
    if not address:
        streams.err(f"ping: bad address '{host}'\n")
        return 1
    size, deadline = int(options["s"]) if options.get("s", "").isdigit() else 56, seconds_option(options, "w")
    interval, reply_timeout = seconds_option(options, "i") or 1.0, seconds_option(options, "W") or 10.0
    wanted, sent, received, started_at = int(count) if count.isdigit() else _MAX_PINGS, 0, 0, session.now()
    streams.out(f"PING {host} ({address}): {size} data bytes\n")
    while sent < wanted:
        answered = session.network.ping(address) is None
        if answered:
            streams.out(f"{size + 8} bytes from {address}: seq={sent} ttl=63 time={_ROUND_TRIP_MS} ms\n")
            received += 1
        sent += 1
        last = sent == wanted
        yield (0.0 if answered else reply_timeout) if last else interval
        if deadline is not None and session.now() - started_at >= deadline:
            break
    lost = 100 * (sent - received) // sent
    streams.out(f"\n--- {host} ping statistics ---\n")
    streams.out(f"{sent} packets transmitted, {received} packets received, {lost}% packet loss\n")
    if received:
        streams.out(f"round-trip min/avg/max = {_ROUND_TRIP_MS}/{_ROUND_TRIP_MS}/{_ROUND_TRIP_MS} ms\n")
    return 0 if received else 1


def _nc(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    """Send the input and show the response, or only check whether something listens (-z)."""
    options, words = parse_options(arguments, frozenset("wpsieq"))
    if "l" in options:
        # Nothing can connect to a program of the shell: it waits until its timeout.
        yield seconds_option(options, "w") or FOREVER
        return 1
    if len(words) != 2 or not words[1].isdigit():
        streams.err("BusyBox v1.37.0 multi-call binary.\n\nUsage: nc [OPTIONS] HOST PORT  - connect\n")
        return 1
    yield from wait_for_network(session)
    host, port, limit = words[0], int(words[1]), seconds_option(options, "w")
    address = session.network.resolve(host)
    if not address:
        streams.err(f"nc: bad address '{host}'\n")
        return 1
    udp = "u" in options
    if udp and "z" not in options:
        found = session.network.exchange(address, PodRequest(port, datagram=streams.stdin))
        if isinstance(found, ConnectionFailure):
            yield limit or 0.0
            return 1
        streams.out(found.body)
        return 0
    failure = session.network.connect(address, port, UDP if udp else TCP)
    if failure is not None:
        elapsed, timed_out = failure_delay(failure, limit)
        yield elapsed
        why = "timed out" if timed_out else failure.value
        streams.err(f"nc: {host} ({address}:{port}): {why}\n" if not timed_out else f"nc: {why}\n")
        return 1
    if "v" in options:
        streams.err(f"{host} ({address}:{port}) open\n")
    if "z" not in options:
        answer = session.network.exchange(address, PodRequest(port, stream=streams.stdin))
        if not isinstance(answer, ConnectionFailure):
            streams.out(answer.body)
    return 0


def _telnet(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    _, words = parse_options(arguments, frozenset("l"))
    if not words:
        streams.err("BusyBox v1.37.0 multi-call binary.\n\nUsage: telnet [-a] [-l USER] HOST [PORT]\n")
        return 1
    yield from wait_for_network(session)
    host, port = words[0], int(words[1]) if len(words) > 1 and words[1].isdigit() else 23
    address = session.network.resolve(host)
    if not address:
        streams.err(f"telnet: bad address '{host}'\n")
        return 1
    failure = session.network.connect(address, port)
    if failure is not None:
        yield failure_delay(failure)[0]
        streams.err(f"telnet: can't connect to remote host ({address}): {failure.value}\n")
        return 1
    streams.out("Connected to " + host + "\n")
    streams.err("Connection closed by foreign host\n")
    return 1


def _reverse_name(address: str) -> str:
    return ".".join(reversed(address.split("."))) + ".in-addr.arpa"


def _nslookup(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    _, words = parse_options(arguments, frozenset())
    if not words:
        usage = "Usage: nslookup [-type=QUERY_TYPE] [-debug] HOST [DNS_SERVER]"
        streams.err(f"BusyBox v1.37.0 multi-call binary.\n\n{usage}\n")
        return 1
    yield from wait_for_network(session)
    kinds = [each.partition("=")[2] for each in arguments if each.startswith(("-type=", "-q=", "-querytype="))]
    kind = kinds[-1].upper() if kinds else "A"
    server, query = words[1] if len(words) > 1 else session.network.name_server, words[0]
    own = server == session.network.name_server
    if is_address(query):
        query, kind = _reverse_name(query), "PTR"
    found = session.network.lookup(query, kind) if own else ConnectionFailure.TIMED_OUT
    if isinstance(found, ConnectionFailure):
        yield _DNS_TIMEOUT
        streams.out(f"{_NO_DNS_SERVER}\n")
        return 1
    streams.out(f"Server:\t\t{server}\nAddress:\t{server}:53\n\n")
    if found is None:
        streams.out(f"** server can't find {query}: NXDOMAIN\n\n")
        return 1
    if not found:
        streams.out(f"*** Can't find {query}: No answer\n\n")
        return 0
    for each in found:
        streams.out(_NSLOOKUP_FORMS[each.kind].format(*each))
    streams.out("\n")
    return 0


def _host(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    options, words = parse_options(arguments, frozenset("tWc"))
    if not words:
        streams.err("Usage: host [-aCdilrTvVw] [-c class] [-t type] [-W time] hostname [server]\n")
        return 1
    yield from wait_for_network(session)
    query, kind = words[0], options.get("t", "A").upper()
    if is_address(query):
        query, kind = _reverse_name(query), "PTR"
    found = session.network.lookup(query, kind)
    if isinstance(found, ConnectionFailure):
        yield _DNS_TIMEOUT
        streams.out(_NO_DNS_SERVER)
        return 1
    if found is None:
        streams.out(f"Host {query} not found: 3(NXDOMAIN)\n")
        return 1
    if not found:
        streams.out(f"{query} has no {kind} record\n")
    for each in found:
        streams.out(_HOST_FORMS[each.kind].format(*each))
    return 0


def _getent(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    if arguments[:1] not in (["hosts"], ["ahosts"]) or len(arguments) < 2:
        streams.err(f"Unknown database: {arguments[0] if arguments else ''}\n")
        return 1
    yield from wait_for_network(session)
    status = 0
    for name in arguments[1:]:
        address = session.network.resolve(name)
        if address:
            streams.out(f"{address:<15} {name}\n")
        else:
            status = 2
    return status


def _dig(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    name, kind, flags, server, at = "", "A", set(), "", 0
    while at < len(arguments):
        word = arguments[at]
        if word.startswith("+"):
            flags.add(word[1:])
        elif word.startswith("@"):
            server = word[1:]
        elif word in ("-x", "-t") and at + 1 < len(arguments):
            at += 1
            name, kind = (_reverse_name(arguments[at]), "PTR") if word == "-x" else (name, arguments[at].upper())
        elif word.upper() in _DNS_TYPES:
            kind = word.upper()
        elif not word.startswith("-"):
            name = word
        at += 1
    yield from wait_for_network(session)
    own = session.network.name_server
    server_address = session.network.resolve(server) if server else own
    if server and not server_address:
        streams.err(f"dig: couldn't get address for '{server}': not found\n")
        return 10
    found = (
        session.network.lookup(name, kind, search="search" in flags)
        if server_address == own
        else ConnectionFailure.TIMED_OUT
    )
    if isinstance(found, ConnectionFailure):
        yield _DNS_TIMEOUT
        streams.out(f";; communications error to {server_address}#53: timed out\n{_NO_DNS_SERVER}")
        return 9
    if "short" in flags:
        streams.out("".join(f"{_dig_value(each)}\n" for each in found or ()))
        return 0
    streams.out(_dig_output(session, name.rstrip("."), kind, found, server_address))
    return 0


def _dig_output(session: Session, name: str, kind: str, found: list[DnsRecord] | None, server: str) -> str:
    status = "NXDOMAIN" if found is None else "NOERROR"
    number = int.from_bytes(sha256(f"{name} {session.now()}".encode()).digest()[:2], "big")
    answers = "".join(f"{each.name}.\t30\tIN\t{each.kind}\t{_dig_value(each)}\n" for each in found or ())
    return (
        f"\n; <<>> DiG 9.18 <<>> {name} {kind}\n;; global options: +cmd\n;; Got answer:\n"
        f";; ->>HEADER<<- opcode: QUERY, status: {status}, id: {number}\n"
        f";; flags: qr aa rd; QUERY: 1, ANSWER: {len(found or ())}, AUTHORITY: 0, ADDITIONAL: 0\n\n"
        f";; QUESTION SECTION:\n;{name}.\t\tIN\t{kind}\n\n"
        + (f";; ANSWER SECTION:\n{answers}\n" if answers else "")
        + f";; Query time: 0 msec\n;; SERVER: {server}#53({server}) (UDP)\n"
        f";; WHEN: {datetime.fromtimestamp(session.now(), UTC):%a %b %d %H:%M:%S UTC %Y}\n\n"
    )


def _dig_value(record: DnsRecord) -> str:
    return f"{record.value}." if record.kind == "CNAME" else record.value


def _gateway(address: str) -> str:
    return address.rpartition(".")[0] + ".1"


def _ip(session: Session, arguments: list[str], streams: Streams) -> int:
    """Show the configuration. Changes need privileges that containers do not have."""
    words = [each for each in arguments if not each.startswith("-")]
    if any(each in _IP_CHANGES for each in words):
        if not session.files.user.privileged:
            streams.err("ip: RTNETLINK answers: Operation not permitted\n")
            return 2
        return 0
    address, what = session.network.address, words[0] if words else ""
    if "route".startswith(what) and what:
        streams.out(f"default via {_gateway(address)} dev eth0 \n")
    elif "address".startswith(what) and what:
        streams.out(
            "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue qlen 1000\n    inet 127.0.0.1/8 scope host lo\n"
            "       valid_lft forever preferred_lft forever\n"
            "2: eth0@if3: <BROADCAST,MULTICAST,UP,LOWER_UP,M-DOWN> mtu 1500 qdisc noqueue \n"
            f"    inet {address}/24 brd {address.rpartition('.')[0]}.255 scope global eth0\n"
            "       valid_lft forever preferred_lft forever\n"
        )
    elif "link".startswith(what) and what:
        streams.out(
            "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue qlen 1000\n"
            "2: eth0@if3: <BROADCAST,MULTICAST,UP,LOWER_UP,M-DOWN> mtu 1500 qdisc noqueue \n"
        )
    else:
        streams.err("Usage: ip [OPTIONS] address|route|link [ARGS]\n")
        return 1
    return 0


def _ifconfig(session: Session, arguments: list[str], streams: Streams) -> int:
    if len(arguments) > 1:
        streams.err("ifconfig: SIOCSIFADDR: Operation not permitted\n")
        return 1
    address = session.network.address
    streams.out(
        f"eth0      Link encap:Ethernet\n          inet addr:{address}  Bcast:{address.rpartition('.')[0]}.255"
        "  Mask:255.255.255.0\n          UP BROADCAST RUNNING MULTICAST  MTU:1500  Metric:1\n\n"
        "lo        Link encap:Local Loopback\n          inet addr:127.0.0.1  Mask:255.0.0.0\n"
        "          UP LOOPBACK RUNNING  MTU:65536  Metric:1\n\n"
    )
    return 0


def _route(session: Session, arguments: list[str], streams: Streams) -> int:
    if any(each in ("add", "del") for each in arguments):
        streams.err("route: SIOCADDRT: Operation not permitted\n")
        return 1
    streams.out(
        "Kernel IP routing table\n"
        "Destination     Gateway         Genmask         Flags Metric Ref    Use Iface\n"
        f"default         {_gateway(session.network.address):<15} 0.0.0.0         UG    0      0        0 eth0\n"
    )
    return 0


def _hostname(session: Session, arguments: list[str], streams: Streams) -> int:
    if any(each in ("-i", "-I", "--ip-address") for each in arguments):
        streams.out(f"{session.network.address}\n")
    elif arguments and not arguments[0].startswith("-"):
        streams.err("hostname: sethostname: Operation not permitted\n")
        return 1
    else:
        streams.out(f"{session.hostname}\n")
    return 0


_POSTGRES_OPTIONS_WITH_VALUE = frozenset(
    (
        "h",
        "p",
        "U",
        "d",
        "D",
        "f",
        "c",
        "t",
        "host",
        "port",
        "username",
        "dbname",
        "pgdata",
        "file",
        "command",
        "timeout",
    )
)


def _connect(session: Session, options: dict[str, str]) -> Generator[float, None, tuple[str, str]]:
    """Connect to the server. Return `host:port`, and why there is no connection; empty if there is one."""
    yield from wait_for_network(session)
    host = options.get("h") or options.get("host") or session.variables.get("PGHOST", "")
    port = options.get("p") or options.get("port") or session.variables.get("PGPORT", "5432")
    if not host:
        failure = session.network.connect("127.0.0.1", int(port) if port.isdigit() else 0)
        why = f'connection to server on socket "{_POSTGRES_SOCKET}/.s.PGSQL.{port}" failed: No such file or directory'
        return f"{_POSTGRES_SOCKET}:{port}", why if failure is not None else ""
    address = session.network.resolve(host)
    if not address:
        return f"{host}:{port}", f'could not translate host name "{host}" to address: Name or service not known'
    failure = session.network.connect(address, int(port) if port.isdigit() else 0)
    if failure is None:
        return f"{host}:{port}", ""
    yield failure_delay(failure, 10.0)[0]
    shown_failure = ConnectionFailure.TIMED_OUT if failure is ConnectionFailure.RESET else failure
    return f"{host}:{port}", f'connection to server at "{host}" ({address}), port {port} failed: {shown_failure.value}'


def _pg_isready(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    options, _ = parse_options(arguments, _POSTGRES_OPTIONS_WITH_VALUE)
    where, problem = yield from _connect(session, options)
    if "q" not in options and "quiet" not in options:
        streams.out(f"{where} - {'no response' if problem else 'accepting connections'}\n")
    return 2 if problem else 0


def _psql(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    options, _ = parse_options(arguments, _POSTGRES_OPTIONS_WITH_VALUE)
    where, problem = yield from _connect(session, options)
    if not problem:
        host = where.rpartition(":")[0]
        problem = f'connection to server at "{host}" failed: server closed the connection unexpectedly'
        problem += "\n\tThis probably means the server terminated abnormally\n\tbefore or while processing the request."
    streams.err(f"psql: error: {problem}\n")
    return 2


def _dump(who: str, title: str) -> Program:
    def program(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
        options, _ = parse_options(arguments, _POSTGRES_OPTIONS_WITH_VALUE)
        _, problem = yield from _connect(session, options)
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


def _pg_basebackup(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    options, _ = parse_options(arguments, _POSTGRES_OPTIONS_WITH_VALUE)
    target = options.get("D") or options.get("pgdata")
    if not target:
        streams.err("pg_basebackup: error: must specify output directory or backup target\n")
        return 1
    _, problem = yield from _connect(session, options)
    if problem:
        streams.err(f"pg_basebackup: error: {problem}\n")
        return 1
    files = {"PG_VERSION": f"{_POSTGRES_VERSION}\n", "postgresql.auto.conf": ""}
    if "R" in options or "write-recovery-conf" in options:
        files["standby.signal"] = ""
    for name, text in files.items():
        path = session.path(f"{target.rstrip('/')}/{name}")
        if not session.files.write(path, text):
            why = session.files.write_error(path) or "No space left on device"
            streams.err(f'pg_basebackup: error: could not create file "{path}": {why}\n')
            return 1
    return 0


NETWORK_PROGRAMS: dict[str, Program] = {
    "ping": _ping,
    "nc": reads_stdin(_nc, 2),
    "netcat": reads_stdin(_nc, 2),
    "telnet": _telnet,
    "nslookup": _nslookup,
    "dig": _dig,
    "host": _host,
    "getent": _getent,
    "ip": _ip,
    "ifconfig": _ifconfig,
    "route": _route,
    "hostname": _hostname,
    "pg_isready": _pg_isready,
    "psql": _psql,
    "pg_basebackup": _pg_basebackup,
    "pg_dump": _dump("pg_dump", "PostgreSQL database dump"),
    "pg_dumpall": _dump("pg_dumpall", "PostgreSQL database cluster dump"),
}
