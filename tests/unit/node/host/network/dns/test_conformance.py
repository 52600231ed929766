"""Kubernetes' specification of DNS-based service discovery, version 1.1.0, as a table of queries and answers.

Each case is answered by the zone alone, and by the server over UDP and TCP for an independent client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import dns.message
import dns.rdatatype
import pytest
from dns_client import Found, look_up, shown
from dns_objects import SERIAL, example_zone
from stopped_clock import StoppedClock

from setpoint.node.host.network.dns.message import AUTHORITATIVE, Message, Question, parse_name, reply, write_message
from setpoint.node.host.network.dns.resolver import ClusterResolver
from setpoint.node.host.network.dns.server import DnsServer
from setpoint.node.host.network.dns.upstream import Forwarder

SOA = f"cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. {SERIAL} 7200 1800 86400 5"


class Case(NamedTuple):
    name: str
    type: str
    rcode: str
    answers: tuple[str, ...] = ()
    additional: tuple[str, ...] = ()


def found(name: str, kind: str, *data: str, extra: tuple[str, ...] = (), ttl: int = 5) -> Case:
    return Case(name, kind, "NOERROR", tuple(f"{name}. {ttl} IN {kind} {each}" for each in data), extra)


def missing(name: str, kind: str = "A") -> Case:
    return Case(name, kind, "NXDOMAIN")


def empty(name: str, kind: str = "A") -> Case:
    return Case(name, kind, "NOERROR")


WEB, DB, DUAL = "web.shop.svc.cluster.local", "db.shop.svc.cluster.local", "dual.shop.svc.cluster.local"
SIX = "six.shop.svc.cluster.local"
SIX_REVERSE = ".".join(reversed("fd00" + "0" * 24 + "0020")) + ".ip6.arpa"
CASES = [
    # 2.2 Record for the schema version
    found("dns-version.cluster.local", "TXT", '"1.1.0"', ttl=28800),
    empty("dns-version.cluster.local"),
    # 2.3.1 A and AAAA records of a Service with a cluster IP
    found("kubernetes.default.svc.cluster.local", "A", "10.96.0.1"),
    empty("kubernetes.default.svc.cluster.local", "AAAA"),
    found(WEB, "A", "10.96.0.20"),
    found(SIX, "AAAA", "fd00::20"),
    empty(SIX),
    found(DUAL, "A", "10.96.0.30"),
    found(DUAL, "AAAA", "fd00::30"),
    found("portless.shop.svc.cluster.local", "A", "10.96.0.40"),
    empty("portless.shop.svc.cluster.local", "SRV"),
    # 2.3.2 SRV records of a Service with a cluster IP
    found(f"_http._tcp.{WEB}", "SRV", f"0 100 80 {WEB}.", extra=(f"{WEB}. 5 IN A 10.96.0.20",)),
    found(f"_admin._tcp.{WEB}", "SRV", f"0 100 8080 {WEB}.", extra=(f"{WEB}. 5 IN A 10.96.0.20",)),
    found(f"_dns._udp.{WEB}", "SRV", f"0 100 53 {WEB}.", extra=(f"{WEB}. 5 IN A 10.96.0.20",)),
    found(
        f"_http._tcp.{DUAL}",
        "SRV",
        f"0 100 80 {DUAL}.",
        extra=(f"{DUAL}. 5 IN A 10.96.0.30", f"{DUAL}. 5 IN AAAA fd00::30"),
    ),
    missing(f"_dns._tcp.{WEB}", "SRV"),
    missing(f"_9000._tcp.{WEB}", "SRV"),
    missing(f"_._tcp.{WEB}", "SRV"),
    missing(f"_ftp._tcp.{WEB}", "SRV"),
    empty(f"_tcp.{WEB}", "SRV"),
    empty(f"_udp.{WEB}"),
    missing(f"_sctp.{WEB}", "SRV"),
    # CoreDNS: the records of all ports under the name of the Service, and its address under that of a port
    found(WEB, "SRV", *(f"0 25 {port} {WEB}." for port in (53, 80, 8080, 9000)), extra=(f"{WEB}. 5 IN A 10.96.0.20",)),
    found(f"_http._tcp.{WEB}", "A", "10.96.0.20"),
    # 2.3.3 PTR records of a Service with a cluster IP
    found("1.0.96.10.in-addr.arpa", "PTR", "kubernetes.default.svc.cluster.local."),
    found("20.0.96.10.in-addr.arpa", "PTR", f"{WEB}."),
    found(SIX_REVERSE, "PTR", f"{SIX}."),
    found("30.0.96.10.in-addr.arpa", "PTR", f"{DUAL}."),
    empty("20.0.96.10.in-addr.arpa", "A"),
    # 2.4.1 A and AAAA records of a headless Service: its ready endpoints
    found(DB, "A", "10.244.2.1", "10.244.2.2", "10.244.2.3", "10.244.2.4"),
    found(DB, "AAAA", "fd00:244::1", "fd00:244::5"),
    found(f"db-0.{DB}", "A", "10.244.2.1"),
    found(f"db-0.{DB}", "AAAA", "fd00:244::1"),
    found(f"db-1.{DB}", "A", "10.244.2.2"),
    empty(f"db-1.{DB}", "AAAA"),
    found(f"db-4.{DB}", "A", "10.244.2.4"),
    found(f"10-244-2-3.{DB}", "A", "10.244.2.3"),
    found(f"fd00-244--5.{DB}", "AAAA", "fd00:244::5"),
    missing(f"10-244-2-1.{DB}"),
    missing(f"db-9.{DB}"),
    missing(f"db-2.{DB}"),
    missing("idle.shop.svc.cluster.local"),
    missing("idle.shop.svc.cluster.local", "AAAA"),
    missing("unready.shop.svc.cluster.local"),
    missing("_http._tcp.unready.shop.svc.cluster.local", "SRV"),
    found("early.shop.svc.cluster.local", "A", "10.244.4.1"),
    found("early-0.early.shop.svc.cluster.local", "A", "10.244.4.1"),
    found("bare.shop.svc.cluster.local", "A", "10.244.5.1"),
    found("10-244-5-1.bare.shop.svc.cluster.local", "A", "10.244.5.1"),
    empty("bare.shop.svc.cluster.local", "SRV"),
    # 2.4.2 SRV records of a headless Service: one for each ready endpoint and named port
    found(
        f"_https._tcp.{DB}",
        "SRV",
        f"0 20 8443 10-244-2-3.{DB}.",
        f"0 20 8443 db-0.{DB}.",
        f"0 20 8443 db-1.{DB}.",
        f"0 20 8443 db-4.{DB}.",
        f"0 20 8443 fd00-244--5.{DB}.",
        extra=(
            f"10-244-2-3.{DB}. 5 IN A 10.244.2.3",
            f"db-0.{DB}. 5 IN A 10.244.2.1",
            f"db-0.{DB}. 5 IN AAAA fd00:244::1",
            f"db-1.{DB}. 5 IN A 10.244.2.2",
            f"db-4.{DB}. 5 IN A 10.244.2.4",
            f"fd00-244--5.{DB}. 5 IN AAAA fd00:244::5",
        ),
    ),
    missing(f"_https._udp.{DB}", "SRV"),
    found(f"db-1.{DB}", "SRV", f"0 100 8443 db-1.{DB}.", extra=(f"db-1.{DB}. 5 IN A 10.244.2.2",)),
    # 2.4.3 PTR records of the ready endpoints
    found("1.2.244.10.in-addr.arpa", "PTR", f"db-0.{DB}."),
    found("3.2.244.10.in-addr.arpa", "PTR", f"10-244-2-3.{DB}."),
    found(".".join(reversed("fd000244000000000000000000000001")) + ".ip6.arpa", "PTR", f"db-0.{DB}."),
    # CoreDNS: endpoints of Services with a cluster IP have names, too
    found(f"second.{WEB}", "A", "10.244.1.2"),
    found(f"10-244-1-1.{WEB}", "A", "10.244.1.1"),
    found("2.1.244.10.in-addr.arpa", "PTR", f"second.{WEB}."),
    # 2.5 CNAME records of Services of the type ExternalName
    found("wiki.shop.svc.cluster.local", "CNAME", "www.example.com."),
    missing("x.wiki.shop.svc.cluster.local", "CNAME"),
    missing("_http._tcp.wiki.shop.svc.cluster.local", "SRV"),
    found("alias.shop.svc.cluster.local", "CNAME", f"{WEB}."),
    Case(
        "alias.shop.svc.cluster.local",
        "A",
        "NOERROR",
        (f"alias.shop.svc.cluster.local. 5 IN CNAME {WEB}.", f"{WEB}. 5 IN A 10.96.0.20"),
    ),
    Case("alias.shop.svc.cluster.local", "AAAA", "NOERROR", (f"alias.shop.svc.cluster.local. 5 IN CNAME {WEB}.",)),
    Case(
        "dangling.shop.svc.cluster.local",
        "A",
        "NXDOMAIN",
        ("dangling.shop.svc.cluster.local. 5 IN CNAME none.shop.svc.cluster.local.",),
    ),
    Case(
        "loop-a.shop.svc.cluster.local",
        "A",
        "NOERROR",
        (
            "loop-a.shop.svc.cluster.local. 5 IN CNAME loop-b.shop.svc.cluster.local.",
            "loop-b.shop.svc.cluster.local. 5 IN CNAME loop-a.shop.svc.cluster.local.",
        ),
    ),
    missing("number.shop.svc.cluster.local"),
    # Pods, whose names need not exist (CoreDNS: pods insecure)
    found("10-244-1-1.shop.pod.cluster.local", "A", "10.244.1.1"),
    found("192-0-2-1.empty.pod.cluster.local", "A", "192.0.2.1"),
    empty("10-244-1-1.shop.pod.cluster.local", "AAAA"),
    found("fd00-244--5.shop.pod.cluster.local", "AAAA", "fd00:244::5"),
    found("fd00--.shop.pod.cluster.local", "AAAA", "fd00::"),
    missing("10-244-1-256.shop.pod.cluster.local"),
    missing("web-0.shop.pod.cluster.local"),
    missing("x.10-244-1-1.shop.pod.cluster.local"),
    missing("10-244-1-1.none.pod.cluster.local"),
    # Names between
    empty("svc.cluster.local"),
    empty("pod.cluster.local"),
    empty("shop.svc.cluster.local"),
    empty("empty.svc.cluster.local", "SRV"),
    empty("empty.pod.cluster.local"),
    empty("cluster.local"),
    empty("dns.cluster.local"),
    found("ns.dns.cluster.local", "A", "10.96.0.10"),
    found("cluster.local", "NS", "ns.dns.cluster.local.", extra=("ns.dns.cluster.local. 5 IN A 10.96.0.10",)),
    Case("cluster.local", "SOA", "NOERROR", (SOA,)),
    empty(WEB, "SOA"),
    empty(WEB, "NS"),
    empty(WEB, "TXT"),
    empty(WEB, "MX"),
    empty(WEB, "HTTPS"),
    empty(WEB, "PTR"),
    # Names that do not exist
    missing("none.shop.svc.cluster.local"),
    missing("none.shop.svc.cluster.local", "AAAA"),
    missing("none.shop.svc.cluster.local", "TXT"),
    missing("web.none.svc.cluster.local"),
    missing("none.svc.cluster.local"),
    missing("none.svc.cluster.local", "NS"),
    missing("none.cluster.local"),
    missing("web.shop.cluster.local"),
    missing("web.cluster.local"),
    missing("gone.shop.svc.cluster.local"),
    missing("left.gone.shop.svc.cluster.local"),
    missing(f"a.b.c.{WEB}"),
    # There are no wildcards.
    missing("*.shop.svc.cluster.local"),
    missing("any.shop.svc.cluster.local"),
    missing("web.*.svc.cluster.local"),
    missing(f"*.{DB}"),
    missing(f"_any._any.{WEB}", "SRV"),
]


def expected(case: Case, name: str) -> Found:
    """Return the answer of a case to a query for `name`, which is the case's own but for letter case."""
    negative = not any(line.split(" ")[3] == case.type for line in case.answers)
    # The owner of a record is the name as it was asked for.
    answers = (name + line[len(case.name) :] if line.startswith(f"{case.name}.") else line for line in case.answers)
    return Found(
        case.rcode, tuple(sorted(answers)), (SOA,) if negative else (), tuple(sorted(case.additional)), "QR AA RD RA"
    )


