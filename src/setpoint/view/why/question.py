"""Finds the write that a question is about, follows it back, and puts the answer into a sentence."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace

from setpoint.meta.objects import ObjView
from setpoint.meta.times import human_duration
from setpoint.view.actors import actor_of
from setpoint.view.changes import (
    ABSENT,
    FieldChange,
    has_path,
    path_text,
    short_path,
    short_texts,
    short_value,
    value_at,
    value_text,
    write_conflicts,
)
from setpoint.view.why import next_apply
from setpoint.view.why.answer import Answer, Finding, Step
from setpoint.view.why.facts import History, ObjectVersion, Ref
from setpoint.view.why.steps import HEARTBEAT, SPEC, Change, begins_deletion, step_of
from setpoint.view.why.walk import MAX_DEPTH, follow

_PAGE = 64
_MAX_VERSIONS = 2_000
"""Maximum number of versions of an object that are searched for a change."""
_MAX_EARLIER = 3
_UNDONE = ("changed", "applied", "scaled", "deleted")
"""Actions at the end of a chain that one may want to undo."""
_INDEX = re.compile(r"\[\d{1,4}\]")
_CONDITION = re.compile(r"[A-Z][A-Za-z0-9]{0,62}|(?:[a-z0-9.-]{1,253}/)[A-Za-z0-9._-]{1,63}")


@dataclass(frozen=True, slots=True)
class Question:
    key: str
    """The key of the object in the store."""
    field: str = ""
    """A field (`spec.replicas`) or the type of a condition (`Ready`); empty means the object."""
    at: int = 0
    """The newest revision to consider; 0 means the present."""
    since: int = 0
    """The oldest time to consider, in milliseconds since the epoch; 0 means all."""
    depth: int = MAX_DEPTH
    every: bool = False
    """Whether all triggers and all earlier values are wanted."""


class NoHistory(Exception):
    """No version of the object is known."""


async def why(history: History, question: Question) -> Answer:
    """Answer why the object, or a field of it, is as it is. Raises NoHistory."""
    ref = history.ref(question.key)
    asked = {**asdict(question), "object": ref.text, "namespace": ref.namespace}
    answer = Answer(asked, history.now)
    if question.field:
        await _why_field(history, question, ref, answer)
    else:
        change = await _last_change(history, question)
        if change is None:
            await _nothing(history, question, ref, answer)
        else:
            await _explain(history, question, answer, change)
            is_change = change.before is not None and change.now is not None
            if is_change and SPEC < change.rank < HEARTBEAT and not question.since:
                answer.notes.append(f"Older changes are not known: the history begins at revision {history.oldest}.")
    return answer


async def _nothing(history: History, question: Question, ref: Ref, answer: Answer) -> None:
    """Say that no change is known, and no more than that."""
    written = 0
    async for last in _versions(history, question):
        written = last.revision
        break
    what = f"{question.field} of {_name(ref)}" if question.field else _name(ref)
    if question.since:
        answer.sentence = f"{what} has not changed in that time."
    elif written > history.oldest:
        answer.sentence = (
            f"No change of {what} is known. Earlier versions than that of revision {written} are not kept."
        )
    else:
        answer.sentence = f"{what} has not changed since the history began, at revision {history.oldest}."


async def _versions(history: History, question: Question) -> AsyncIterator[ObjectVersion]:
    """Yield the versions of the object, newest first. Raises NoHistory if there is none."""
    before, count = question.at + 1 if question.at else 0, 0
    while count < _MAX_VERSIONS:
        page = await history.versions(question.key, before, _PAGE)
        for version in page:
            yield version
        count += len(page)
        if len(page) < _PAGE:
            break
        before = page[-1].revision
    if not count:
        raise NoHistory


async def object_changes(history: History, question: Question) -> AsyncIterator[Change]:
    """Yield the known changes of the object, newest first."""
    newer: ObjectVersion | None = None
    ref = history.ref(question.key)
    async for version in _versions(history, question):
        if newer is not None:
            if (found := await _changed(history, question, ref, newer, version)) is None:
                return
            yield found
        newer = version
    # The oldest version: its creation, or a state that was there when the history began.
    if newer is not None and newer.obj is not None and newer.revision == newer.created:
        if (found := await _changed(history, question, ref, newer, None)) is not None:
            yield found


async def _changed(
    history: History, question: Question, ref: Ref, now: ObjectVersion, before: ObjectVersion | None
) -> Change | None:
    """Return the change between two versions; None if it is older than the question asks for, or its write is not
    known."""
    write = await history.write(now.revision)
    if write is None or (question.since and write.cause is not None and write.cause.at < question.since):
        return None
    old = before.obj if before is not None and now.revision != now.created else None
    return Change(write, question.key, ref, old, now.obj, True)


async def _last_change(history: History, question: Question) -> Change | None:
    """Return the write that the question without a field is about: the deletion of an object that is gone or being
    deleted, else the last change of the desired state, else the creation."""
    fallback: Change | None = None
    heartbeat: Change | None = None
    async for change in object_changes(history, question):
        if change.now is None:
            return change
        kind = change.rank
        if begins_deletion(change) or change.before is None:
            return change
        if kind <= SPEC and not _is_routine(change):
            return change
        if fallback is None and kind < HEARTBEAT:
            fallback = change
        heartbeat = heartbeat or change
    return fallback or heartbeat


def _is_routine(change: Change) -> bool:
    """Return whether the change is one that every object goes through: binding a Pod."""
    paths = {each.path[:2] for each in change.fields if each.path[:1] == ("spec",)}
    return change.ref.plural == "pods" and paths == {("spec", "nodeName")}


async def _explain(history: History, question: Question, answer: Answer, change: Change) -> None:
    """Follow a change of the object as a whole, and put it into a sentence."""
    await follow(history, answer, change, depth=question.depth, every=question.every)
    step = next((each for each in answer.chain if not each.completes), answer.chain[0])
    answer.sentence = _sentence(history, change.ref, step)
    _hint(answer)


def _name(ref: Ref) -> str:
    return f"{ref.kind} {ref.name}"


def _ago(history: History, at: int) -> str:
    return f"{human_duration(max(0, history.now - at) / 1000)} ago" if at else "at an unknown time"


def _sentence(history: History, ref: Ref, step: Step) -> str:
    if step.kind == "hidden":
        return f"{_name(ref)} was changed by a write that you may not read."
    how = {
        "deleted": "was deleted",
        "completed the deletion of": "was deleted",
        "created": "was created",
        "evicted": "was evicted",
        "scaled": "was scaled",
        "applied": "was changed",
    }.get(step.action, "was changed")
    detail = step.reason or (", ".join(step.changes) if how in ("was changed", "was scaled") else "")
    return f"{_name(ref)} {how} {_ago(history, step.at)} by {step.actor}{_after(detail)}"


def _after(text: str) -> str:
    if not text:
        return "."
    return f": {text}" if text.endswith("...") else f": {text.rstrip('.')}."


def _hint(answer: Answer) -> None:
    """Offer to undo the write of a person at the end of the chain."""
    last = answer.chain[-1]
    pods = last.object.startswith("pod/")  # their owners replace them
    if answer.origin.startswith("Origin:") and last.kind == "write" and last.action in _UNDONE and not pods:
        answer.hints.append(f"setpoint undo {last.revision}")


# -- a field -----------------------------------------------------------------------------------------------------------


async def _why_field(history: History, question: Question, ref: Ref, answer: Answer) -> None:
    found: list[tuple[Change, list[FieldChange]]] = []
    condition = bool(_CONDITION.fullmatch(question.field))
    current = await _current(history, question)
    if not condition and current is not None:
        question = replace(question, field=_in_spec(question.field, current))
    created: Change | None = None
    known_field = False
    async for change in object_changes(history, question):
        if change.before is None and change.now is not None:
            created = change
            if _has_field(change.now, question.field, condition):
                found.append((change, [FieldChange(("",), ABSENT, _value_at(change.now, question.field, condition))]))
            break
        wanted = [each for each in change.fields if _matches(each, question.field, condition)]
        if wanted:
            found.append((change, wanted))
            known_field = True
            if len(found) > _MAX_EARLIER and not question.every:
                break
    if not found:
        if not known_field and current is not None and not _has_field(current, question.field, condition):
            what = "condition" if condition else "field"
            answer.sentence = f"{_name(ref)} has no {what} {question.field}, and had none since the history began."
            return
        await _nothing(history, question, ref, answer)
        return
    change, wanted = found[0]
    await follow(history, answer, change, depth=question.depth, every=question.every)
    answer.sentence = _field_sentence(history, question, ref, answer.chain[0], change, wanted)
    for earlier, fields in found[1:]:
        step = await step_of(history, earlier)
        step.changes = [_became(fields, earlier, question.field, condition)]
        answer.earlier.append(step)
    writers = dict.fromkeys(actor_of(each.write.cause) for each, _ in found if each is not created)
    if len(writers) > 1:
        answer.notes.append(f"{len(writers)} clients have written this field: {', '.join(writers)}.")
    if not question.at and not condition and ref.plural != "secrets":
        answer.notes += await _next_apply(history, question, found)
    _hint(answer)


async def _next_apply(history: History, question: Question, found: list[tuple[Change, list[FieldChange]]]) -> list[str]:
    """Return what the next apply does with fields that were changed since the last one."""
    now = await _current(history, question)
    known = [(change, fields) for change, fields in found if change.before is not None]
    if now is None or now["metadata"].get("deletionTimestamp") or not known:
        return []
    texts = []
    if fields := next_apply.overridden(now, {each.path for _, fields in known for each in fields}):
        author = ""
        async for change in object_changes(history, Question(question.key)):
            if next_apply.manifest_of(change.now) != next_apply.manifest_of(change.before):
                author = actor_of(change.write.cause) if change.write.cause is not None else ""
                break
        texts.append(next_apply.override_text(fields, question.field, author))
    if lost := next_apply.lost_to(known, now):
        texts.append(lost)
    return texts


def _in_spec(field: str, obj: ObjView) -> str:
    """Return `spec.replicas` for `replicas` if the object has such a field: the status may have one of the same
    name."""
    path = f"spec.{field}"
    return path if value_at(obj, field) is ABSENT and value_at(obj, path) is not ABSENT else field


async def _current(history: History, question: Question) -> ObjView | None:
    async for version in _versions(history, question):
        return version.obj
    return None


def _matches(change: FieldChange, field: str, condition: bool) -> bool:
    if not change.path:
        return True
    if condition:
        return has_path(change, (f"status.conditions[type={field}].status",)) or change.path == (
            "status",
            "conditions",
            f"[type={field}]",
        )
    if _INDEX.search(field):
        plain = re.sub(r"\[[^\]]{0,253}\]", "", path_text(change.path))
        wanted = _INDEX.sub("", field)
        return plain == wanted or plain.startswith(f"{wanted}.") or wanted.startswith(f"{plain}.")
    return has_path(change, (field,)) or change.path[-1] == field


def _value_at(obj: ObjView, field: str, condition: bool) -> object:
    """Return the value of a field; ABSENT if the object has none, or the path names an item of a list."""
    if condition:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        return next((each.get("status") for each in conditions if each.get("type") == field), ABSENT)
    return value_at(obj, field)


def _has_field(obj: ObjView, field: str, condition: bool) -> bool:
    return _value_at(obj, field, condition) is not ABSENT


def _became(fields: list[FieldChange], change: Change, field: str, condition: bool) -> str:
    """Return the value that a write gave to the field, in short form."""
    if change.before is None and change.now is not None:
        return short_value(_value_at(change.now, field, condition))
    if change.now is None:
        return "deleted"
    return ", ".join(short_texts(fields)[:2])


def _field_sentence(
    history: History, question: Question, ref: Ref, step: Step, change: Change, wanted: list[FieldChange]
) -> str:
    who = f"{_ago(history, step.at)} by {step.actor or 'a client that you may not see'}"
    if change.now is None:
        return f"{_name(ref)} was deleted {who}{_after(step.reason)}"
    of = f"{_name(ref)}"
    if change.before is None:
        value = _value_at(change.now, question.field, bool(_CONDITION.fullmatch(question.field)))
        field = f"Condition {question.field}" if _CONDITION.fullmatch(question.field) else question.field
        return f"{field} of {of} is {short_value(value)} since its creation {who}{_after(step.reason)}"
    if len(wanted) > 1:
        return f"{question.field} of {of} was changed {who}: {', '.join(short_texts(wanted)[:3])}."
    only = wanted[0]
    if only.path[:2] == ("status", "conditions"):
        name = only.path[2][1:-1].partition("=")[2]
        old, new = (each.get("status") if isinstance(each, dict) else each for each in (only.old, only.new))
        now = _condition(change.now, name)
        detail = str(now.get("reason") or "") or step.reason
        before = f" (before: {short_value(old)})" if old not in (ABSENT, None) else ""
        return f"Condition {name} of {of} became {short_value(new)}{before} {who}{_after(detail)}"
    old, new = only.old, only.new
    field = short_path(only.path) if len(only.path) > 1 else question.field
    if new is ABSENT or new is None:
        return f"{field} of {of} was removed (before: {short_value(old)}) {who}{_after(step.reason)}"
    before = f" (before: {short_value(old)})" if old not in (ABSENT, None) else ""
    return f"{field} of {of} became {short_value(new)}{before} {who}{_after(step.reason)}"


def _condition(obj: ObjView, name: str) -> ObjView:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == name), {})


# -- conflicts ---------------------------------------------------------------------------------------------------------


async def conflicts(history: History, question: Question) -> Answer:
    """Answer which clients revert each other's changes of the object, or of one field."""
    ref = history.ref(question.key)
    answer = Answer({**asdict(question), "object": ref.text, "namespace": ref.namespace}, history.now)
    writes: list[tuple[Change, list[FieldChange]]] = []
    async for change in object_changes(history, question):
        fields = [each for each in change.fields if not question.field or _matches(each, question.field, False)]
        if fields:
            writes.append((change, fields))
    writes.reverse()
    found = write_conflicts((each.key, actor_of(each.write.cause), fields) for each, fields in writes)
    what = f"{question.field} of {_name(ref)}" if question.field else _name(ref)
    if not found:
        answer.sentence = f"No two clients revert each other's changes of {what}."
        return answer
    for conflict in found:
        involved = [each for each, fields in writes if any(field.path == conflict.path for field in fields)]
        times = [each.write.cause.at for each in involved if each.write.cause is not None]
        seconds = (max(times) - min(times)) / 1000 if times else 0
        field = path_text(conflict.path) or "the object itself"
        sentence = f"{field}: {conflict.alternations} alternating writes in {human_duration(seconds)}."
        values = [
            f"{who} {'removes it' if value is ABSENT else f'writes {value_text(value)}'}"
            for who, value in conflict.values
        ]
        last = " <- ".join(f"{each.write.revision} {actor_of(each.write.cause)}" for each in involved[:-5:-1])
        answer.findings.append(Finding("conflict", sentence, [*values, f"latest: {last}"]))
    names = " and ".join(who for who, _ in found[0].values)
    answer.sentence = f"{names} revert each other's changes of {what}: {found[0].alternations} times."
    return answer


async def last_spec_write(history: History, key: str, field: str) -> Change | None:
    """Return the last write that changed a field, within the retained history."""
    question = Question(key)
    try:
        async for change in object_changes(history, question):
            if change.before is None and change.now is not None:
                return change if _has_field(change.now, field, False) else None
            if any(_matches(each, field, False) for each in change.fields):
                return change
    except NoHistory:
        pass
    return None
