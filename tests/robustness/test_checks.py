"""Each check accepts a correct history and reports each kind of incorrect one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.robustness.checks import violations
from tests.robustness.history import (
    OK,
    REFUSED,
    UNKNOWN,
    Call,
    Commit,
    Converged,
    FaultRecord,
    Frame,
    History,
    LastWrite,
    Leading,
    Record,
    WatchStart,
    read,
)

PREFIX = "core/configmaps/robust/"
A, B = PREFIX + "a", PREFIX + "b"
SERVICE = "core/services/robust/"


def call(verb: str, key: str, invoked: float, **more: Any) -> Call:
    outcome = more.pop("outcome", OK)
    client, server = more.pop("client", "c1"), more.pop("server", "m1")
    return Call(client, server, verb, key, invoked, invoked + 0.5, outcome, **more)


def frame(at: float, type_: str, revision: int, key: str = "", value: str | None = None) -> Frame:
    return Frame("w", 1, at, type_, revision, key, value)


LOG: list[Record] = [
    Commit(10, A, "a1"),
    Commit(11, B, "b1"),
    Commit(12, A, "a2"),
    Commit(13, A, None),
    Commit(14, A, "a3"),
]
CALLS: list[Record] = [
    call("create", A, 1, value="a1", revision=10, code=201),
    call("create", B, 2, value="b1", revision=11, code=201),
    call("get", A, 3, value="a1", revision=10, code=200, client="c2", server="m2"),
    call("update", A, 4, value="a2", revision=12, expected=10, code=200),
    call("update", A, 5, value="a9", expected=10, outcome=REFUSED, code=409, client="c2"),
    call("create", A, 5, value="a8", outcome=REFUSED, code=409, client="c2"),
    call("list", PREFIX, 5, revision=12, items={A: (12, "a2"), B: (11, "b1")}, client="c2", server="m3"),
    call("delete", A, 6, expected=12, code=200),
    call("get", A, 7, outcome=REFUSED, code=404),
    call("create", A, 8, value="a3", outcome=UNKNOWN, code=504),
    call("create", A, 8, value="a7", outcome=UNKNOWN),
    call("get", A, 10, value="a3", revision=14, code=200),
    call("list", PREFIX, 10, revision=11, items={A: (10, "a1"), B: (11, "b1")}, stale_allowed=True, client="c2"),
]
WATCH: list[Record] = [
    WatchStart("w", 1, "m1", PREFIX, 0.5, 9),
    frame(1.5, "ADDED", 10, A, "a1"),
    frame(2.5, "ADDED", 11, B, "b1"),
    frame(4.5, "MODIFIED", 12, A, "a2"),
    WatchStart("w", 2, "m2", PREFIX, 5.5, 12),
    replace(frame(6.5, "DELETED", 13, A, "a2"), connection=2),
    replace(frame(8.5, "ADDED", 14, A, "a3"), connection=2),
    replace(frame(9, "BOOKMARK", 17), connection=2),
    LastWrite(PREFIX, 14),
]


def found(*records: Record) -> list[str]:
    return [violation.check for violation in violations(History(records))]


def changed(records: list[Record], position: int, **values: Any) -> list[Record]:
    return [replace(each, **values) if at == position else each for at, each in enumerate(records)]


def without(records: list[Record], position: int) -> list[Record]:
    return records[:position] + records[position + 1 :]


def test_correct_history() -> None:
    assert found(*LOG, *CALLS, *WATCH) == []


@pytest.mark.parametrize(
    ("check", "records"),
    [
        # A write was acknowledged, and the log does not have it, or at another revision.
        ("acknowledged-writes", [*without(LOG, 2), *CALLS[:4]]),
        ("acknowledged-writes", [*LOG, *changed(CALLS, 3, revision=11)]),
        ("acknowledged-writes", [*LOG[:3], CALLS[7]]),
        # A write was refused, and took effect.
        ("acknowledged-writes", [*LOG, Commit(15, A, "a9"), *CALLS]),
        # The revision that was named is not the one that was replaced.
        ("compare-and-swap", [*LOG, *changed(CALLS, 3, expected=9)]),
        ("compare-and-swap", [LOG[0], Commit(11, A, "a0"), *LOG[2:], CALLS[3]]),
        ("compare-and-swap", [Commit(9, A, "a0"), *LOG, CALLS[0]]),
        # A write took effect twice.
        ("single-effect", [*LOG, Commit(15, A, "a2"), *CALLS]),
        # A read returns a value that was overwritten before the read began, or one that never was, or a future one.
        ("linearizable", [*LOG, *CALLS, call("get", A, 10, value="a1", revision=10, client="c3")]),
        ("linearizable", [*LOG, *CALLS, call("get", A, 10, value="a4", revision=14, client="c3")]),
        ("linearizable", [*LOG, *CALLS, call("get", A, 0, value="a2", revision=12, client="c3")]),
        # The key of another client's acknowledged write counts too: revisions are one order for all keys.
        ("linearizable", [*LOG, *CALLS, call("get", A, 2.6, outcome=REFUSED, code=404, client="c3")]),
        ("linearizable", [*LOG, *CALLS, call("list", PREFIX, 3, revision=10, items={A: (10, "a1")}, client="c3")]),
        # A write has a revision that is smaller than one that was observed before, or greater than one begun later.
        ("linearizable", [*LOG, *CALLS[1:], call("create", A, 3, value="a1", revision=10, client="c3")]),
        ("linearizable", [*LOG, *CALLS[:7], call("create", A, 1.6, value="a3", revision=14, client="c3")]),
        # Refusals that cannot be true.
        ("linearizable", [*LOG, *CALLS, call("update", B, 9, expected=11, outcome=REFUSED, code=409, value="x")]),
        ("linearizable", [*LOG, *CALLS, call("create", A, 7, outcome=REFUSED, code=409, value="x")]),
        ("linearizable", [*LOG, *CALLS, call("delete", B, 7, expected=11, outcome=REFUSED, code=404)]),
        # A client goes back, although nothing else was observed in between.
        ("monotonic", [*LOG, CALLS[6], *changed(CALLS[6:7], 0, invoked=7, answered=8, revision=11, items={})]),
        ("monotonic", [*LOG, CALLS[11], *changed(CALLS[11:12], 0, invoked=11, answered=12, revision=12, value="a2")]),
        # A list that is not the state at its revision: an object is missing, an old one, a deleted one.
        ("lists", [*LOG, *changed(CALLS, 6, items={A: (12, "a2")})]),
        ("lists", [*LOG, *changed(CALLS, 6, items={A: (10, "a1"), B: (11, "b1")})]),
        ("lists", [*LOG, *changed(CALLS, 12, items={A: (10, "a1"), B: (11, "b1"), PREFIX + "c": (8, "c")})]),
        # A write succeeded while there was no quorum.
        ("no-quorum", [*LOG, *CALLS, FaultRecord("no-quorum", "m1 m2", 3.9, 5, 6, no_quorum=True)]),
    ],
)
def test_incorrect_calls(check: str, records: list[Record]) -> None:
    assert check in found(*records)


def test_writes_before_and_after_the_loss_of_the_quorum() -> None:
    assert found(*LOG, *CALLS, FaultRecord("no-quorum", "m1 m2", 4.1, 5, 6, no_quorum=True)) == []
    assert found(*LOG, *CALLS, FaultRecord("kill", "m1", 3.9, 5, 6)) == []


@pytest.mark.parametrize(
    ("check", "records"),
    [
        ("watches", without(WATCH, 2)),  # one is missing
        ("watches", [*WATCH[:2], WATCH[3], WATCH[2], *WATCH[4:]]),  # the order is wrong
        ("watches", [*WATCH[:4], WATCH[3], *WATCH[4:]]),  # one is delivered twice
        ("watches", [*WATCH[:5], frame(5.6, "MODIFIED", 12, A, "a2"), *WATCH[5:]]),  # twice, because of the resumption
        ("watches", changed(WATCH, 1, type="MODIFIED")),
        ("watches", changed(WATCH, 3, value="a1")),
        ("watches", changed(WATCH, 5, value="a1")),
        ("watches", changed(WATCH, 3, key=B)),
        ("watches", [*WATCH, replace(frame(9.5, "ADDED", 18, A, "a5"), connection=2)]),  # never happened
        ("watches", [*WATCH[:6], WATCH[7]]),  # the bookmark is ahead of what was delivered
        ("watches", [*WATCH, replace(frame(9.5, "BOOKMARK", 16), connection=2)]),  # a bookmark goes back
        ("watches", changed(WATCH, 4, revision=13)),  # the client resumed where it was not yet
        ("watches-end", [*WATCH[:6], LastWrite(PREFIX, 14)]),
    ],
)
def test_incorrect_watches(check: str, records: list[Record]) -> None:
    assert check in found(*LOG, *records)


def test_watch_after_a_new_list() -> None:
    assert found(*LOG, *WATCH[:2], *changed(WATCH, 4, relisted=True)[4:]) == []


LEASE = "coordination.k8s.io/leases/kube-system/scheduler"
TERMS: list[Record] = [
    Commit(20, LEASE, "0/m1_x"),
    Commit(21, "core/pods/robust/p", "", "kube-system/scheduler/0/m1_x"),
    Commit(22, LEASE, "1/m2_y"),
    Commit(23, "core/pods/robust/p", "", "kube-system/scheduler/1/m2_y"),
    Leading("c1", "robust/l", 1, 4),
    Leading("c2", "robust/l", 4, 6),
    Leading("c2", "robust/other", 1, 4),
]


def test_one_leader_at_a_time() -> None:
    assert found(*TERMS) == []
    assert found(*TERMS, Commit(24, "core/pods/robust/p", "", "kube-system/scheduler/0/m1_x")) == ["terms"]
    assert found(*TERMS, Commit(24, "core/pods/robust/p", "", "kube-system/unknown/0/m1_x")) == ["terms"]
    assert found(*TERMS, Leading("c3", "robust/l", 5.9, 7)) == ["leaders"]


def test_addresses() -> None:
    records: list[Record] = [
        Commit(30, SERVICE + "a", "10.96.0.7"),
        Commit(31, SERVICE + "b", "10.96.0.8,fd00::8"),
        Commit(32, SERVICE + "h", "None"),
        Commit(33, SERVICE + "i", "None"),
        Commit(34, SERVICE + "a", "10.96.0.7"),
        Commit(35, SERVICE + "a", None),
        Commit(36, SERVICE + "c", "10.96.0.7"),
    ]
    assert found(*records) == []
    assert found(*records, Commit(37, SERVICE + "d", "fd00::8")) == ["addresses"]
    assert found(*without(records, 5)) == ["addresses"]


@pytest.mark.parametrize(("pods", "available"), [(2, 2), (4, 3), (3, 2)])
def test_deployments_end_with_the_wanted_pods(pods: int, available: int) -> None:
    assert found(Converged("d", 3, 3, 3)) == []
    assert found(Converged("d", 3, pods, available)) == ["convergence"]


def test_file(tmp_path: Path) -> None:
    """A history is read from its file as it was written."""
    path = tmp_path / "history"
    records = [*LOG, *CALLS, *WATCH, *TERMS, FaultRecord("kill", "m1", 1, 2, 3), Converged("d", 1, 1, 1)]
    with path.open("w") as file:
        for record in records:
            History(file=file).add(record)
    again = read(path)
    for kind in (Call, Commit, Frame, WatchStart, Leading, LastWrite, FaultRecord, Converged):
        assert again.of(kind) == [each for each in records if isinstance(each, kind)]
