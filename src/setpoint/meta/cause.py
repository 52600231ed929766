"""The cause of a write: who made it, when, and what triggered the reconcile that made it.

The API server records one `WriteCause` with every revision, as bytes beside the objects (`store/interface.py`). What
the server knows itself (time, verb, user) is a fact. What the client says about its reason is a claim: it travels in
one header (`Claim`), is bounded, and is shown as the client's claim. A header that cannot be parsed is ignored; it
never fails a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import orjson

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
FORMAT = 2
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
    address: str = ""
    """The address from which the request came over a network; empty if it came from the server's own machine, if a
    component claims a reconcile, and if it is not known."""


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
        _clean(found.get("k", ""), _MAX_KEY_LENGTH).removeprefix("/"),  # of a name without namespace in Go
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
#
# Format 2 is a JSON array: the format, the time, the writer as one text, then the values of the claim without the empty
# ones at its end, and last, if there are any, an object with trace, term and address:
#
#     [2,1763299132123,"create kube-controller-manager @:replicaset-controller",
#      "replicaset-controller/b3f1.48213","default/web-6cf4",102993,"2 Pods exist, 3 are wanted",{"term":"..."}]


def encode(cause: WriteCause) -> bytes:
    """Return the recorded form."""
    writer = writer_text(cause.verb, cause.user, cause.agent)
    return recorded(cause.at, writer, claim_values(*cause.claim), cause.trace, cause.term, cause.address)


def recorded(at: int, writer: str, claim: tuple[Any, ...], trace: str = "", term: str = "", address: str = "") -> bytes:
    """Return the recorded form from a writer (`writer_text`) and a claim (`claim_values`)."""
    values = [FORMAT, at, writer, *claim]
    if trace or term or address:
        last = (("trace", trace), ("term", term), ("address", address))
        values.append({name: value for name, value in last if value})
    try:
        return orjson.dumps(values)
    except orjson.JSONEncodeError:  # the text of a claim is not valid Unicode
        return orjson.dumps([FORMAT, at, writer])


def writer_text(verb: str, user: str, agent: str) -> str:
    """Return verb, agent and user as one text; frequent users and beginnings of users are abbreviated."""
    return f"{verb} {agent} {_abbreviated(user, agent)}"


def _abbreviated(user: str, agent: str) -> str:
    if user == f"system:{agent}":
        return ":"
    if user == "system:" or user.startswith("system:serviceaccount::"):
        return user  # its abbreviation is that of another user
    for prefix, short in _USERS:
        if user.startswith(prefix):
            return short + user[len(prefix) :]
    return user


def _full(user: str, agent: str) -> str:
    """Return the user of an abbreviation."""
    if user == ":":
        return f"system:{agent}"
    for prefix, short in _USERS:
        if user.startswith(short):
            return prefix + user[len(short) :]
    return user


_USERS = (
    ("system:serviceaccount:kube-system:", "@:"),
    ("system:serviceaccount:", "@"),
    ("system:", ":"),
    # Users that begin like an abbreviation keep their names.
    ("@", "=@"),
    (":", "=:"),
    ("=", "=="),
)
"""Beginnings of users and their abbreviations; the first one that matches is used."""


def claim_values(
    reconcile: str, key: str, triggers: tuple[int, ...], count: int, besides: str, reason: str
) -> tuple[Any, ...]:
    """Return the values of a claim in the order of the recorded form, without empty ones at the end."""
    which: Any = triggers[0] if len(triggers) == 1 else triggers
    if count:
        return reconcile, key, which, reason, besides, count
    if besides:
        return reconcile, key, which, reason, besides
    if reason:
        return reconcile, key, which, reason
    if triggers:
        return reconcile, key, which
    return (reconcile, key) if key else (reconcile,) if reconcile else ()


RunClaim = tuple[str, str, int, str, tuple[int, ...], int, str, str]
"""The arguments of `run_claim_values`, which is what a run claims."""


def run_claim_values(
    controller: str,
    process: str,
    number: int,
    key: str,
    triggers: tuple[int, ...],
    count: int,
    besides: str,
    reason: str,
) -> tuple[Any, ...]:
    """Return the values of the claim of a run; without a controller it names no reconcile."""
    reconcile = f"{controller}/{process}.{number}" if controller else ""
    return claim_values(reconcile, key, triggers, count, besides, reason)


def claim_of(values: Sequence[Any]) -> Claim:
    """Return the claim of its values, the inverse of `claim_values`."""
    reconcile, key, which, reason, besides, count = (*values, *_NO_CLAIM[len(values) :])
    return Claim(reconcile, key, (which,) if isinstance(which, int) else tuple(which), count, besides, reason)


_NO_CLAIM: tuple[Any, ...] = ("", "", (), "", "", 0)


def decode(recorded: bytes) -> WriteCause:
    """Decode the recorded form, and those of earlier versions. What cannot be decoded is a cause of which nothing is
    known."""
    try:
        found = orjson.loads(recorded)
        if isinstance(found, dict):
            return _decode_object(found)
        if found[0] == FORMAT:
            return _decode_current(found)
        if found[0] == 1:
            return _decode_first(found)
    except (ValueError, TypeError, LookupError):
        pass
    return WriteCause(0, "", "")


def _decode_current(found: list[Any]) -> WriteCause:
    end = found.pop() if isinstance(found[-1], dict) else {}
    _, at, writer, *values = found
    verb, agent, user = writer.split(" ", 2)
    trace, term, address = (end.get(name, "") for name in ("trace", "term", "address"))
    return WriteCause(at, verb, _full(user, agent), agent, claim_of(values), trace, term, address)


def _decode_first(found: list[Any]) -> WriteCause:
    """Decode format 1: an array with one position for each value."""
    empty: list[Any] = [1, 0, "", "", "", "", "", (), 0, "", "", "", ""]
    values = found + empty[len(found) :]
    _, at, verb, user, agent, reconcile, key, triggers, count, besides, reason, trace, term = values
    return WriteCause(
        at, verb, user, agent, Claim(reconcile, key, tuple(triggers), count, besides, reason), trace, term
    )


def _decode_object(found: dict[str, Any]) -> WriteCause:
    """Decode the form before format 1: an object with user, agent and verb."""
    texts = {name: value for name, value in found.items() if isinstance(value, str)}
    agent = product_of(texts.get("agent", ""))
    return WriteCause(0, texts.get("verb", ""), texts.get("user", ""), agent, term=texts.get("lease", ""))
