"""Checks of the calls of clients against etcd's log: no write is lost, and all calls are strictly serializable.

Revisions are a total order of all writes, and written values are unique. So there is no search for an order: a call is
placed at its revision in the log, and the check is that this place agrees with real time. A call may take effect at any
revision from the greatest one that was observed anywhere before it began, to just before the smallest one that was
begun after it ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.robustness.commits import WRITES, Bounds, Log, revision_of
from tests.robustness.history import OK, REFUSED, Call, Commit, FaultRecord, History, Violation


def acknowledged_writes(history: History, log: Log) -> Iterator[Violation]:
    """Yield acknowledged writes that are not in the log, and refused ones that are."""
    values: dict[tuple[str, str | None], Commit] = {
        (commit.key, commit.value): commit for commit in log.commits if commit.value is not None
    }
    for call in _writes(history):
        if call.verb == "delete":
            if call.outcome == OK and not revision_of(call, log):
                yield Violation("acknowledged-writes", "an acknowledged delete is not in the log", (call,))
            continue
        commit = values.get((call.key, call.value))
        if call.outcome == OK and (commit is None or commit.revision != call.revision):
            found = f"is at revision {commit.revision} of the log" if commit is not None else "is not in the log"
            yield Violation("acknowledged-writes", f"an acknowledged {call.verb} {found}", (call,))
        elif call.outcome == REFUSED and commit is not None:
            yield Violation("acknowledged-writes", f"a refused {call.verb} took effect", (call, commit))


def compare_and_swap(history: History, log: Log) -> Iterator[Violation]:
    """Yield acknowledged writes that replaced another revision than the one they named."""
    for call in _writes(history):
        revision = revision_of(call, log) if call.outcome == OK else 0
        if not revision:
            continue
        before, value = log.before(call.key, revision)
        if call.verb == "create" and value is not None:
            message = f"a create at revision {revision} replaced revision {before}"
            yield Violation("compare-and-swap", message, (call,))
        elif call.verb != "create" and before != call.expected:
            message = f"revision {revision} replaced revision {before}, and not {call.expected} as demanded"
            yield Violation("compare-and-swap", message, (call,))


def single_effect(history: History, log: Log) -> Iterator[Violation]:
    """Yield values that are in the log twice: a write that took effect more than once."""
    seen: dict[tuple[str, str | None], Commit] = {}
    written = {(call.key, call.value) for call in _writes(history) if call.verb != "delete"}
    for commit in log.commits:
        key = (commit.key, commit.value)
        if key not in written:
            continue
        if key in seen:
            yield Violation("single-effect", "one write took effect twice", (seen[key], commit))
        seen[key] = commit


def linearizable(history: History, log: Log, bounds: Bounds) -> Iterator[Violation]:
    """Yield calls whose result was true at no revision at which the call can have taken effect."""
    for call in history.of(Call):
        first, end = bounds.reached(call.invoked), bounds.not_reached(call.answered)
        problem = _problem(call, log, first, end)
        if problem:
            message = f"{problem}; it took effect between revision {first} and {end}"
            yield Violation("linearizable", message, (call,))


def _problem(call: Call, log: Log, first: int, end: float) -> str:
    """Return why a call cannot have taken effect at a revision from `first` to before `end`; empty if it can."""
    if call.verb == "list" and call.outcome == OK:
        if call.stale_allowed:
            return ""
        return "" if first <= call.revision < end else f"the list is of revision {call.revision}"
    possible = log.versions(call.key, first, end)
    if call.verb == "get" and call.outcome == OK and not call.stale_allowed:
        if any((each.revision, each.value) == (call.revision, call.value) for each in possible):
            return ""
        return f"the object had revision {call.revision} at another time, or never"
    if call.verb in WRITES and call.outcome == OK:
        revision = revision_of(call, log)
        # A write that is not in the log is reported by another check.
        return "" if not revision or first < revision < end else f"its revision is {revision}"
    if call.outcome == REFUSED and call.code == 404:
        return "" if any(each.value is None for each in possible) else "the object existed all the time"
    if call.outcome == REFUSED and call.code == 409:
        if call.verb == "create":
            return "" if any(each.value is not None for each in possible) else "the object did not exist at any time"
        if any(each.value is None or each.revision != call.expected for each in possible):
            return ""
        return "the object had the named revision all the time"
    return ""


def monotonic(history: History) -> Iterator[Violation]:
    """Yield calls by which a client goes back in time, on the same server or on another one."""
    latest: dict[str, Call] = {}
    of_key: dict[tuple[str, str], Call] = {}
    by_client: dict[str, list[Call]] = defaultdict(list)
    for call in history.of(Call):
        if call.outcome == OK and call.revision and not call.stale_allowed:
            by_client[call.client].append(call)
    for client, calls in by_client.items():
        for call in sorted(calls, key=lambda each: each.invoked):
            if call.verb == "get":
                # The revision of an object says nothing about the time at which it was read.
                before = of_key.get((client, call.key))
                if before is not None and call.revision < before.revision:
                    yield Violation("monotonic", "an object went back to an earlier revision", (before, call))
            else:
                before = latest.get(client)
                if before is not None and call.revision < before.revision:
                    yield Violation("monotonic", "a client went back to an earlier revision", (before, call))
                latest[client] = call
            if call.verb != "list":
                of_key[client, call.key] = call


def lists(history: History, log: Log) -> Iterator[Violation]:
    """Yield lists that are not the state at their revision."""
    for call in history.of(Call):
        if call.verb != "list" or call.outcome != OK:
            continue
        state = log.state(call.key, call.revision)
        if state != call.items:
            wrong = sorted(key for key in state.keys() | call.items.keys() if state.get(key) != call.items.get(key))
            shown = ", ".join(f"{key} is {state.get(key)} and not {call.items.get(key)}" for key in wrong[:5])
            yield Violation("lists", f"at revision {call.revision}, {shown}", (call,))


def no_quorum(history: History) -> Iterator[Violation]:
    """Yield writes that began and were acknowledged while etcd had no quorum."""
    for fault in history.of(FaultRecord):
        if not fault.no_quorum:
            continue
        for call in _writes(history):
            if call.outcome == OK and fault.injected < call.invoked and call.answered < fault.healed:
                yield Violation("no-quorum", "a write was acknowledged without a quorum", (fault, call))


def _writes(history: History) -> list[Call]:
    return [call for call in history.of(Call) if call.verb in WRITES]
