"""Answers queries from the cluster domain's records, and lets other name servers answer the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from setpoint.node.host.network.dns.message import (
    AAAA,
    AUTHORITATIVE,
    AXFR,
    BADVERS,
    FORMERR,
    INTERNET,
    IXFR,
    NOTIMP,
    OPCODE_MASK,
    REFUSED,
    SERVFAIL,
    A,
    Message,
    Question,
    Record,
    reply,
)
from setpoint.node.host.network.dns.upstream import Forwarder, UpstreamError
from setpoint.node.host.network.dns.zone import ClusterZone, ZoneAnswer

_REFUSED_TYPES: Final = frozenset((AXFR, IXFR, 253, 254))
"""Zone transfers, and the obsolete types MAILB and MAILA."""


class ClusterResolver:
    """Answers at once where it can, and else returns an awaitable."""

    def __init__(self, zone: ClusterZone, forwarder: Forwarder, synced: Callable[[], bool]) -> None:
        """Create a resolver. `synced` returns whether the zone is complete; before that, negative answers from it would
        be wrong."""
        self._zone = zone
        self._forwarder = forwarder
        self._synced = synced
        self._rotation = 0

    def answer(self, query: Message) -> Message | Awaitable[Message]:
        """Return the answer to a query. Neither this nor the awaitable raises an exception for what a client sends."""
        problem = _problem(query)
        if problem is not None:
            return reply(query, problem)
        question = query.questions[0]
        zone = self._zone
        if not self._synced() and (zone.contains(question.name) or zone.is_reverse(question.name)):
            return reply(query, SERVFAIL)
        found = zone.answer(question.name, question.type)
        if found is None:
            return self._forward(query, question)
        if found.target is None:
            return self._from_zone(query, found)
        return self._forward(query, Question(found.target, question.type), found.answers)

    def _from_zone(self, query: Message, found: ZoneAnswer) -> Message:
        answer = reply(query, found.rcode, AUTHORITATIVE)
        answer.answers = self._rotated(found.answers) if len(found.answers) > 1 else found.answers
        answer.authority, answer.additional = found.authority, found.additional
        return answer

    def _rotated(self, records: Sequence[Record]) -> list[Record]:
        """Return records in an order that differs from answer to answer, so that clients distribute themselves over the
        addresses. The CNAME records in front of the addresses keep their places."""
        first = next((at for at, record in enumerate(records) if record.type in (A, AAAA)), len(records))
        chain, addresses = records[:first], records[first:]
        if len(addresses) < 2:
            return list(records)
        self._rotation += 1
        start = self._rotation % len(addresses)
        return [*chain, *addresses[start:], *addresses[:start]]

    def _forward(
        self, query: Message, question: Question, chain: Sequence[Record] = ()
    ) -> Message | Awaitable[Message]:
        """Return the answer of other name servers, behind the CNAME records that lead to the question."""
        if self._forwarder.is_probe(question.name):
            return reply(query, REFUSED)
        found = self._forwarder.cached(question)
        return _merged(query, found, chain) if found is not None else self._ask(query, question, chain)

    async def _ask(self, query: Message, question: Question, chain: Sequence[Record]) -> Message:
        try:
            found = await self._forwarder.resolve(question)
        except UpstreamError:
            found = reply(query, SERVFAIL)
        return _merged(query, found, chain)


def _problem(query: Message) -> int | None:
    """Return the response code for a query that cannot be answered, or None."""
    if query.flags & OPCODE_MASK:
        return NOTIMP
    if len(query.questions) != 1:
        return FORMERR
    if query.edns is not None and query.edns.version:
        return BADVERS
    question = query.questions[0]
    return REFUSED if question.klass != INTERNET or question.type in _REFUSED_TYPES else None


def _merged(query: Message, found: Message, chain: Sequence[Record]) -> Message:
    answer = reply(query, found.rcode & 15)
    answer.answers = [*chain, *found.answers] if chain else found.answers
    answer.authority, answer.additional = found.authority, found.additional
    return answer
