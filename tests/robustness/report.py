"""What a run prints: its timeline, the longest pauses for each kind of fault, and violations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.robustness.history import (
    OK,
    REFUSED,
    UNKNOWN,
    Call,
    Commit,
    FaultRecord,
    Frame,
    History,
    Violation,
    WatchStart,
)

_ANSWERS = (400, 404, 409)
"""Refusals that come from the stored state: the write path worked."""
_MOST_VIOLATIONS = 20
_AFTERWARDS = 1.0
"""Seconds after the recovery that still count as a part of the fault."""
_LEASE_DURATION = 15.0
_TAKES_LEADERS = ("controller-manager", "scheduler", "machine", "link", "drop")
"""Parts of the names of faults after which another process may have to take over a Lease."""
_KINDS = ("writers", "readers", "controllers")

AIMS: dict[str, tuple[str, int]] = {
    "etcd-leader": ("writers", 3000),
    "apiserver": ("writers", 1000),
    "machine": ("writers", 3000),
    "etcd-leader-machine": ("writers", 3000),
    "controller-manager": ("controllers", 17000),
    "scheduler": ("controllers", 17000),
}
"""Aims in milliseconds by what is hit: who must not wait longer."""


class Pauses(NamedTuple):
    """The longest times in milliseconds that some client waited for success; None means that there was no call."""

    writers: int | None
    readers: int | None
    controllers: int | None
    """The longest time that a change of a Deployment took."""


def pauses(history: History) -> dict[FaultRecord, Pauses]:
    """Return the longest pauses of each fault. A client waits from the begin of a call to the end of the first one that
    succeeds. Of the faults that a wait overlaps, it belongs to the one that was injected nearest to its begin."""
    faults = history.of(FaultRecord)
    found: dict[FaultRecord, dict[str, int]] = {fault: {} for fault in faults}
    for kind, begin, end in _waits(history):
        overlapping = [
            fault for fault in faults if fault.injected < end and begin < fault.recovered + _aftermath(fault, kind)
        ]
        if overlapping:
            longest = found[min(overlapping, key=lambda each: abs(each.injected - begin))]
            longest[kind] = max(longest.get(kind, 0), round(1000 * (end - begin)))
    return {fault: Pauses(*map(longest.get, _KINDS)) for fault, longest in found.items()}


def _waits(history: History) -> Iterator[tuple[str, float, float]]:
    """Yield the kind, begin and end of all waits of clients."""
    waiting: dict[tuple[str, str, str], float] = {}
    for call in sorted(history.of(Call), key=lambda each: each.invoked):
        kind = "controllers" if call.verb == "converge" else "readers" if call.verb in ("get", "list") else "writers"
        who = (kind, call.client, call.key if kind == "controllers" else "")
        begin = waiting.setdefault(who, call.invoked)
        if call.outcome == OK or (call.outcome == REFUSED and call.code in _ANSWERS):
            del waiting[who]
            yield kind, begin, call.answered


def _aftermath(fault: FaultRecord, kind: str) -> float:
    """Return for how many seconds after the recovery a wait that begins is a consequence of the fault."""
    lost_leader = kind == "controllers" and any(each in fault.name for each in _TAKES_LEADERS)
    return _LEASE_DURATION if lost_leader else _AFTERWARDS


def timeline(history: History, started: float) -> Iterator[str]:
    yield f"{'at s':>7} {'lasted s':>8} {'ready s':>8} {'writers ms':>10} {'readers ms':>10} {'control ms':>10}  fault"
    for fault, longest in pauses(history).items():
        times = [fault.injected - started, fault.healed - fault.injected, fault.recovered - fault.healed]
        yield f"{times[0]:7.1f} {times[1]:8.1f} {times[2]:8.1f} {_columns(longest)}  {fault.name} {fault.target}"


def longest_pauses(history: History) -> Iterator[str]:
    """Yield a table of the longest pauses for each kind of fault, with the aim where there is one."""
    by_name: dict[str, list[Pauses]] = defaultdict(list)
    for fault, found in pauses(history).items():
        by_name[fault.name].append(found)
    yield f"{'fault':26} {'times':>5} {'writers ms':>10} {'readers ms':>10} {'control ms':>10}  aim"
    for name, all_found in sorted(by_name.items()):
        columns = ([each for each in column if each is not None] for column in zip(*all_found))
        longest = Pauses(*(max(column, default=None) for column in columns))
        yield f"{name:26} {len(all_found):5} {_columns(longest)}  {_aim(name, longest)}"


def _columns(found: Pauses) -> str:
    return " ".join(f"{'-' if each is None else each:>10}" for each in found)


def _aim(name: str, longest: Pauses) -> str:
    action, _, target = name.partition("-")
    if action not in ("kill", "stop", "term") or target not in AIMS:
        return ""
    kind, limit = AIMS[target]
    found = longest._asdict()[kind]
    verdict = "" if found is None else ", met" if found <= limit else ", MISSED"
    return f"{kind} <= {limit}{verdict}"


def shown_violations(violations: Sequence[Violation]) -> Iterator[str]:
    for violation in violations[:_MOST_VIOLATIONS]:
        yield str(violation)
    if len(violations) > _MOST_VIOLATIONS:
        yield f"... and {len(violations) - _MOST_VIOLATIONS} more"


def show(history: History, started: float) -> None:
    """Print the timeline, the longest pauses and what was recorded."""
    for line in (*timeline(history, started), "", *longest_pauses(history), ""):
        say(line)
    calls, frames, watches = history.of(Call), history.of(Frame), history.of(WatchStart)
    outcomes = [f"{sum(each.outcome == outcome for each in calls)} {outcome}" for outcome in (OK, REFUSED, UNKNOWN)]
    relisted = sum(each.relisted for each in watches) - len({each.watch for each in watches})
    say(f"{len(calls)} calls: {', '.join(outcomes)}; {len(history.of(Commit))} changes in etcd's log")
    say(f"{len(frames)} frames of {len(watches)} watch connections, {relisted} of them after a new list")


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201
