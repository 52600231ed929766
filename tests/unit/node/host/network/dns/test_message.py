"""Parsing and writing of DNS messages, compared with an independent implementation."""

from __future__ import annotations

import time
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import dns.message
import pytest
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.node.host.network.dns.message import (
    AAAA,
    CNAME,
    MAX_MESSAGE,
    MX,
    NS,
    PTR,
    RESPONSE,
    SOA,
    SRV,
    TRUNCATED,
    TXT,
    A,
    DnsFormatError,
    Edns,
    Message,
    Question,
    Record,
    name_text,
    negative_ttl,
    parse_message,
    parse_name,
    reverse_address,
    reverse_name,
    soa_data,
    srv_data,
    txt_data,
    write_message,
)

WWW = parse_name("www.example.com")

# -- round trip -------------------------------------------------------------------------------------------------------

labels = st.binary(min_size=1, max_size=20) | st.sampled_from([b"www", b"example", b"com", b"x" * 63])
names = st.lists(labels, max_size=6).map(tuple).filter(lambda name: sum(map(len, name)) + len(name) < 255)
numbers = st.integers(0, 0xFFFF)
ttls = st.integers(0, 0xFFFFFFFF)
strings = st.binary(max_size=20).map(lambda text: bytes((len(text),)) + text)


def data_of(kind: int) -> st.SearchStrategy[Any]:
    match kind:
        case 2 | 5 | 12 | 39:
            return st.tuples(names)
        case 6:
            return st.tuples(names, names, st.binary(min_size=20, max_size=20))
        case 15:
            return st.tuples(st.binary(min_size=2, max_size=2), names)
        case 33:
            return st.tuples(st.binary(min_size=6, max_size=6), names)
        case 35:
            return st.tuples(st.binary(min_size=4, max_size=4), strings, strings, strings, names)
        case _:
            return st.tuples(st.binary(max_size=40))


@st.composite
def records(draw: st.DrawFn) -> Record:
    kind = draw(st.sampled_from([A, NS, CNAME, SOA, PTR, MX, TXT, AAAA, SRV, 35, 39, 257, 65000]))
    return Record(draw(names), kind, draw(ttls), draw(data_of(kind)), draw(st.sampled_from([1, 1, 255, 3])))


messages = st.builds(
    Message,
    numbers,
    numbers,
    st.lists(st.builds(Question, names, numbers, numbers), max_size=3),
    st.lists(records(), max_size=6),
    st.lists(records(), max_size=3),
    st.lists(records(), max_size=3),
    st.none() | st.builds(Edns, numbers, st.integers(0, 255), st.integers(0, 255), numbers, st.binary(max_size=30)),
)


@given(messages)
def test_parsing_returns_what_was_written(message: Message) -> None:
    assert parse_message(write_message(message)) == message


@given(messages, st.integers(512, 1500))
def test_truncated_messages_are_prefixes_within_the_limit(message: Message, limit: int) -> None:
    message.questions = message.questions[:1]
    data = write_message(message, limit)
    assert len(data) <= limit or len(message.questions) > 1
    found = parse_message(data)
    assert list(message.answers)[: len(found.answers)] == found.answers
    assert list(message.authority)[: len(found.authority)] == found.authority
    assert found.edns == message.edns
    cut = len(found.answers) < len(message.answers) or len(found.authority) < len(message.authority)
    if not message.flags & TRUNCATED:
        assert bool(found.flags & TRUNCATED) == cut
    if not cut:
        assert list(message.additional)[: len(found.additional)] == found.additional


@settings(max_examples=tries(300, 3000))
@given(st.binary(max_size=600))
def test_random_octets_raise_nothing_else(data: bytes) -> None:
    with suppress(DnsFormatError):
        parse_message(data)


@settings(max_examples=tries(300, 3000))
@given(messages, st.data())
def test_damaged_messages_raise_nothing_else(message: Message, draw: st.DataObject) -> None:
    data = bytearray(write_message(message))
    for _ in range(draw.draw(st.integers(1, 6))):
        at = draw.draw(st.integers(0, len(data) - 1))
        data[at] = draw.draw(st.sampled_from([0, 1, 12, 63, 64, 0xC0, 0xC1, 0xFF]) | st.integers(0, 255))
    data = data[: draw.draw(st.integers(0, len(data)))] if draw.draw(st.booleans()) else data
    try:
        found = parse_message(bytes(data))
    except DnsFormatError:
        return
    assert parse_message(write_message(found)) == found