def id_of(case: Case) -> str:
    return f"{case.type}-{case.name}"


@pytest.mark.parametrize("case", CASES, ids=id_of)
def test_zone(case: Case) -> None:
    question = Question(parse_name(case.name), int(dns.rdatatype.from_text(case.type)))
    answer = example_zone().answer(question.name, question.type)
    assert answer is not None and answer.target is None
    message = reply(Message(1, 0x100, [question]), answer.rcode, AUTHORITATIVE)
    message.answers, message.authority, message.additional = answer[1:4]
    assert shown(dns.message.from_wire(write_message(message))) == expected(case, case.name)


@pytest.fixture
async def server() -> AsyncIterator[DnsServer]:
    clock = StoppedClock()
    resolver = ClusterResolver(example_zone(), Forwarder((), clock, bytes), lambda: True)
    running = DnsServer(resolver, clock)
    await running.start(["127.0.0.1"], 0)
    yield running
    await running.stop()


@pytest.mark.parametrize("form", ["udp", "tcp", "edns", "upper case"])
async def test_server(server: DnsServer, form: str) -> None:
    address, port = server.addresses[0]
    wrong = {}
    for case in CASES:
        name = case.name.upper() if form == "upper case" else case.name
        answer = await look_up(name, case.type, address, port, tcp=form == "tcp", edns=4096 if form == "edns" else None)
        if answer != expected(case, name):
            wrong[id_of(case)] = answer
    assert not wrong


def test_names_outside_of_the_domain_are_not_answered_from_the_zone() -> None:
    zone = example_zone()
    names = ["example.com", "local", "xcluster.local", "9.9.9.9.in-addr.arpa", "in-addr.arpa", "web.shop.svc", "."]
    # A label may contain the octets of a name.
    labels = [parse_name(name) for name in names] + [(b"web\3svc\7cluster\5local",), (b"cluster.local",)]
    assert [zone.answer(name, 1) for name in labels] == [None] * len(labels)


def test_external_names_lead_out_of_the_zone() -> None:
    answer = example_zone().answer(parse_name("wiki.shop.svc.cluster.local"), 1)
    assert answer is not None and answer.target == parse_name("www.example.com")
    assert [record.data for record in answer.answers] == [(parse_name("www.example.com"),)]
