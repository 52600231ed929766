"""The cause of a write: who made it, when, and what triggered the reconcile that made it.

The API server records one `WriteCause` with every revision, as bytes beside the objects (`store/interface.py`). What
the server knows itself (time, verb, user) is a fact. What the client says about its reason is a claim: it travels in
one header (`Claim`), is bounded, and is shown as the client's claim. A header that cannot be parsed is ignored; it
never fails a request.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import orjson

from setpoint.meta.caching import memoized

CAUSE_HEADER = "setpoint-cause"
MAX_HEADER_LENGTH = 1024
MAX_TRIGGERS = 8
"""Number of triggers that are listed. Of more, the first three and the last five are, and `count` says how many there
were."""
_FIRST, _LAST = 3, 5
MAX_REASON_LENGTH = 160
MAX_AGENT_LENGTH = 64
_MAX_NAME_LENGTH = 128
_MAX_KEY_LENGTH = 320
"""A namespace and a name, of 63 and 253 characters."""
_MAX_REVISION = 2**63 - 1
FORMAT = 1
"""The number of the recorded form, its first position."""


class Claim(NamedTuple):
    """The reason for a write as its client states it."""

    reconcile: str = ""
    """The reconcile that made the write: `<controller>/<process>.<number>`."""
    key: str = ""
    """The key that the reconcile was called with, usually `namespace/name`."""
    triggers: tuple[int, ...] = ()
    """The revisions that triggered the reconcile, in ascending order, at most `MAX_TRIGGERS`."""
    count: int = 0  # type: ignore[assignment]
    """How many triggers there were, if more than are listed; else 0."""
    besides: str = ""
    """A trigger that is not a revision: `retry:3`, `timer:600`, `start`, `resync`, `relist`, `exit:137`, `probe`."""
    reason: str = ""
    """The controller's own sentence: `2 Pods, 3 wanted`."""


class WriteCause(NamedTuple):
    """The cause recorded with a revision."""

    at: int
    """Milliseconds since the epoch by the server's clock; 0 if it is not known. It never falls from one revision of a
    server to the next."""
    verb: str
    """The verb of the request with its subresource: `create`, `patch/status`, `update/scale`, `apply`, `bind`."""
    user: str
    """The authenticated user; `alice<admin` if admin impersonates alice."""
    agent: str = ""
    """The first product of the User-Agent without its version, as the client says."""
    claim: Claim = Claim()
    trace: str = ""
    """The `traceparent` that the client sent."""
    term: str = ""
    """The lease and term of the leader that wrote (`meta/lease_term.py`)."""


def merged(first: tuple[int, ...], count: int, more: tuple[int, ...], more_count: int) -> tuple[tuple[int, ...], int]:
    """Merge two lists of triggers, each with its `count`, into one within the bounds of a claim."""
    total = max(count, len(first)) + max(more_count, len(more))
    found = tuple(sorted({*first, *more}))
    if len(found) <= MAX_TRIGGERS and not (count or more_count):
        return found, 0
    if len(found) > MAX_TRIGGERS:
        found = found[:_FIRST] + found[-_LAST:]
    return found, total


# -- the header --------------------------------------------------------------------------------------------------------


