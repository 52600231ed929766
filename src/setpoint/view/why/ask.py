"""Chooses how a question is answered: by what has happened, or by why something does not happen."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum

from setpoint.meta.conditions import condition_of
from setpoint.meta.objects import ObjView
from setpoint.view.why.answer import Answer, Finding
from setpoint.view.why.container_logs import read_logs
from setpoint.view.why.facts import Facts, Ref
from setpoint.view.why.question import NoHistory, Question, conflicts, why
from setpoint.view.why.rules_loops import (
    backoff_findings,
    informer_findings,
    loop_findings,
    refusal_findings,
    unattended,
)
from setpoint.view.why.rules_objects import no_reason, object_findings
from setpoint.view.why.rules_pods import eviction, pod_findings
from setpoint.view.why.rules_selectors import orphan

_MAX_FINDINGS = 8
_ONLY_IF_ASKED = frozenset(
    {
        "schedule",
        "limited",
        "no-replicas",
        "no-disruption",
        "no-node-matches",
        "selects-none",
        "other-controller",
        "orphan",
        "not-watched-here",
    }
)
"""Findings of objects that are as they should be or may be so, which are shown only for `--not`."""


_BLOCKING = frozenset({"no-controller", "no-leader", "held", "not-synced"})
"""Findings about loops that come first."""


_INFORMERS = frozenset({"informer-lag", "informer-error"})
"""Findings that come first if nothing shows that the loops have observed the object."""


_REFUSED = frozenset({"quota", "webhook", "policy", "replica-failure"})
"""Findings that already report a refused write."""


class Mode(Enum):
    AUTOMATIC = "automatic"
    """The state of the object decides: why it was deleted, why it is not ready, or why it last changed."""
    WHY_NOT = "why not"
    CONFLICTS = "conflicts"


async def answered(facts: Facts, question: Question, mode: Mode) -> Answer:
    """Answer a question. Raises NoHistory if nothing is known of the object."""
    if mode is Mode.CONFLICTS:
        return await conflicts(facts, question)
    if mode is Mode.WHY_NOT or not (question.field or question.at or question.since):
        ref = facts.ref(question.key)
        obj = await facts.get(ref.group, ref.plural, ref.namespace, ref.name)
        if obj is not None:
            found = await _findings(facts, question.key, ref, obj)
            if mode is not Mode.WHY_NOT:
                found = [each for each in found if each.rule not in _ONLY_IF_ASKED]
            elif not found:
                found = [
                    *await informer_findings(facts, ref),
                    *await backoff_findings(facts, ref),
                    *unattended(facts, ref),
                ]
            await read_logs(facts, found)
            if found or mode is Mode.WHY_NOT:
                return await _why_not(facts, question, ref, obj, found)
        else:
            return await _absent(facts, question, ref)
    return await why(facts, question)


async def _findings(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    """Return all findings: those of the object first if it is the cause itself, then those of the loops."""
    if ref.kind == "Pod":
        own = [*await pod_findings(facts, ref, obj), *await orphan(facts, ref, obj), *await eviction(facts, ref, obj)]
    else:
        own = await object_findings(facts, key, ref, obj)
    loops: list[Finding] = []
    if own or _is_behind(obj):
        explained = any(each.rule in _REFUSED for each in own)
        loops = await loop_findings(facts, ref, obj, explained=explained)
    rules = _BLOCKING | _INFORMERS if _is_behind(obj) or _waits_for_scheduler(ref, obj) else _BLOCKING
    blocking = [each for each in loops if each.rule in rules]
    return [*blocking, *own, *(each for each in loops if each not in blocking)][:_MAX_FINDINGS]


def _waits_for_scheduler(ref: Ref, obj: ObjView) -> bool:
    return ref.kind == "Pod" and condition_of(obj, "PodScheduled") is None


def _is_behind(obj: ObjView) -> bool:
    """Return whether the object's controller has not observed it, or reports nothing about it."""
    status = obj.get("status")
    if not isinstance(obj.get("spec"), dict):
        return False
    observed = (status or {}).get("observedGeneration")
    return not status or (isinstance(observed, int) and observed < obj["metadata"].get("generation", 0))


async def _why_not(facts: Facts, question: Question, ref: Ref, obj: ObjView, found: list[Finding]) -> Answer:
    try:
        answer = await why(facts, question)
    except NoHistory:
        answer = Answer({**asdict(question), "object": ref.text, "namespace": ref.namespace}, facts.now)
    answer.findings = found
    answer.hints = []
    answer.question["not"] = True
    if found:
        answer.sentence = found[0].sentence
    else:
        answer.sentence, look = no_reason(ref, obj)
        answer.notes += look
    return answer


async def _absent(facts: Facts, question: Question, ref: Ref) -> Answer:
    """Answer why an object does not exist: its deletion, or the refusals of its creation."""
    try:
        return await why(facts, question)
    except NoHistory:
        refused = await refusal_findings(facts, ref, own=True)
        if not refused:
            raise
    answer = Answer({**asdict(question), "object": ref.text, "namespace": ref.namespace}, facts.now)
    answer.findings = refused
    answer.sentence = f"{ref.kind} {ref.name} does not exist, and a write of it was refused."
    return answer
