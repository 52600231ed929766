"""What is to go wrong, and when: as a value, and as a short text by which it can be told and done again.

    Plan.parse("stale:2+crash-after:3")

A fault is `kind:n`, where n counts the component's writes (Leases and Events aside) or the events of its watches,
whichever the kind is about. `/30s` says how long it lasts where that matters, `@node-2` which node is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from setpoint.meta.times import TimeError, format_duration, parse_duration


class BadPlan(ValueError):
    """A text that is no plan."""


class FaultKind(NamedTuple):
    at: str
    """What n counts: `write`, `event`, or `seed`."""
    tells: str
    """For people, with {n} and {time}."""
    lasting: float = 0.0
    """Seconds; 0: it takes no time."""
    node: str = ""
    """Which one, where it is about a node."""
    parts: int = 1
    """How many things go wrong at once."""


KINDS: dict[str, FaultKind] = {
    "error": FaultKind("write", "write {n} is answered with 500 and does not happen"),
    "conflict": FaultKind("write", "somebody else changes the object just before write {n}, which is answered 409"),
    "crash-before": FaultKind("write", "it dies just before write {n}, and is started again {time} later", 1.0),
    "crash-after": FaultKind(
        "write", "it dies when write {n} has happened, before it knows, and is started again {time} later", 1.0
    ),
    "lost-answer": FaultKind("write", "write {n} happens, and the connection breaks before the answer comes"),
    "timeout": FaultKind("write", "write {n} does not happen, and fails only after {time}", 10.0),
    "too-many": FaultKind("write", "write {n} is answered with 429 and does not happen"),
    "stale": FaultKind("write", "from write {n} on it hears nothing new for {time}, though its writes happen", 10.0),
    "rewind": FaultKind(
        "write",
        "it dies when write {n} has happened; started again {time} later, it sees all as it was at the beginning, and "
        "only 5s later hears what happened since",
        1.0,
        parts=2,
    ),
    "partition": FaultKind("write", "at write {n} the node {node} is cut off for {time}", 120.0, "node-1"),
    "duplicate": FaultKind("event", "event {n} comes twice"),
    "drop-watch": FaultKind("event", "the watch breaks off before event {n}, and goes on from where it was"),
    "expire-watch": FaultKind("event", "the watch expires before event {n}: it has to list again"),
    "delay-watch": FaultKind("event", "event {n}, and what follows it in the same watch, comes {time} late", 5.0),
    "down": FaultKind("event", "it dies just before event {n}, and is started again {time} later", 1.0),
    "noise": FaultKind("seed", "for {time} everything goes wrong that may, by chance with seed {n}", 60.0),
}  # fmt: skip
"""The simplest first."""

_FAULT = re.compile(
    r"(?P<kind>[a-z-]+)(?::(?P<nth>[0-9]{1,9}))?(?:@(?P<node>[a-z0-9.-]{1,253}))?(?:/(?P<time>[0-9a-z.]{1,20}))?"
)
_MOST_FAULTS = 20
_LONGEST = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    nth: int
    """Which write or event, from 1; for noise, the seed."""
    lasting: float = -1.0
    """Seconds, whole milliseconds of them; what is usual for the kind where nothing is said."""
    node: str = ""

    def __post_init__(self) -> None:
        known = KINDS.get(self.kind)
        if known is None:
            raise BadPlan(f"there is no fault {self.kind!r}; there are {', '.join(KINDS)}")
        if self.nth < (known.at != "seed"):
            raise BadPlan(f"{self.kind}:{self.nth}: {known.at}s are counted from 1")
        if self.lasting < 0:
            object.__setattr__(self, "lasting", known.lasting)
        elif self.lasting and not known.lasting:
            raise BadPlan(f"{self.kind} takes no time")
        elif self.lasting > _LONGEST or round(self.lasting, 3) != self.lasting:
            raise BadPlan(f"{self.kind} may last for up to a day, in whole milliseconds")
        if not self.node:
            object.__setattr__(self, "node", known.node)
        elif not known.node:
            raise BadPlan(f"{self.kind} is not about a node")

    @property
    def at(self) -> str:
        return KINDS[self.kind].at

    @property
    def tells(self) -> str:
        return KINDS[self.kind].tells.format(n=self.nth, time=_duration(self.lasting), node=self.node)

    def __str__(self) -> str:
        known = KINDS[self.kind]
        node = f"@{self.node}" if self.node != known.node else ""
        time = f"/{_duration(self.lasting)}" if self.lasting != known.lasting else ""
        return f"{self.kind}:{self.nth}{node}{time}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Faults that belong together. An empty one is peace."""

    faults: tuple[Fault, ...] = ()

    @classmethod
    def parse(cls, text: str | Plan) -> Plan:
        """Raises BadPlan."""
        if isinstance(text, Plan):
            return text
        faults = []
        for one, nth in _read(text):
            if nth is None:
                raise BadPlan(f"{text!r}: {one.kind} says not when: {one.kind}:1")
            faults.append(replace(one, nth=nth))
        return cls(tuple(faults))

    @classmethod
    def template(cls, text: str) -> Plan:
        """A plan without its points: `crash-after`, `stale+crash-after`, `down/1m`. Raises BadPlan."""
        faults = []
        for one, nth in _read(text):
            if nth is not None:
                raise BadPlan(f"{text!r}: which faults to try is said without a number; `only` takes a whole plan")
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
        return "+".join(map(str, self.faults)) or "peace"


def _read(text: str) -> list[tuple[Fault, int | None]]:
    if text == "peace":
        return []
    parts = text.split("+", _MOST_FAULTS)
    if len(parts) > _MOST_FAULTS:
        raise BadPlan(f"a plan has at most {_MOST_FAULTS} faults")
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
    """`1m`, where Go says `1m0s`."""
    text = format_duration(round(seconds * 1000) * 10**6)
    if text.endswith("m0s"):
        text = text[:-2]
    return text[:-2] if text.endswith("h0m") else text