def claim_header(claim: Claim) -> str:
    """Return the value of the header for a claim; its reason is shortened if the header would be too long."""
    parts = []
    if claim.reconcile:
        parts.append(f"r={_quoted(claim.reconcile)}")
    if claim.key:
        parts.append(f"k={_quoted(claim.key, _MAX_KEY_LENGTH)}")
    if claim.triggers:
        parts.append("t=" + ",".join(map(str, claim.triggers)))
    if claim.count:
        parts.append(f"n={claim.count}")
    if claim.besides:
        parts.append(f"b={_quoted(claim.besides)}")
    header = ";".join(parts)
    if claim.reason:
        left = MAX_HEADER_LENGTH - len(header) - len(";why=")
        reason = claim.reason[:MAX_REASON_LENGTH]
        while len(quoted := quote(reason, safe=_SAFE)) > max(left, 0):
            reason = reason[: len(reason) - max(1, (len(quoted) - left) // 9)]
        if reason:
            header = f"{header};why={quoted}" if header else f"why={quoted}"
    return header


_SAFE = " /:.<>()+-_=,'!?*@#$&"


def _quoted(text: str, length: int = _MAX_NAME_LENGTH) -> str:
    return quote(text[:length], safe="/:.-_")


@memoized(maxsize=4096)
def parse_claim(header: str) -> Claim | None:
    """Parse the value of the header; return None if it is not one, or too long."""
    if len(header) > MAX_HEADER_LENGTH or not header.isascii():
        return None
    found: dict[str, str] = {}
    for part in header.split(";"):
        name, equals, value = part.strip().partition("=")
        if not equals or name in found:
            return None
        found[name] = value
    try:
        revisions = [int(each) for each in found.get("t", "").split(",") if each]
        count = int(found.get("n") or 0)
    except ValueError:
        return None
    if any(not 0 < each <= _MAX_REVISION for each in (*revisions, count or 1)):
        return None
    triggers, counted = merged((), 0, tuple(revisions), 0)
    return Claim(
        _clean(found.get("r", ""), _MAX_NAME_LENGTH),
        _clean(found.get("k", ""), _MAX_KEY_LENGTH),
        triggers,
        max(count, counted) if max(count, counted) > len(triggers) else 0,
        _clean(found.get("b", ""), _MAX_NAME_LENGTH),
        _clean(found.get("why", ""), MAX_REASON_LENGTH),
    )


def _clean(text: str, length: int) -> str:
    """Decode percent escapes, without characters that a terminal could execute."""
    return "".join(each for each in unquote(text) if each.isprintable())[:length]


def product_of(user_agent: str) -> str:
    """Return the first product of a User-Agent header without its version: `kubectl` of `kubectl/v1.33.1 (linux)`."""
    product = user_agent[: 4 * MAX_AGENT_LENGTH].partition(" ")[0].partition("/")[0]
    return "".join(each for each in product if each.isprintable())[:MAX_AGENT_LENGTH]


# -- the record --------------------------------------------------------------------------------------------------------


def encode(cause: WriteCause) -> bytes:
    """Return the recorded form: a JSON array with fixed positions."""
    return joined(
        cause.at,
        encoded_writer(cause.verb, cause.user, cause.agent),
        encoded_claim(cause.claim),
        encoded_end(cause.trace, cause.term),
    )


def joined(at: int, writer: bytes, claim: bytes, end: bytes) -> bytes:
    """Return the recorded form from its encoded parts, without empty values at its end. The last three parts are the
    same for many writes, so the server caches them."""
    if len(end) > 1:
        claim = claim or _NO_CLAIM
    elif claim.endswith(b',0,"",""'):
        claim = claim[:-8]
    elif claim.endswith(b',""'):
        claim = claim[:-3]
    return b"[%d,%d%b%b%b" % (FORMAT, at, writer, claim, end)


def encoded_writer(verb: str, user: str, agent: str) -> bytes:
    return b"," + orjson.dumps([verb, user, agent])[1:-1]


def encoded_claim(claim: Claim) -> bytes:
    """Return the encoded claim; empty if it is empty."""
    return b"," + orjson.dumps(list(claim))[1:-1] if any(claim) else b""


def encoded_end(trace: str, term: str) -> bytes:
    return b"," + orjson.dumps([trace, term])[1:] if trace or term else b"]"


_NO_CLAIM = b"," + orjson.dumps(list(Claim()))[1:-1]


class CarriedClaim(str):
    """The value of the header between two parts of one process: it carries the encoded claim instead of its text."""

    __slots__ = ("encoded",)
    encoded: bytes

    @property
    def claim(self) -> Claim:
        reconcile, key, triggers, count, besides, reason = orjson.loads(b"[" + self.encoded[1:] + b"]")
        return Claim(reconcile, key, tuple(triggers), count, besides, reason)


def claim_of(header: str) -> Claim | None:
    """Return the claim of a header, carried or as text; None if it has none."""
    if isinstance(header, CarriedClaim):
        return header.claim if header.encoded else None
    return parse_claim(header) if header else None


def decode(recorded: bytes) -> WriteCause:
    """Decode the recorded form, and that of earlier versions (an object with user, agent and verb). What cannot be
    decoded is a cause of which nothing is known."""
    try:
        found = orjson.loads(recorded)
    except orjson.JSONDecodeError:
        return WriteCause(0, "", "")
    if isinstance(found, dict):
        texts = {name: value for name, value in found.items() if isinstance(value, str)}
        agent, term = product_of(texts.get("agent", "")), texts.get("lease", "")
        return WriteCause(0, texts.get("verb", ""), texts.get("user", ""), agent, term=term)
    if not isinstance(found, list) or len(found) < 2 or found[0] != FORMAT:
        return WriteCause(0, "", "")
    at, verb, user, agent, reconcile, key, triggers, count, besides, reason, trace, term = (
        found[1:] + _EMPTY[len(found) :]
    )
    claim = Claim(reconcile, key, tuple(triggers), count, besides, reason)
    return WriteCause(at, verb, user, agent, claim, trace, term)


_EMPTY: list[Any] = [FORMAT, 0, "", "", "", "", "", (), 0, "", "", "", ""]
