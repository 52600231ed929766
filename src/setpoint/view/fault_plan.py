"""A fault plan: which faults to inject between a component and the API server, and when.

    Plan.parse("stale:2+crash-after:3")

It is a value, and a short text that reproduces it. A fault is `kind:n`, where n counts the component's writes or its
watch events, depending on the kind; those of Leases and Events are not counted. `/30s` sets the duration for kinds that
have one, `@node-2` the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from setpoint.meta.times import TimeError, format_duration, parse_duration


class BadPlan(ValueError):
    """A text that is not a valid plan."""


class PlannedFaultKind(NamedTuple):
    """A kind of fault that plans can have."""

    title: str
    """A short name for menus."""
    at: str
    """The unit of n: `write`, `event`, or `seed`."""
    description: str
    """A description with the placeholders {n}, {time} and {node}."""
    lasting: float = 0.0
    """The default duration in seconds; 0 means that the fault has no duration."""
    node: str = ""
    """The default node; empty if the fault does not concern a node."""
    parts: int = 1
    """The number of separate failures that the fault combines."""
    two_servers: bool = False
    """Whether it needs a cluster with two API servers."""

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, "at": self.at, "seconds": self.lasting, "node": bool(self.node)}


KINDS: dict[str, PlannedFaultKind] = {
    "error": PlannedFaultKind("Fail a write with 500", "write", "write {n} is answered with 500 and not executed"),
    "conflict": PlannedFaultKind(
        "Conflict with another client (409)",
        "write",
        "another client changes the object before write {n}, which is answered with 409",
    ),
    "crash-before": PlannedFaultKind(
        "Crash before a write", "write", "it crashes just before write {n} and restarts {time} later", 1.0
    ),
    "crash-after": PlannedFaultKind(
        "Crash after a write",
        "write",
        "it crashes after write {n}, before it receives the answer, and restarts {time} later",
        1.0,
    ),
    "lost-answer": PlannedFaultKind(
        "Lose the answer to a write", "write", "write {n} is executed, and the connection is lost before the answer"
    ),
    "timeout": PlannedFaultKind(
        "Let a write time out", "write", "write {n} is not executed, and fails only after {time}", 10.0
    ),
    "too-many": PlannedFaultKind("Refuse a write with 429", "write", "write {n} is answered with 429 and not executed"),
    "stale": PlannedFaultKind(
        "Stale reads", "write", "from write {n} on it sees no changes for {time}, while it can write", 10.0
    ),
    "rewind": PlannedFaultKind(
        "Crash, and restart with old state",
        "write",
        "it crashes after write {n}; restarted {time} later, it reads the state of the beginning, and receives the "
        "changes since then only 5s later",
        1.0,
        parts=2,
    ),
    "lag": PlannedFaultKind(
        "Lag of the second API server",
        "write",
        "from write {n} on the second API server sees no commits for {time}, and answers late",
        5.0,
        two_servers=True,
    ),
    "partition": PlannedFaultKind(
        "Cut a node off", "write", "at write {n} the node {node} is partitioned for {time}", 120.0, "node-1"
    ),
    "duplicate": PlannedFaultKind("Deliver a watch event twice", "event", "event {n} is delivered twice"),
    "drop-watch": PlannedFaultKind("Drop a watch", "event", "the watch is closed before event {n}, and resumes there"),
    "expire-watch": PlannedFaultKind(
        "Expire a watch", "event", "the watch expires before event {n}, which requires a new list"
    ),
    "delay-watch": PlannedFaultKind(
        "Delay a watch", "event", "event {n} and the next events of the same watch are delayed by {time}", 5.0
    ),
    "down": PlannedFaultKind(
        "Crash before a watch event", "event", "it crashes just before event {n} and restarts {time} later", 1.0
    ),
    "noise": PlannedFaultKind(
        "Random faults", "seed", "for {time} faults of all kinds occur at random, with seed {n}", 60.0
    ),
}
"""All kinds of faults by name, the simplest first."""
COMPONENTS: Final = ("controllers", "scheduler", "nodes")
"""The components of a copy that can have faults."""


def possible_in_copies() -> list[dict[str, Any]]:
    """Return the kinds of faults that components of a copy can have, as plain values."""
    return [{"id": name, **kind.to_json()} for name, kind in KINDS.items() if not kind.two_servers]


_FAULT = re.compile(
    r"(?P<kind>[a-z-]+)(?::(?P<nth>[0-9]{1,9}))?(?:@(?P<node>[a-z0-9.-]{1,253}))?(?:/(?P<time>[0-9a-z.]{1,20}))?"
)
NO_FAULTS: Final = "none"
"""The text of the empty plan."""
_MAX_FAULTS, _MAX_TEXT = 20, 1000
_MAX_DURATION = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    nth: int
    """The number of the write or event, from 1; for noise, the seed."""
    lasting: float = -1.0
    """The duration in seconds, in whole milliseconds; a negative value means the default of the kind."""
    node: str = ""

    def __post_init__(self) -> None:
        known = KINDS.get(self.kind)
        if known is None:
            raise BadPlan(f"unknown fault {self.kind!r}; the kinds are {', '.join(KINDS)}")
        if self.nth < (known.at != "seed"):
            raise BadPlan(f"{self.kind}:{self.nth}: {known.at}s are counted from 1")
        if self.lasting < 0:
            object.__setattr__(self, "lasting", known.lasting)
        elif self.lasting and not known.lasting:
            raise BadPlan(f"{self.kind} has no duration")
        elif self.lasting > _MAX_DURATION or round(self.lasting, 3) != self.lasting:
            raise BadPlan(f"{self.kind} may last at most one day, in whole milliseconds")
        if not self.node:
            object.__setattr__(self, "node", known.node)
        elif not known.node:
            raise BadPlan(f"{self.kind} does not concern a node")

    @property
    def at(self) -> str:
        return KINDS[self.kind].at

    @property
    def description(self) -> str:
        return KINDS[self.kind].description.format(n=self.nth, time=_duration(self.lasting), node=self.node)

    def __str__(self) -> str:
        known = KINDS[self.kind]
        node = f"@{self.node}" if self.node != known.node else ""
        time = f"/{_duration(self.lasting)}" if self.lasting != known.lasting else ""
        return f"{self.kind}:{self.nth}{node}{time}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Faults that are injected in one run; an empty plan injects none."""

    faults: tuple[Fault, ...] = ()

    @classmethod
    def parse(cls, text: str | Plan) -> Plan:
        """Parse a plan such as `stale:2+crash-after:3`. Raise BadPlan if it is invalid."""
        if isinstance(text, Plan):
            return text
        faults = []
        for one, nth in _read(text):
            if nth is None:
                raise BadPlan(f"{text!r}: {one.kind} needs a number, such as {one.kind}:1")
            faults.append(replace(one, nth=nth))
        return cls(tuple(faults))

    @classmethod
    def template(cls, text: str) -> Plan:
        """Parse a plan without points: `crash-after`, `stale+crash-after`, `down/1m`. Raise BadPlan if it is
        invalid."""
        faults = []
        for one, nth in _read(text):
            if nth is not None:
                raise BadPlan(f"{text!r}: the faults to try are given without a number; `only` takes a whole plan")
            if one.at == "seed":
                raise BadPlan(f"{text!r}: {one.kind} happens all the time; try it with `only`")
            faults.append(one)
        if len({one.at for one in faults}) != 1:
            raise BadPlan(f"{text!r}: faults that are tried together are all about writes, or all about events")
        return cls(tuple(faults))

    def at_point(self, nth: int) -> Plan:
        return Plan(tuple(replace(one, nth=nth) for one in self.faults))

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.faults)

    def __len__(self) -> int:
        return len(self.faults)

    def __str__(self) -> str:
        return "+".join(map(str, self.faults)) or NO_FAULTS