# -- hostile messages -------------------------------------------------------------------------------------------------


def header(questions: int = 1, answers: int = 0) -> bytes:
    return bytes((0, 7, 1, 0)) + questions.to_bytes(2) + answers.to_bytes(2) + bytes(4)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "shorter than a header"),
        (header()[:11], "shorter than a header"),
        (header(), "ends within a name"),
        (header() + b"\3www", "ends within a name"),
        (header() + b"\3ww", "too long"),
        (header() + b"\xc0\x0c\0\1\0\1", "does not point to an earlier name"),
        (header() + b"\xc0\x00\0\1\0\1", "does not point to an earlier name"),
        (header() + b"\xc0\x20\0\1\0\1", "does not point to an earlier name"),
        (header() + b"\xc0", "ends within a name"),
        (header() + b"\x41a\0\0\1\0\1", "unknown type"),
        (header() + b"\x80a\0\0\1\0\1", "unknown type"),
        (header() + b"\0\0\1", "ends within a question"),
        (header() + (b"\x3f" + b"x" * 63) * 4 + b"\0\0\1\0\1", "too long"),
        (header(0, 1) + b"\0\0\1\0\1\0\0", "ends within a record"),
        (header(0, 1) + b"\0\0\1\0\1\0\0\0\0\0\4\1\2\3", "ends within the data"),
        (header(0, 1) + b"\0\0\5\0\1\0\0\0\0\0\5\1a\0\1\2", "does not have the length"),
        (header(0, 1) + b"\0\0\x21\0\1\0\0\0\0\0\3\1a\0", "does not have the length"),
        (header(0, 1) + b"\0\0\x29\0\1\0\0\0\0\0\0", "misplaced"),
        (header(0xFFFF), "too many records"),
        (header(0, 0) + bytes(MAX_MESSAGE), "too long"),
    ],
)
def test_malformed(data: bytes, problem: str) -> None:
    with pytest.raises(DnsFormatError, match=problem):
        parse_message(data)


def test_two_opt_records_are_malformed() -> None:
    opt = b"\0\0\x29\4\0\0\0\0\0\0\0"
    data = bytes((0, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2)) + opt * 2
    with pytest.raises(DnsFormatError, match="misplaced"):
        parse_message(data)


def chained(pointers: int, records: int) -> bytes:
    """Return a message whose records have a name that follows a number of pointers."""
    size = 3 + 2 * (pointers - 1)
    first = b"\0" + (65000).to_bytes(2) + b"\0\1" + bytes(4) + size.to_bytes(2)
    start = 12 + len(first)
    targets = [start, *(start + 3 + 2 * at for at in range(pointers - 1))]
    # The data of the first record is a name and all pointers but the last one.
    body = b"\1a\0" + b"".join((0xC000 | target).to_bytes(2) for target in targets[:-1])
    record = (0xC000 | targets[-1]).to_bytes(2) + b"\0\1\0\1" + bytes(4) + b"\0\0"
    return header(0, records + 1) + first + body + record * records


def test_pointers_to_pointers_are_bounded() -> None:
    began = time.process_time()
    found = parse_message(chained(16, 4095))
    assert time.process_time() - began < 0.5
    assert found.answers[-1].name == (b"a",)
    with pytest.raises(DnsFormatError, match="does not point"):
        parse_message(chained(17, 1))


def test_a_name_of_255_octets_is_the_longest() -> None:
    longest = (b"x" * 63, b"x" * 63, b"x" * 63, b"x" * 61)
    message = Message(1, 0, [Question(longest, A)])
    assert parse_message(write_message(message)).questions == message.questions
    with pytest.raises(DnsFormatError):
        write_message(Message(1, 0, [Question((*longest[:3], b"x" * 62), A)]))


# -- an independent implementation ------------------------------------------------------------------------------------

