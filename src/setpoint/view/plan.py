"""The prediction of a change (`setpoint plan`, what-if): its values, as JSON and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from setpoint.view.changes import FieldChange, path_text, summary
from setpoint.view.fault_report import FaultReport, time_text

_MAX_EVENTS, _MAX_SHOWN_EVENTS = 60, 500
_MERGED_SECONDS = 1.0
_FOLLOWING = ("Endpoints", "EndpointSlice")
"""Kinds that follow from others: the report counts them, and does not list them."""
LIMITS = (
    "Nodes and containers are simulated: programs start and answer as well-behaved ones do, and latencies are assumed.",
    "Custom controllers, autoscalers outside of the cluster, admission webhooks and aggregated APIs are not simulated.",
    "Names and nodes of new Pods are examples. What CronJobs start meanwhile is left out.",
)


class Unfinished(NamedTuple):
    """An object that is not as its spec asks for."""

    kind: str
    namespace: str
    name: str
    problem: str
    """The difference, with the reason if the object has one."""
    node: str = ""
    """The node that the object is, or is on; empty if it does not belong to one."""
    owner: str = ""
    """The controlling owner as `Kind/name`; empty if there is none."""


class ObjectChange(NamedTuple):
    """The difference of one object between the beginning and the end."""

    action: str
    """`created`, `changed` or `deleted`."""
    kind: str
    namespace: str
    name: str
    owner: str
    """The controlling owner as `Kind/name`; empty if there is none."""
    fields: Sequence[FieldChange]
    """The changed fields; of a created or deleted object, none."""


class PlannedEvent(NamedTuple):
    """A write, described for people."""

    at: float
    """Seconds after the change."""
    actor: str
    action: str
    kind: str
    namespace: str
    name: str
    owner: str
    text: str
    """The changed fields, in short; empty for a creation or deletion."""


class Interruption(NamedTuple):
    """A time in which a Service had no ready endpoints, or a disruption budget was violated."""

    kind: str
    namespace: str
    name: str
    since: float
    """Seconds after the change."""
    seconds: float | None
    """The duration; None if it does not end."""


class EndpointDip(NamedTuple):
    """A time in which a Service had fewer ready endpoints than at the beginning."""

    namespace: str
    name: str
    usual: int
    """The number of ready endpoints at the beginning."""
    least: int
    since: float
    """Seconds after the change."""
    until: float | None
    """When there were as many again; None if that did not happen."""


class MovedPod(NamedTuple):
    """A Pod that another one of the same owner replaces."""

    namespace: str
    owner: str
    """The controlling owner as `Kind/name`."""
    before: str
    after: str
    from_node: str
    to_node: str
    """Its node; empty if it has none."""


class ComparedRow(NamedTuple):
    """One line of the comparison of two states."""

    kind: str
    namespace: str
    name: str
    """The object; empty for a line about all objects of the kind."""
    now: str
    then: str
    note: str
    """A remark on the way from one to the other; often empty."""


@dataclass(slots=True)
class PlanResult:
    """The outcome of a simulation."""

    settled: bool = True
    """Whether the loops were quiet at the end."""
    seconds: float = 0.0
    """The virtual time from the change to the last write."""
    refused: list[str] = field(default_factory=list)
    """The error messages of changes that were refused."""
    changes: list[ObjectChange] = field(default_factory=list)
    events: list[PlannedEvent] = field(default_factory=list)
    interruptions: list[Interruption] = field(default_factory=list)
    problems: list[Unfinished] = field(default_factory=list)
    """The objects that are not as desired at the end, and were before the change."""
    expected: list[Unfinished] = field(default_factory=list)
    """The objects that are not as desired because they are on a node that the change stops."""
    earlier: list[Unfinished] = field(default_factory=list)
    """The objects that are not as desired at the end, and were not before the change either, if perhaps otherwise."""
    first_look: list[PlannedEvent] = field(default_factory=list)
    """The writes of the loops before the change was made: the cluster was not at rest, or its loops differ."""
    dips: list[EndpointDip] = field(default_factory=list)
    moved: list[MovedPod] = field(default_factory=list)
    compared: list[ComparedRow] = field(default_factory=list)
    """The states at the beginning and at the end, side by side: all Pods, and other objects that differ."""
    passed: float = 0.0
    """The virtual time from the change to the end of the simulation, in seconds."""
    left_out: list[str] = field(default_factory=list)
    """Descriptions of missing content of the copy, one sentence each."""
    faults: FaultReport | None = None
    """The effects of the faults that were injected; None if there were none."""

    @property
    def converges(self) -> bool:
        return self.settled and not (self.refused or self.problems or self.diverges)

    @property
    def diverges(self) -> bool:
        """Whether it ends otherwise than without the faults that were injected."""
        return self.faults is not None and bool(self.faults.differences)

    @property
    def predicts(self) -> bool:
        """Whether the simulation says something about the change, because some of it was accepted."""
        return bool(self.changes) or not self.refused

    @property
    def exit_code(self) -> int:
        """0: nothing would change; 2: something would; 1: it would not converge, or was refused."""
        if not self.converges:
            return 1
        return 2 if self.changes else 0


def as_json(result: PlanResult) -> dict[str, Any]:
    """Return the result as plain values."""

    def changed(each: ObjectChange) -> dict[str, Any]:
        fields = [{"path": path_text(one.path), "old": _plain(one.old), "new": _plain(one.new)} for one in each.fields]
        return {**each._asdict(), "fields": fields}

    return {
        "settled": result.settled,
        "converges": result.converges,
        "seconds": round(result.seconds, 3),
        "refused": result.refused,
        "changes": [changed(each) for each in result.changes],
        "events": [each._asdict() for each in result.events],
        "interruptions": [each._asdict() for each in result.interruptions],
        "problems": [each._asdict() for each in result.problems],
        "expected": [each._asdict() for each in result.expected],
        "earlier": [each._asdict() for each in result.earlier],
        "firstLook": [each._asdict() for each in result.first_look],
        "dips": [each._asdict() for each in result.dips],
        "moved": [each._asdict() for each in result.moved],
        "compared": [each._asdict() for each in result.compared],
        "passed": round(result.passed, 3),
        "leftOut": result.left_out,
        "faults": None if result.faults is None else result.faults.to_json(),
    }


def report(result: PlanResult, namespace: str) -> dict[str, Any]:
    """Return the parts of the report as text, for a page."""
    events = event_lines(result.events, namespace)
    return {
        "verdict": _verdict(result),
        "changes": _changes(result, namespace),
        "events": [{"at": at, "after": time_text(at), "text": line} for at, line in events[:_MAX_SHOWN_EVENTS]],
        "moreEvents": max(0, len(events) - _MAX_SHOWN_EVENTS),
        "sections": [{"title": title.rstrip(":"), "lines": lines} for title, lines in _sections(result, namespace)],
        "limits": _limits(result),
    }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float, bool, list, dict)) else None


# -- text -------------------------------------------------------------------------------------------------------------


def text_report(result: PlanResult, namespace: str, *, every_event: bool = False) -> list[str]:
    """Return the lines for a terminal."""
    lines = [_verdict(result), ""]
    if result.refused:
        lines += ["Refused:", *(f"  {each}" for each in result.refused), ""]
    if result.changes:
        lines += ["What would differ at the end:", *(f"  {each}" for each in _changes(result, namespace)), ""]
    if result.events:
        every = event_lines(result.events, namespace, every_event)
        events = every if every_event else every[:_MAX_EVENTS]
        lines += ["What would happen:", *(f"  {time_text(at):>9}  {line}" for at, line in events)]
        if len(events) < len(every):
            lines.append(f"  ... and {len(every) - len(events)} more; --all shows them")
        lines.append("")
    for title, found in _sections(result, namespace):
        lines += [title, *(f"  {each}" for each in found), ""]
    if limits := _limits(result):
        return [*lines, "Limits:", *(f"  {each}" for each in limits)]
    return lines[:-1]


def markdown_report(result: PlanResult, namespace: str, *, every_event: bool = False) -> list[str]:
    """Return the lines of a comment for a pull request."""
    lines = ["## Plan", "", _verdict(result), ""]
    if result.refused:
        lines += ["### Refused", "", *(f"- `{each}`" for each in result.refused), ""]
    if result.changes:
        lines += ["### What would differ at the end", "", "```diff"]
        lines += [*_changes(result, namespace, diff=True), "```", ""]
    if result.events:
        every = event_lines(result.events, namespace, every_event)
        events = every if every_event else every[:_MAX_EVENTS]
        lines += ["<details><summary>What would happen</summary>", "", "| after | what |", "|---|---|"]
        lines += [f"| {time_text(at)} | {line.replace('|', '&#124;')} |" for at, line in events]
        if len(events) < len(every):
            lines.append(f"| | and {len(every) - len(events)} more |")
        lines += ["", "</details>", ""]
    for title, found in _sections(result, namespace):
        lines += [f"### {title.rstrip(':')}", "", *(f"- {each}" for each in found), ""]
    if limits := _limits(result):
        lines += ["<details><summary>Limits</summary>", "", *(f"- {each}" for each in limits), "", "</details>"]
    return lines


def _verdict(result: PlanResult) -> str:
    found, faults = _outcome(result), result.faults
    if faults is None or faults.differences is None:
        return found
    if faults.differences:
        return f"{found} It would end otherwise than without the faults."
    return f"{found} It would end as without the faults, which takes {time_text(faults.seconds_without)[1:]}."


def _outcome(result: PlanResult) -> str:
    if result.refused:
        return "A part of the change would be refused." if result.predicts else "The change would be refused."
    if not result.changes and result.converges:
        return "Nothing would change."
    counts = Counter(each.action for each in result.changes)
    what = ", ".join(f"{count} {action}" for action, count in sorted(counts.items())) or "nothing changed"
    if not result.settled:
        return f"The cluster would not settle within {time_text(result.seconds)[1:]}: {what} so far."
    if result.problems:
        return f"The cluster would not converge: {what}, and {len(result.problems)} not as desired at the end."
    ends = "settle" if result.diverges else "converge"
    return f"The cluster would {ends} in {time_text(result.seconds)[1:]}: {what}."


def _limits(result: PlanResult) -> list[str]:
    return [*LIMITS, *result.left_out] if result.predicts else []


def _sections(result: PlanResult, namespace: str) -> list[tuple[str, list[str]]]:
    # What was so before is no answer to a change that was not made.
    earlier = result.earlier if result.predicts else []
    faults = result.faults or FaultReport()
    found = [
        ("Faults:", [each.text for each in faults.faults]),
        ("At the end, compared with the same change without faults:", faults.differences or []),
        ("In between:", [_interruption(each, namespace) for each in result.interruptions]),
        ("Not reached at the end:", problem_lines(result.problems, namespace)),
        ("On stopped nodes, as the change asks for:", problem_lines(result.expected, namespace)),
        ("Not as desired before the change either:", problem_lines(earlier, namespace)),
        (
            "Changed by the loops before the change, because the cluster was not at rest:",
            [line for _, line in event_lines(result.first_look, namespace)[:_MAX_EVENTS]],
        ),
    ]
    return [(title, lines) for title, lines in found if lines]


def problem_lines(found: Sequence[Unfinished], namespace: str) -> list[str]:
    """Return a line for each object; objects of one owner with the same problem share a line."""
    alike = Counter((each.kind, each.namespace, each.owner, each.problem) for each in found)
    lines = []
    for each in found:
        count = alike.pop((each.kind, each.namespace, each.owner, each.problem), 0)
        if count > 1 and each.owner:
            kind, _, name = each.owner.partition("/")
            lines.append(f"{count} {each.kind}s of {_name(kind, each.namespace, name, namespace)}: {each.problem}")
        elif count == 1 or not each.owner:
            lines.append(f"{_name(*each[:3], namespace)} {each.problem}")
    return lines


def event_lines(events: Sequence[PlannedEvent], namespace: str, single: bool = False) -> list[tuple[float, str]]:
    """Return a time and a sentence for each event; what happens to several objects of one owner within a second is one
    sentence, unless `single` is set. Namespaces are named unless they are `namespace`."""
    if single:
        return [(event.at, _event_line(event, 1, namespace)) for event in events]
    found: list[tuple[PlannedEvent, int]] = []
    places: dict[PlannedEvent, int] = {}
    for event in events:
        alike = event._replace(name="", at=0.0)
        place = places.get(alike, -1)
        if event.owner and place >= 0 and event.at - found[place][0].at <= _MERGED_SECONDS:
            found[place] = (found[place][0], found[place][1] + 1)
        else:
            places[alike] = len(found)
            found.append((event, 1))
    return [(event.at, _event_line(event, count, namespace)) for event, count in found]


def _changes(result: PlanResult, namespace: str, *, diff: bool = False) -> list[str]:
    """Return a line for each object; created and deleted objects of one owner share a line."""
    owned: Counter[tuple[str, str, str, str]] = Counter(
        (each.action, each.kind, each.namespace, each.owner) for each in result.changes if _is_counted(each)
    )
    lines = []
    for each in result.changes:
        if each.kind in _FOLLOWING:
            continue
        mark = {"created": "+", "deleted": "-", "changed": "!" if diff else "~"}.get(each.action, "±")
        if _is_counted(each):
            count = owned.pop((each.action, each.kind, each.namespace, each.owner), 0)
            if count:
                kind, _, name = each.owner.partition("/")
                plural = each.kind if count == 1 else f"{each.kind}s"
                lines.append(f"{mark} {count} {plural} of {_name(kind, each.namespace, name, namespace)}")
            continue
        if each.action == "replaced":
            lines.append(f"{mark} {_name(each.kind, each.namespace, each.name, namespace)}  replaced by another one")
            continue
        desired = [field for field in each.fields if field.path[0] != "status"]
        text = summary(desired or each.fields)
        lines.append(f"{mark} {_name(each.kind, each.namespace, each.name, namespace)}{f'  {text}' if text else ''}")
    return lines


def _is_counted(change: ObjectChange) -> bool:
    return bool(change.owner) and change.kind == "Pod" and change.action in ("created", "deleted")


def _event_line(event: PlannedEvent, count: int, namespace: str) -> str:
    what = _name(event.kind, event.namespace, event.name, namespace)
    if count > 1:
        kind, _, name = event.owner.partition("/")
        what = f"{count} {event.kind}s of {_name(kind, event.namespace, name, namespace)}"
    if event.kind == "Pod" and event.text:
        return f"{event.actor}: {what} {'is' if count == 1 else 'are'} {event.text}"
    return f"{event.actor} {event.action} {what}{f': {event.text}' if event.text else ''}"


def _interruption(each: Interruption, namespace: str) -> str:
    what = "had no ready endpoints" if each.kind == "Service" else "was violated"
    lasting = "until the end" if each.seconds is None else f"for {time_text(each.seconds)[1:]}"
    return f"{_name(each.kind, each.namespace, each.name, namespace)} {what} {lasting}, from {time_text(each.since)} on"


def _name(kind: str, namespace: str, name: str, own: str) -> str:
    shown = f"{kind.lower()}/{name}"
    return shown if not namespace or namespace == own else f"{shown} -n {namespace}"
