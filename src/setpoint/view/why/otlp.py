"""Renders an `Answer` as a trace in the JSON form of OTLP, for OpenTelemetry collectors.

Every write of the chain is a span of the API server, and every reconcile that made one is its parent, with links to the
writes that triggered it. Identifiers are derived from the cluster and the record, so that a repeated export yields the
same spans.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from setpoint.view.why.answer import Answer, Step

_INTERNAL, _SERVER = 1, 2
_SERVICE = "kube-apiserver"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}", re.ASCII)


@dataclass(slots=True)
class _Run:
    """A reconcile that made one or more writes of the chain."""

    controller: str
    reconciled: str
    besides: str
    begin: int
    end: int
    links: list[dict[str, Any]] = field(default_factory=list)


def otlp(answer: Answer) -> dict[str, Any]:
    """Return the chain as an `ExportTraceServiceRequest`; without spans if the answer has no chain.

    The trace is that of the client at the origin if it sent a `traceparent`."""
    if not answer.chain:
        return {"resourceSpans": []}
    origin = _parsed(answer.chain[-1].trace)
    trace = origin[0] if origin else _hash(f"trace/{answer.cluster}/{answer.chain[-1].revision}", 16)
    spans: dict[str, list[dict[str, Any]]] = {_SERVICE: []}
    runs: dict[str, _Run] = {}
    seen: set[int] = set()
    for place, step in enumerate(answer.chain):
        following = answer.chain[place + 1] if place + 1 < len(answer.chain) else None
        triggers = [following, *following.others] if following is not None else []
        links = [_link(trace, _write_id(answer, each), _relation(step, each)) for each in triggers]
        if step.run:
            _note(runs, step, triggers).links += links
            links = []
        spans[_SERVICE].append(_write(answer, trace, step, links))
        seen.add(step.revision)
    for step in (other for each in answer.chain for other in each.others):
        if step.revision not in seen:
            seen.add(step.revision)
            if step.run:
                _note(runs, step, [])
            spans[_SERVICE].append(_write(answer, trace, step, []))
    for name, run in runs.items():
        spans.setdefault(run.controller, []).append(_reconcile(answer, trace, name, run))
    return {"resourceSpans": [_resource(answer, service, found) for service, found in spans.items()]}


def _note(runs: dict[str, _Run], step: Step, triggers: list[Step]) -> _Run:
    """Return the reconcile of a step. It begins when the newest of its known triggers was written."""
    begin = max((each.at for each in triggers if each.at <= step.at), default=step.at)
    run = runs.get(step.run)
    if run is None:
        controller = step.run.rpartition("/")[0] or step.run
        run = runs[step.run] = _Run(controller, step.reconciled, step.besides, begin, step.at)
    run.begin, run.end = min(run.begin, begin), max(run.end, step.at)
    return run


def _write(answer: Answer, trace: str, step: Step, links: list[dict[str, Any]]) -> dict[str, Any]:
    hidden = step.kind == "hidden"
    attributes = {
        "setpoint.revision": step.revision,
        "setpoint.actor": step.actor,
        "setpoint.object": step.object,
        "k8s.namespace.name": step.namespace,
        "client.address": step.address,
        "setpoint.changes": step.changes,
        "setpoint.reason": step.reason,
        "setpoint.inferred": step.inferred,
        "setpoint.repeated": step.times if step.times > 1 else 0,
    }
    kind = step.object.partition("/")[0]
    span = _span(trace, _write_id(answer, step), "hidden" if hidden else f"{step.action} {kind}", step.at, step.at)
    span |= {"kind": _SERVER, "attributes": _attributes(attributes)}
    context = _parsed(step.trace)
    if step.run:
        span["parentSpanId"] = _run_id(answer, step.run)
    elif context and context[0] == trace:
        span["parentSpanId"] = context[1]
        context = None
    if context:
        links = [*links, _link(*context, "trace context of the request")]
    if annotated := _parsed(step.link):
        links = [*links, _link(*annotated, "trace context of the object")]
    return span | ({"links": links} if links else {})


def _reconcile(answer: Answer, trace: str, name: str, run: _Run) -> dict[str, Any]:
    attributes = {
        "setpoint.reconcile": name,
        "setpoint.object": run.reconciled,
        "setpoint.trigger": run.besides,
    }
    span = _span(trace, _run_id(answer, name), "reconcile", run.begin, run.end)
    span |= {"kind": _INTERNAL, "attributes": _attributes(attributes)}
    return span | ({"links": run.links} if run.links else {})


def _span(trace: str, span_id: str, name: str, begin: int, end: int) -> dict[str, Any]:
    times = {"startTimeUnixNano": str(begin * 1_000_000), "endTimeUnixNano": str(end * 1_000_000)}
    return {"traceId": trace, "spanId": span_id, "name": name, **times}


def _relation(step: Step, trigger: Step) -> str:
    if step.completes:
        return "deletion request"
    return "probable trigger" if trigger.inferred else "trigger"


def _link(trace: str, span_id: str, relation: str) -> dict[str, Any]:
    return {"traceId": trace, "spanId": span_id, "attributes": _attributes({"setpoint.relation": relation})}


def _resource(answer: Answer, service: str, spans: list[dict[str, Any]]) -> dict[str, Any]:
    attributes = {"service.name": service, "k8s.cluster.uid": answer.cluster}
    return {
        "resource": {"attributes": _attributes(attributes)},
        "scopeSpans": [{"scope": {"name": "setpoint.why"}, "spans": spans}],
    }


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the attributes that are not empty. Integers are strings in the JSON form of OTLP."""
    return [{"key": name, "value": _value(value)} for name, value in values.items() if value]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": str(value)}


def _parsed(traceparent: str) -> tuple[str, str] | None:
    """Return the trace and span of a `traceparent`; None if it is not valid."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return found[1], found[2]


def _write_id(answer: Answer, step: Step) -> str:
    return _hash(f"write/{answer.cluster}/{step.revision}", 8)


def _run_id(answer: Answer, name: str) -> str:
    return _hash(f"reconcile/{answer.cluster}/{name}", 8)


def _hash(text: str, size: int) -> str:
    return sha256(text.encode()).hexdigest()[: 2 * size]
