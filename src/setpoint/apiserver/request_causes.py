"""The causes of the transactions of one API server: noted with each write, encoded when its store needs them.

A cause (`meta/cause.py`) is what the server knows of the request, and what its client claims in a header. Its time is
that of the request's arrival, or of the transaction before if that is later: it never falls from one transaction of
this server to the next.

Every write notes its cause while the processor's caches are full of other things, so it only collects references to the
parts. It does not keep the request, which would stay in memory as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any

import orjson

from setpoint.apiserver.request_context import RequestContext
from setpoint.meta.caching import MAX_MEMOIZED_LENGTH, memoized
from setpoint.meta.cause import (
    CAUSE_HEADER,
    MAX_HEADER_LENGTH,
    claim_values,
    parse_claim,
    product_of,
    recorded,
    run_claim_values,
    writer_text,
)
from setpoint.meta.times import unix_milliseconds
from setpoint.store.interface import NotedCause
from setpoint.wire.message import ObjectRequest, Request

_SERVER, _SERVER_AGENT = "system:apiserver", "kube-apiserver"
_TRACE_HEADER = "traceparent"
_TRACE = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_APPLY_TYPES = "application/apply-patch"
_OWN_VERBS = {"create/binding": "bind", "create/eviction": "evict"}
"""Verbs of requests that create no object, by verb and subresource."""


class RequestCauses:
    """Implements `CauseEncoder`. A noted cause is this encoder, the time of arrival, the arguments of `_writer`, the
    claim (that of a run, or a header), the trace, the term of the leader, and the address of the client."""

    def __init__(self) -> None:
        self.last = 0
        """The time of the last transaction whose cause was encoded, in milliseconds since the epoch."""

    def note(self, ctx: RequestContext, term: str) -> NotedCause:
        """Return the cause of a transaction that is committed now."""
        request, verb = ctx.request, ctx.verb
        headers = request.headers
        agent = headers.get("user-agent", "")
        if len(agent) > MAX_MEMOIZED_LENGTH:
            agent = product_of(agent)
        if verb == "patch" and headers.get("content-type", "").startswith(_APPLY_TYPES):
            verb = "apply"
        trace = headers.get(_TRACE_HEADER, "")
        if trace and not _TRACE.fullmatch(trace):
            trace = ""
        claim: Any = (isinstance(request, ObjectRequest) and request.claim) or _claiming_header(request)
        user, target, peer = ctx.user.name, ctx.target, request.peer
        return self, ctx.now, user, ctx.impersonator, agent, verb, target.subresource, claim, trace, term, peer.remote

    def note_own(self, now: datetime, verb: str, reason: str, term: str) -> NotedCause:
        """Return the cause of maintenance of the server itself that is committed now."""
        claim = ("", "", 0, "", (), 0, "", reason)
        return self, now, _SERVER, "", _SERVER_AGENT, verb, "", claim, "", term, ""

    def encode(self, cause: NotedCause) -> bytes:
        _, arrived, user, impersonator, agent, verb, subresource, claim, trace, term, address = cause
        origin = user, impersonator, agent, verb, subresource
        return _recorded(self._time(arrived), origin, claim, trace, term, address)

    def join(self, causes: Sequence[NotedCause]) -> bytes | None:
        try:
            block = orjson.dumps((self.last, [cause[1:] for cause in causes]))
        except orjson.JSONEncodeError:  # the text of a claim is not valid Unicode
            return None
        self._time(max(map(_ARRIVED, causes)))
        return block

    def split(self, block: bytes, first: int) -> Iterator[bytes]:
        at, parts = orjson.loads(block)
        for position, (arrived, *origin, claim, trace, term, address) in enumerate(parts):
            at = max(at, unix_milliseconds(datetime.fromisoformat(arrived)))
            if position >= first:
                yield _recorded(at, origin, claim, trace, term, address)

    def _time(self, arrived: datetime) -> int:
        """Return the time of a transaction whose request arrived at this time."""
        at = unix_milliseconds(arrived)
        if at > self.last:
            self.last = at
        return self.last


_ARRIVED = itemgetter(1)


def _recorded(
    at: int, origin: Sequence[str], noted: tuple[Any, ...] | str, trace: str, term: str, address: str
) -> bytes:
    """Return the recorded form; `origin` has the arguments of `_writer`. The address of a component that names its
    reconcile says nothing more, and is left out. A person who claims a reconcile cannot hide it."""
    values = _values(noted)
    if address and values and values[0] and all(user.startswith("system:") for user in origin[:2] if user):
        address = ""
    return recorded(at, _writer(*origin), values, trace, term, address)


def claimed(request: Request) -> tuple[Any, ...]:
    """Return the values of the claim that the client of a request makes; empty if it makes none."""
    return _values((isinstance(request, ObjectRequest) and request.claim) or _claiming_header(request))


def _claiming_header(request: Request) -> str:
    header = request.headers.get(CAUSE_HEADER, "")
    return header if len(header) <= MAX_HEADER_LENGTH else ""


def _values(noted: tuple[Any, ...] | str) -> tuple[Any, ...]:
    """Return the values of a noted claim: that of a run, or a header."""
    if isinstance(noted, str):
        return _parsed_claim(noted) if noted else ()
    return run_claim_values(*noted)


@lru_cache(maxsize=2048)
def _writer(user: str, impersonator: str, agent: str, verb: str, subresource: str) -> str:
    """Return the writer in the recorded form; `agent` is the User-Agent."""
    if subresource:
        verb = f"{verb}/{subresource}"
    if impersonator:
        user = f"{user}<{impersonator}"
    return writer_text(_OWN_VERBS.get(verb, verb), user, product_of(agent))


@memoized(maxsize=2048)
def _parsed_claim(header: str) -> tuple[Any, ...]:
    """Return the values of the claim in a header; empty if it is none."""
    claim = parse_claim(header)
    return () if claim is None else claim_values(*claim)