ANSWER = Message(
    7,
    RESPONSE,
    [Question(WWW, A)],
    [
        Record(WWW, CNAME, 30, (parse_name("web.example.com"),)),
        Record(parse_name("web.example.com"), A, 30, (ip_address("192.0.2.1").packed,)),
        Record(parse_name("web.example.com"), AAAA, 30, (ip_address("2001:db8::1").packed,)),
        Record(parse_name("_http._tcp.example.com"), SRV, 5, srv_data(1, 2, 80, parse_name("web.example.com"))),
        Record(parse_name("1.2.0.192.in-addr.arpa"), PTR, 5, (WWW,)),
        Record(WWW, TXT, 5, txt_data(b"a b")),
        Record(WWW, MX, 5, (b"\0\x0a", parse_name("mail.example.com"))),
    ],
    [
        Record(
            parse_name("example.com"),
            SOA,
            60,
            soa_data(parse_name("ns.example.com"), parse_name("x.example.com"), 9, (1, 2, 3, 4)),
        ),
        Record(parse_name("example.com"), NS, 60, (parse_name("ns.example.com"),)),
    ],
    [Record(parse_name("ns.example.com"), A, 60, (ip_address("192.0.2.9").packed,))],
    Edns(1232),
)


def test_another_implementation_reads_our_messages() -> None:
    found = dns.message.from_wire(write_message(ANSWER))
    assert [str(each) for each in found.answer] == [
        "www.example.com. 30 IN CNAME web.example.com.",
        "web.example.com. 30 IN A 192.0.2.1",
        "web.example.com. 30 IN AAAA 2001:db8::1",
        "_http._tcp.example.com. 5 IN SRV 1 2 80 web.example.com.",
        "1.2.0.192.in-addr.arpa. 5 IN PTR www.example.com.",
        'www.example.com. 5 IN TXT "a b"',
        "www.example.com. 5 IN MX 10 mail.example.com.",
    ]
    assert [str(each) for each in found.authority] == [
        "example.com. 60 IN SOA ns.example.com. x.example.com. 9 1 2 3 4",
        "example.com. 60 IN NS ns.example.com.",
    ]
    assert [str(each) for each in found.additional] == ["ns.example.com. 60 IN A 192.0.2.9"]
    assert found.edns == 0 and found.payload == 1232


def test_we_read_messages_of_another_implementation() -> None:
    message = dns.message.from_wire(write_message(ANSWER))
    assert parse_message(message.to_wire()) == ANSWER


def test_names_are_compressed() -> None:
    target = (b"long-label", *WWW)
    records = [Record(WWW, CNAME, 30, (target,)) for _ in range(10)]
    assert len(write_message(Message(7, 0, [Question(WWW, A)], records))) < 12 + 21 + 10 * 14 + 12


def test_targets_of_srv_records_are_not_compressed() -> None:
    data = write_message(Message(7, 0, [Question(WWW, SRV)], [Record(WWW, SRV, 5, srv_data(0, 1, 2, WWW))]))
    assert data.count(b"example") == 2


# -- names ------------------------------------------------------------------------------------------------------------


def test_names_as_text() -> None:
    assert parse_name("") == parse_name(".") == ()
    assert parse_name("a.b.") == (b"a", b"b")
    assert name_text((b"a.b", b"\0")) == "a\\046b.\\000."
    for text in ("a..b", ".a", "x" * 64, "ä.example", ".".join(["x" * 63] * 4)):
        with pytest.raises(DnsFormatError):
            parse_name(text)


@given(st.ip_addresses())
def test_reverse_names(address: Any) -> None:
    assert reverse_address(reverse_name(address)) == address.packed


@pytest.mark.parametrize(
    "text",
    [
        "in-addr.arpa",
        "1.2.3.in-addr.arpa",
        "1.2.3.256.in-addr.arpa",
        "01.2.3.4.in-addr.arpa",
        "x.ip6.arpa",
        "g" + ".0" * 31 + ".ip6.arpa",
    ],
)
def test_other_names_are_no_addresses(text: str) -> None:
    assert reverse_address(parse_name(text)) is None


def test_negative_ttl() -> None:
    record = Record((), SOA, 60, soa_data((), (), 1, (1, 2, 3, 20)))
    assert negative_ttl(record) == 20
    assert negative_ttl(record._replace(ttl=7)) == 7
    assert negative_ttl(record._replace(data=(b"",))) == 0