def plans_of_components(found: Mapping[str, Any]) -> dict[str, Plan]:
    """Return the plans for the components of a copy from their texts: `{"controllers": "drop-watch:1"}`. Raise BadPlan
    if one is invalid, or if a copy cannot have its faults."""
    plans = {}
    for component, text in found.items():
        if component not in COMPONENTS:
            raise BadPlan(f"faults are those of {', '.join(COMPONENTS)}, not of {component[:63]!r}")
        if not isinstance(text, str) or len(text) > _MAX_TEXT:
            raise BadPlan(f"the faults of {component} must be a text of at most {_MAX_TEXT} characters")
        plan = Plan.parse(text)
        for fault in plan:
            if KINDS[fault.kind].two_servers:
                raise BadPlan(f"{fault.kind} needs a second API server, and the copy has one")
        if plan:
            plans[component] = plan
    return plans


def _read(text: str) -> list[tuple[Fault, int | None]]:
    if text == NO_FAULTS:
        return []
    parts = text.split("+", _MAX_FAULTS)
    if len(parts) > _MAX_FAULTS:
        raise BadPlan(f"a plan has at most {_MAX_FAULTS} faults")
    found = []
    for part in parts:
        match = _FAULT.fullmatch(part.strip())
        if match is None:
            raise BadPlan(f"{part!r} is no fault: they look like crash-after:3, down:2/30s, partition:1@node-2")
        nth = None if match["nth"] is None else int(match["nth"])
        found.append(
            (Fault(match["kind"], 1 if nth is None else nth, _seconds(match["time"]), match["node"] or ""), nth)
        )
    return found


def _seconds(text: str | None) -> float:
    if text is None:
        return -1.0
    try:
        return parse_duration(text) / 1e9
    except TimeError as error:
        raise BadPlan(str(error)) from None


def _duration(seconds: float) -> str:
    """Format seconds as `1m`, where Go formats `1m0s`."""
    text = format_duration(round(seconds * 1000) * 10**6)
    if text.endswith("m0s"):
        text = text[:-2]
    return text[:-2] if text.endswith("h0m") else text
