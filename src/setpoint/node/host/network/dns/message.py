"""DNS messages (RFC 1035) with name compression and EDNS (RFC 6891): parsing and writing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import Final, NamedTuple

A, NS, CNAME, SOA, PTR, HINFO, MX, TXT = 1, 2, 5, 6, 12, 13, 15, 16
AAAA, SRV, OPT, IXFR, AXFR, ANY = 28, 33, 41, 251, 252, 255
INTERNET: Final = 1
"""The class IN."""

RESPONSE, AUTHORITATIVE, TRUNCATED, RECURSION_DESIRED, RECURSION_AVAILABLE = 0x8000, 0x400, 0x200, 0x100, 0x80
CHECKING_DISABLED: Final = 0x10
OPCODE_MASK: Final = 0x7800
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16

MAX_MESSAGE: Final = 65535
MIN_UDP: Final = 512
"""The size of a message that every client accepts over UDP."""
MAX_UDP: Final = 1232
"""The size of UDP messages that this server accepts and sends at most: it fits into one packet on every network."""
_MAX_NAME: Final = 255
_MAX_LABEL: Final = 63
_MAX_POINTERS: Final = 16
"""The number of pointers that one name may follow. Each leads to an earlier place, so the number bounds time only."""
_MAX_RECORDS: Final = 4096
_POINTER: Final = 0xC0
_POINTER_LIMIT: Final = 0x4000

_HEADER, _QUESTION, _RECORD, _LENGTH, _SRV, _SOA = (
    Struct("!6H"),
    Struct("!2H"),
    Struct("!2HIH"),
    Struct("!H"),
    Struct("!3H"),
    Struct("!5I"),
)

Name = tuple[bytes, ...]
"""The labels of a domain name, without the empty one of the root."""
Data = tuple[bytes | Name, ...]
"""The data of a record: opaque bytes and names, in their order."""

_NAME, _STRING = -1, -2
_LAYOUTS: Final[dict[int, tuple[int, ...]]] = {
    NS: (_NAME,),
    CNAME: (_NAME,),
    SOA: (_NAME, _NAME, _SOA.size),
    PTR: (_NAME,),
    14: (_NAME, _NAME),  # MINFO
    MX: (2, _NAME),
    17: (_NAME, _NAME),  # RP
    18: (2, _NAME),  # AFSDB
    21: (2, _NAME),  # RT
    26: (2, _NAME, _NAME),  # PX
    SRV: (_SRV.size, _NAME),
    35: (4, _STRING, _STRING, _STRING, _NAME),  # NAPTR
    36: (2, _NAME),  # KX
    39: (_NAME,),  # DNAME
}
"""The parts of the data of records that contain names, which may be compressed: sizes in octets, or kinds of parts. The
data of all other types is opaque (RFC 3597)."""
_COMPRESSED: Final = frozenset((NS, CNAME, SOA, PTR, 14, MX))
"""The types whose data is written with compressed names. Later types must not be (RFC 3597, section 4)."""


class DnsFormatError(ValueError):
    """A message or a name is malformed."""


class Question(NamedTuple):
    name: Name
    type: int
    klass: int = INTERNET


class Record(NamedTuple):
    name: Name
    type: int
    ttl: int
    data: Data
    klass: int = INTERNET


class Edns(NamedTuple):
    """The content of the OPT record."""

    udp_size: int
    """The size of UDP messages that the sender accepts."""
    extended_rcode: int = 0
    """The upper eight bits of the response code."""
    version: int = 0
    flags: int = 0
    options: bytes = b""


@dataclass(slots=True)
class Message:
    id: int
    flags: int = 0
    """Response bit, opcode, flags and the lower four bits of the response code, as in the header."""
    questions: Sequence[Question] = ()
    answers: Sequence[Record] = ()
    authority: Sequence[Record] = ()
    additional: Sequence[Record] = ()
    """The records of the additional section except for OPT."""
    edns: Edns | None = None

    @property
    def rcode(self) -> int:
        return self.flags & 15 | (self.edns.extended_rcode << 4 if self.edns is not None else 0)


# -- names and addresses ----------------------------------------------------------------------------------------------


def parse_name(text: str) -> Name:
    """Return the labels of a name, which may end with a dot. Raises DnsFormatError."""
    text = text.removesuffix(".")
    if not text:
        return ()
    try:
        labels = tuple(text.encode("ascii").split(b"."))
    except UnicodeEncodeError:
        raise DnsFormatError("a name contains characters that are not ASCII") from None
    check_name(labels)
    return labels


def check_name(name: Name) -> None:
    """Raises DnsFormatError if a label or the name is too long, or a label is empty."""
    if any(not 0 < len(label) <= _MAX_LABEL for label in name):
        raise DnsFormatError("a label is empty or longer than 63 octets")
    if sum(map(len, name)) + len(name) >= _MAX_NAME:
        raise DnsFormatError("a name is longer than 255 octets")


def lower(name: Name) -> Name:
    return tuple([label.lower() for label in name])


def name_text(name: Name) -> str:
    """Return a name as text, with escapes for octets that are not printable."""
    labels = ("".join(chr(c) if 32 < c < 127 and c not in b".\\" else f"\\{c:03}" for c in label) for label in name)
    return ".".join(labels) + "."


def reverse_name(address: IPv4Address | IPv6Address) -> Name:
    """Return the name of the PTR records of an address."""
    return tuple(address.reverse_pointer.encode().split(b"."))


def reverse_address(name: Name) -> bytes | None:
    """Return the packed address that a lower-case name of a PTR record stands for, or None."""
    if len(name) == 6 and name[4:] == (b"in-addr", b"arpa"):
        text = b".".join(name[3::-1])
    elif len(name) == 34 and name[32:] == (b"ip6", b"arpa") and all(len(label) == 1 for label in name[:32]):
        digits = b"".join(name[31::-1])
        text = b":".join(digits[at : at + 4] for at in range(0, 32, 4))
    else:
        return None
    try:
        return ip_address(text.decode("ascii")).packed
    except ValueError:
        return None


# -- parsing ----------------------------------------------------------------------------------------------------------


def parse_message(data: bytes, max_records: int = _MAX_RECORDS) -> Message:
    """Parse a message. Octets after its end are ignored. Raises DnsFormatError, also for more than `max_records`
    questions and records together."""
    if len(data) < _HEADER.size:
        raise DnsFormatError("the message is shorter than a header")
    if len(data) > MAX_MESSAGE:
        raise DnsFormatError("the message is too long")
    number, flags, *counts = _HEADER.unpack_from(data)
    if sum(counts) > max_records:
        raise DnsFormatError("the message has too many records")
    at = _HEADER.size
    questions = []
    for _ in range(counts[0]):
        name, at = _read_name(data, at)
        if at + _QUESTION.size > len(data):
            raise DnsFormatError("the message ends within a question")
        questions.append(Question(name, *_QUESTION.unpack_from(data, at)))
        at += _QUESTION.size
    answers, _, at = _read_section(data, at, counts[1])
    authority, _, at = _read_section(data, at, counts[2])
    additional, edns, at = _read_section(data, at, counts[3], with_edns=True)
    return Message(number, flags, questions, answers, authority, additional, edns)


def _read_section(
    data: bytes, at: int, count: int, *, with_edns: bool = False
) -> tuple[list[Record], Edns | None, int]:
    records: list[Record] = []
    edns: Edns | None = None
    for _ in range(count):
        name, at = _read_name(data, at)
        start = at + _RECORD.size
        if start > len(data):
            raise DnsFormatError("the message ends within a record")
        kind, klass, ttl, length = _RECORD.unpack_from(data, at)
        at = start + length
        if at > len(data):
            raise DnsFormatError("the message ends within the data of a record")
        if kind == OPT:
            if not with_edns or edns is not None or name:
                raise DnsFormatError("an OPT record is misplaced")
            edns = Edns(klass, ttl >> 24, ttl >> 16 & 255, ttl & 0xFFFF, data[start:at])
        else:
            records.append(Record(name, kind, ttl, _read_data(data, kind, start, at), klass))
    return records, edns, at


def _read_data(data: bytes, kind: int, at: int, end: int) -> Data:
    layout = _LAYOUTS.get(kind)
    if layout is None or at == end:
        return (data[at:end],)
    parts: list[bytes | Name] = []
    for part in layout:
        if part == _NAME:
            name, at = _read_name(data, at)
            parts.append(name)
            continue
        size = part
        if part == _STRING:
            size = 1 + data[at] if at < end else 1
        parts.append(data[at : at + size])
        at += size
        if at > end:
            break
    if at != end:
        raise DnsFormatError("the data of a record does not have the length that its type requires")
    return tuple(parts)


def _read_name(data: bytes, at: int) -> tuple[Name, int]:
    """Return the name at an offset, and the offset after it."""
    labels: list[bytes] = []
    end = pointers = 0
    size, limit = 1, at
    try:
        while length := data[at]:
            if length <= _MAX_LABEL:
                label = data[at + 1 : at + 1 + length]
                at += 1 + length
                size += 1 + length
                if size > _MAX_NAME or len(label) != length:
                    raise DnsFormatError("a name is too long")
                labels.append(label)
            elif length >= _POINTER:
                target = (length & 0x3F) << 8 | data[at + 1]
                if not _HEADER.size <= target < limit or pointers == _MAX_POINTERS:
                    raise DnsFormatError("a compressed name does not point to an earlier name")
                end = end or at + 2
                at = limit = target
                pointers += 1
            else:
                raise DnsFormatError("a label has an unknown type")
    except IndexError:
        raise DnsFormatError("the message ends within a name") from None
    return tuple(labels), end or at + 1


# -- writing ----------------------------------------------------------------------------------------------------------


class _Writer:
    __slots__ = ("buffer", "offsets")

    def __init__(self) -> None:
        self.buffer = bytearray(_HEADER.size)
        self.offsets: dict[Name, int] = {}
        """The offsets of the names that can be pointed to."""

    def name(self, name: Name, compress: bool = True) -> None:
        buffer, offsets = self.buffer, self.offsets
        for at in range(len(name)):
            suffix = name[at:] if at else name
            if compress:
                known = offsets.get(suffix)
                if known is not None:
                    buffer += _LENGTH.pack(_POINTER << 8 | known)
                    return
            if at == 0:
                check_name(name)
            if len(buffer) < _POINTER_LIMIT:
                offsets.setdefault(suffix, len(buffer))
            label = name[at]
            buffer.append(len(label))
            buffer += label
        buffer.append(0)

    def record(self, record: Record) -> None:
        name, kind, ttl, data, klass = record
        self.name(name)
        buffer = self.buffer
        start = len(buffer) + _RECORD.size
        buffer += _RECORD.pack(kind, klass, ttl, 0)
        for part in data:
            if isinstance(part, bytes):
                buffer += part
            else:
                self.name(part, kind in _COMPRESSED)
        length = len(buffer) - start
        if length > MAX_MESSAGE:
            raise DnsFormatError("the data of a record is too long")
        _LENGTH.pack_into(buffer, start - 2, length)

    def section(self, records: Sequence[Record], limit: int) -> tuple[int, bool]:
        """Write records up to a size of the message. Return their number, and whether all of them are written."""
        for count, record in enumerate(records):
            start = len(self.buffer)
            self.record(record)
            if len(self.buffer) > limit:
                del self.buffer[start:]
                self.offsets = {name: at for name, at in self.offsets.items() if at < start}
                return count, False
        return len(records), True


def write_message(message: Message, limit: int = MAX_MESSAGE) -> bytes:
    """Return a message of at most `limit` octets.

    Records that do not fit are left out, from the end. If they are answers or authority records, the message is marked
    as truncated. Raises DnsFormatError if a name is invalid."""
    writer = _Writer()
    for question in message.questions:
        writer.name(question.name)
        writer.buffer += _QUESTION.pack(question.type, question.klass)
    edns, flags = message.edns, message.flags
    available = limit if edns is None else limit - 1 - _RECORD.size - len(edns.options)
    authority = additional = 0
    answers, complete = writer.section(message.answers, available)
    if complete:
        authority, complete = writer.section(message.authority, available)
    if complete:
        additional, _ = writer.section(message.additional, available)
    else:
        flags |= TRUNCATED
    if edns is not None:
        ttl = edns.extended_rcode << 24 | edns.version << 16 | edns.flags
        writer.buffer += b"\0" + _RECORD.pack(OPT, edns.udp_size, ttl, len(edns.options)) + edns.options
        additional += 1
    _HEADER.pack_into(writer.buffer, 0, message.id, flags, len(message.questions), answers, authority, additional)
    return bytes(writer.buffer)


# -- data of records --------------------------------------------------------------------------------------------------


def srv_data(priority: int, weight: int, port: int, target: Name) -> Data:
    return (_SRV.pack(priority, weight, port), target)


def soa_data(server: Name, mailbox: Name, serial: int, timers: tuple[int, int, int, int]) -> Data:
    """Return the data of an SOA record. The timers are refresh, retry, expire and the TTL of negative answers."""
    return (server, mailbox, _SOA.pack(serial & 0xFFFFFFFF, *timers))


def negative_ttl(record: Record) -> int:
    """Return the seconds for which an SOA record lets negative answers be cached (RFC 2308)."""
    timers = record.data[-1]
    if len(timers) != _SOA.size or not isinstance(timers, bytes):
        return 0
    return min(record.ttl, int(_SOA.unpack(timers)[4]))


def txt_data(text: bytes) -> Data:
    """Return the data of a TXT record of one string, which has at most 255 octets."""
    return (bytes((len(text),)) + text,)


def reply(query: Message, rcode: int, flags: int = 0) -> Message:
    """Return an answer to a query, without records."""
    kept = query.flags & (OPCODE_MASK | RECURSION_DESIRED | CHECKING_DISABLED)
    edns = None if query.edns is None else Edns(MAX_UDP, rcode >> 4)
    return Message(query.id, RESPONSE | RECURSION_AVAILABLE | kept | flags | rcode & 15, query.questions, edns=edns)
