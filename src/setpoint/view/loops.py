"""The control loops of a process as people see them: queues, reconciles, errors, modes; as values, JSON and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from setpoint.kinds.catalog import RESOURCES
from setpoint.meta.times import human_duration
from setpoint.view.why.controllers import RECONCILED_KINDS

LOOPS_PATH = "/setpoint/v1/loops"
"""The path that shows all loops, with keys and errors of all namespaces."""
_KEY_WIDTH = 60


class QueuedKey(NamedTuple):
    key: str
    changes: int
    """The number of changes that are coalesced into this one reconcile."""
    since: int
    """When it was queued, in milliseconds since the epoch."""


class WorkingKey(NamedTuple):
    key: str
    since: int
    """When its reconcile began, in milliseconds since the epoch."""


class DelayedKey(NamedTuple):
    key: str
    due: int
    """When it is queued, in milliseconds since the epoch."""
    failures: int
    error: str
    """The error of its last reconcile; empty if it did not fail."""


class WaitingPod(NamedTuple):
    """A Pod that fits nowhere, and that the scheduler tries again after an event that could help."""

    key: str
    attempts: int
    message: str
    gated: bool
    """Whether it is not tried because it has scheduling gates."""


class LoopRun(NamedTuple):
    """A reconcile of the recent past."""

    id: str
    key: str
    at: int
    """When it began, in milliseconds since the epoch."""
    took: float | None
    """Its duration in milliseconds; None while it runs."""
    triggers: Sequence[int]
    """The revisions that led to it, at most a few."""
    trigger_count: int
    """How many revisions there were, if more than are listed; else 0."""
    besides: str
    """A trigger that is not a revision; empty if there is none."""
    writes: int
    reason: str
    error: str


@dataclass(slots=True)
class LoopRow:
    """One control loop."""

    name: str
    component: str
    """The name of its Lease."""
    mode: str
    every: float = 0.0
    """Seconds between two reconciles in the mode `slow`."""
    depth: int = 0
    added: int = 0
    """Keys that were queued since the start."""
    done: int = 0
    failed: int = 0
    rate: float = 0.0
    """Reconciles per second of the last ten seconds."""
    p50: float = 0.0
    """The median duration of the latest reconciles, in milliseconds; likewise `p99`."""
    p99: float = 0.0
    delayed_count: int = 0
    queued: list[QueuedKey] = field(default_factory=list)
    working: list[WorkingKey] = field(default_factory=list)
    delayed: list[DelayedKey] = field(default_factory=list)
    waiting: list[WaitingPod] = field(default_factory=list)
    waiting_count: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "component": self.component,
            "mode": self.mode,
            "every": self.every,
            **_reconciled(self.name),
            "depth": self.depth,
            "added": self.added,
            "done": self.done,
            "failed": self.failed,
            "rate": self.rate,
            "p50": self.p50,
            "p99": self.p99,
            "queued": [each._asdict() for each in self.queued],
            "working": [each._asdict() for each in self.working],
            "delayed": [each._asdict() for each in self.delayed],
            "delayedCount": self.delayed_count,
            "waiting": [each._asdict() for each in self.waiting],
            "waitingCount": self.waiting_count,
        }


def _reconciled(loop: str) -> dict[str, Any]:
    """Return the kind and resource of the keys of a loop; empty texts if they are not known."""
    kind = RECONCILED_KINDS.get(loop, "")
    found = next((each for each in RESOURCES if each.kind == kind and each.is_stored), None)
    if found is None:
        return {"kind": "", "group": "", "version": "", "resource": ""}
    return {"kind": kind, "group": found.group, "version": found.version, "resource": found.plural}


# -- text -------------------------------------------------------------------------------------------------------------


def gate_sentence(gate: Mapping[str, Any], now: int) -> str:
    """Return what holds the loops back, in a few sentences; empty if nothing does. `now` is in milliseconds."""
    return " ".join(filter(None, (gate.get("note", ""), _held_sentence(gate, now))))


def cpu_limit_note(share: float) -> str:
    """Return the sentences for users whose loops have used all their CPU time. `share` is in cores."""
    return (
        f"The control loops have used all their CPU time, which is {share * 100:g} % of one core for all clusters of a "
        "seat, and rest now and then. They go on by themselves, and lose no change. If this does not end, loops may "
        "undo each other's work: see which reconcile most often."
    )


def _held_sentence(gate: Mapping[str, Any], now: int) -> str:
    if not gate["until"]:
        return ""
    stopped = gate["stopped"]
    parts = []
    if stopped is not None:
        parts.append(f"breakpoint {stopped['breakpoint']}: {stopped['loop']} would reconcile {stopped['key']} next")
    if gate["mode"] == "paused":
        parts.append("all loops are paused")
    elif gate["mode"] == "slow":
        parts.append(f"all loops together make one reconcile each {gate['every']:g} s")
    parts += [f"{each['name']} is {_mode(each)}" for each in gate["own"]]
    if stopped is None:
        parts += [f"breakpoint {each['number']} is set on {_breakpoint(each)}" for each in gate["breakpoints"]]
    first = ", ".join(parts)
    if not first.startswith(tuple(each["name"] for each in gate["own"])):
        first = first[:1].upper() + first[1:]
    by = f" ({gate['by']})" if gate["by"] else ""
    left = human_duration(max(0.0, (gate["until"] - now) / 1000))
    return f"{first}{by}. Unless this is renewed, all loops run again in {left}."


def _mode(loop: Mapping[str, Any]) -> str:
    return f"slow, one each {loop['every']:g} s" if loop["mode"] == "slow" else str(loop["mode"])


def _breakpoint(found: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (found["loop"], found["kind"], found["key"])))


def loop_rows(loops: Sequence[Mapping[str, Any]], now: int, *, every: bool = False) -> list[list[str]]:
    """Return the cells of a table, a header first. Loops that never did anything are left out unless `every` is set."""
    rows = [["LOOP", "MODE", "QUEUED", "WORKS ON", "WAITS", "DONE", "PER SECOND", "P99"]]
    for loop in loops:
        if not (every or loop["done"] or loop["depth"] or loop["delayedCount"] or loop["mode"] != "run"):
            continue
        rows.append(
            [
                loop["name"],
                _mode(loop),
                _queued(loop),
                _listed([each["key"] for each in loop["working"]], len(loop["working"])),
                _waits(loop, now),
                str(loop["done"]),
                f"{loop['rate']:.1f}",
                f"{loop['p99']:.1f} ms" if loop["done"] else "-",
            ]
        )
    return rows


def _queued(loop: Mapping[str, Any]) -> str:
    if not loop["depth"]:
        return "0"
    names = [f"{each['key']} x{each['changes']}" if each["changes"] > 1 else each["key"] for each in loop["queued"]]
    return f"{loop['depth']}: {_listed(names, loop['depth'])}"


def _waits(loop: Mapping[str, Any], now: int) -> str:
    names = []
    for each in loop["delayed"]:
        failures = f", {each['failures']} failures" if each["error"] else ""
        names.append(f"{each['key']} {human_duration(max(0.0, (each['due'] - now) / 1000))}{failures}")
    names += [f"{each['key']} {'has gates' if each['gated'] else 'fits nowhere'}" for each in loop["waiting"]]
    return _listed(names, loop["delayedCount"] + loop["waitingCount"])


def _listed(names: Sequence[str], count: int) -> str:
    """Return the first names, as many as fit, and how many more there are."""
    shown: list[str] = []
    for name in names:
        if shown and len(", ".join((*shown, name))) > _KEY_WIDTH:
            break
        shown.append(name)
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return f"{', '.join(shown)}{more}" if shown else "-" if not count else str(count)


def error_lines(loops: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each key whose last reconcile failed, and each Pod that fits nowhere."""
    lines = []
    for loop in loops:
        lines += [f"{loop['name']}: {each['key']}: {each['error']}" for each in loop["delayed"] if each["error"]]
        lines += [f"{loop['name']}: {each['key']}: {each['message']}" for each in loop["waiting"] if each["message"]]
    return lines
