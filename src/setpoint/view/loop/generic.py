"""The loop of a kind without an adapter, custom kinds included: by generations and conditions."""

from __future__ import annotations

from typing import Any

from setpoint.meta.conditions import conditions_of
from setpoint.meta.objects import ObjView
from setpoint.view.changes import short_value
from setpoint.view.loop.values import Drift, Gauge, Loop, Phase
from setpoint.view.why.controllers import CONTROLLERS

_MAX_FACTS = 6
_NEGATIVE = frozenset(
    {"Stalled", "Degraded", "Failed", "ReplicaFailure", "Terminating", "NamesNotAccepted", "NonStructuralSchema"}
)
"""Types of conditions that report a problem if they are True."""
_NEGATIVE_ENDINGS = ("Pressure", "Unavailable", "Failure", "Error", "Conflict")
_TRANSIENT = frozenset({"Reconciling", "Progressing"})
"""Types of conditions that report work in progress if they are True."""
_NOTHING_RECONCILES = frozenset({"ConfigMap", "Secret", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"})


def any_kind(kind: str, obj: ObjView) -> Loop:
    """Return the loop of an object of which nothing but the conventions of the API are known."""
    spec, status = obj.get("spec"), obj.get("status")
    if not isinstance(spec, dict) and not isinstance(status, dict):
        action = f"No controller acts on a {kind}." if kind in _NOTHING_RECONCILES else ""
        return Loop(_content(obj), [f"a {kind} has no status"], action=action)
    loop = Loop(_facts(spec), _observed(status))
    who = CONTROLLERS.get(kind, "its controller")
    behind = generation_drift(obj)
    if behind is not None:
        loop.drift.append(behind)
        loop.phase, loop.action = Phase.ACTING, f"{sentence_start(who)} has to observe it."
    elif not status and isinstance(spec, dict) and kind not in _NOTHING_RECONCILES and _expects_status(obj):
        loop.drift.append(Drift("no controller has reported a status"))
        loop.phase, loop.action = Phase.WAITING, f"{sentence_start(who)} has not acted yet, or none runs."
    bad = [each for each in conditions_of(obj) if reports_problem(each)]
    for each in bad:
        loop.drift.append(Drift(f"condition {each.get('type')} is {each.get('status')}{detail(each)}"))
    if bad and behind is None:
        working = any(each.get("type") in _TRANSIENT and each.get("status") == "True" for each in conditions_of(obj))
        loop.phase = Phase.ACTING if working else Phase.STUCK
        loop.action = f"{sentence_start(who)} {'is at work' if working else 'reports a problem'}{detail(bad[0])}."
    loop.gauge = _replicas(spec, status)
    if loop.gauge is not None and loop.gauge.observed != loop.gauge.desired and not loop.drift:
        loop.drift.append(Drift(f"{loop.gauge.observed} of {loop.gauge.desired} replicas are ready"))
        loop.phase, loop.action = Phase.ACTING, f"{sentence_start(who)} is at work."
    return loop


def sentence_start(text: str) -> str:
    """Return a text as the begin of a sentence. Names of controllers keep their first letter."""
    return text[:1].upper() + text[1:] if text.startswith("its ") else text


def generation_drift(obj: ObjView) -> Drift | None:
    """Return the drift of an object whose latest specification its controller has not observed; None if it has, or the
    kind reports no observed generation."""
    observed = (obj.get("status") or {}).get("observedGeneration")
    generation = obj["metadata"].get("generation", 0)
    if not isinstance(observed, int) or not isinstance(generation, int) or observed >= generation:
        return None
    return Drift(f"generation {generation} is not observed yet", str(generation), str(observed))


def reports_problem(condition: ObjView) -> bool:
    """Return whether a condition reports a problem, by its type and status."""
    name, status = str(condition.get("type", "")), condition.get("status")
    if name in _TRANSIENT:
        return False
    if name in _NEGATIVE or name.endswith(_NEGATIVE_ENDINGS):
        return status == "True"
    return status in ("False", "Unknown")


def detail(condition: ObjView) -> str:
    """Return reason and message of a condition, after a colon; empty if it has none."""
    text = ": ".join(str(condition[part]).rstrip(".") for part in ("reason", "message") if condition.get(part))
    return f": {text}" if text else ""


def _expects_status(obj: ObjView) -> bool:
    """Return whether a controller is expected to report a status. A kind with the status subresource has an empty
    status, or a generation, without which a kind counts no specifications."""
    return "status" in obj and bool(obj["metadata"].get("generation"))


def _facts(spec: Any) -> list[str]:
    """Return the first simple fields of a specification."""
    if not isinstance(spec, dict):
        return []
    found = [f"{name} {short_value(value)}" for name, value in spec.items() if not isinstance(value, dict | list)]
    return found[:_MAX_FACTS] or [f"{name}" for name in list(spec)[:_MAX_FACTS]]


def _observed(status: Any) -> list[str]:
    if not isinstance(status, dict) or not status:
        return ["no status"]
    found = [
        f"{name} {short_value(value)}"
        for name, value in status.items()
        if not isinstance(value, dict | list) and name != "observedGeneration"
    ]
    found += [
        f"{each.get('type')} {each.get('status')}" for each in status.get("conditions") or () if isinstance(each, dict)
    ]
    if isinstance(status.get("observedGeneration"), int):
        found.append(f"generation {status['observedGeneration']} observed")
    return found[:_MAX_FACTS] or ["a status without simple fields"]


def _content(obj: ObjView) -> list[str]:
    """Return what an object without a specification contains."""
    found = []
    for name in ("data", "binaryData", "stringData", "rules", "subjects", "webhooks"):
        if content := obj.get(name):
            found.append(f"{len(content)} {'entry' if len(content) == 1 else 'entries'} in {name}")
    return found or ["it exists"]


def _replicas(spec: Any, status: Any) -> Gauge | None:
    """Return a gauge for kinds that count replicas by the usual names."""
    if not isinstance(spec, dict) or not isinstance(status, dict):
        return None
    wanted, ready = spec.get("replicas"), status.get("readyReplicas", status.get("replicas"))
    if isinstance(wanted, int) and isinstance(ready, int) and not isinstance(wanted, bool):
        return Gauge(ready, wanted, "replicas ready")
    return None
