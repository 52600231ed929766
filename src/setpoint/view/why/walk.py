"""Follows the causes of a write back to its origin.

From a write to the reconcile that made it, from there to the most informative of the writes that triggered it, and so
on, until a person, a client that names no trigger, a timer, a start, or the beginning of the history.
"""

from __future__ import annotations

from typing import NamedTuple

from setpoint.meta.cause import Claim, WriteCause
from setpoint.view.actors import actor_of, is_component, is_interactive
from setpoint.view.why.answer import Answer, Step
from setpoint.view.why.controllers import RECONCILED_KINDS
from setpoint.view.why.facts import History
from setpoint.view.why.steps import Change, change_of, is_echo, order, related, step_of

MAX_DEPTH = 12
_MAX_ECHOES = 64
"""Maximum number of a controller's own writes that one step passes over."""
INFERENCE_SECONDS = 30
_INFERENCE_WRITES = 400
_OBSERVED = ("silent", "exit", "probe")
"""Triggers that are observations: a controller's own write with one is more than an echo."""
_SERVER = ("system:apiserver", "kube-apiserver")
"""User and agent of the API server's own writes."""


class _Next(NamedTuple):
    """The trigger to follow."""

    change: Change
    inferred: str
    """Why it is assumed; empty if it is recorded."""
    others: list[Change]


async def follow(history: History, answer: Answer, change: Change, *, depth: int, every: bool) -> None:
    """Append the steps from a write to its origin to the chain of the answer, and say where it ends.

    `every` includes the other triggers of each step."""
    inferred, seen = "", {change.write.revision}
    others: list[Change] = []
    while True:
        step = await step_of(history, change)
        step.inferred = inferred
        step.others = [await step_of(history, each) for each in others] if every else []
        _append(answer.chain, step)
        found = await _next(history, answer, step, change)
        if found is None or found.change.write.revision in seen:
            return
        if len(answer.chain) >= depth:
            answer.origin = f"The chain goes on; --depth {2 * depth} shows more."
            return
        change, inferred, others = found
        seen.add(change.write.revision)


def _append(chain: list[Step], step: Step) -> None:
    """Add a step; a repetition of the last one is counted instead."""
    last = chain[-1] if chain else None
    if last is not None and not step.inferred and step.kind == last.kind == "write":
        same = (last.actor, last.object, last.namespace, last.action) == (
            step.actor,
            step.object,
            step.namespace,
            step.action,
        )
        if same and [each.split(" ")[0] for each in last.changes] == [each.split(" ")[0] for each in step.changes]:
            step.times = last.times + 1
            step.revision, step.at, step.changes = last.revision, last.at, last.changes
            chain[-1] = step
            return
    chain.append(step)


async def _next(history: History, answer: Answer, step: Step, change: Change) -> _Next | None:
    """Return the trigger of a write to follow, and describe the reconcile in its step; None at the origin."""
    cause = change.write.cause
    if cause is None:
        answer.origin = "No cause is recorded for this write."
        return None
    claim = cause.claim
    if change.now is None and (requested := await _deletion_request(history, change)) is not None:
        step.action, step.completes = "completed the deletion of", True
        return _Next(requested, "", [])
    step.controller = claim.reconcile.rpartition("/")[0]
    step.besides = besides_text(claim.besides)
    step.triggers = max(claim.count, len(claim.triggers))
    if not claim.triggers:
        return await _without_triggers(history, answer, step, change, cause)
    known, unknown = await _triggers(history, change.write.revision, claim)
    if step.kind != "hidden":
        step.reconciled = await _reconciled(history, change, [each for one in known for each in one], claim)
    if not known:
        answer.origin = _before_history(history, unknown)
        return None
    candidates = [each for one in known for each in one]
    for _ in range(_MAX_ECHOES):
        candidates.sort(key=lambda each: order(each, change, step.controller, claim.key))
        best = candidates[0]
        best_cause = best.write.cause
        if not is_echo(best, step.controller, claim.key) or best_cause is None or not best_cause.claim.triggers:
            break
        if best_cause.claim.besides.partition(":")[0] in _OBSERVED:
            break
        # The controller was triggered only by its own write: what triggered that one is what matters.
        earlier, _ = await _triggers(history, best.write.revision, best_cause.claim)
        more = [each for one in earlier for each in one if each.write.revision < best.write.revision]
        if not more:
            break
        candidates = more
    best, *others = sorted(candidates, key=lambda each: order(each, change, step.controller, claim.key))
    return _Next(best, "", others)


async def _triggers(history: History, before: int, claim: Claim) -> tuple[list[list[Change]], list[int]]:
    """Return the changes of each recorded trigger that is known, and the revisions of the others."""
    known, unknown = [], []
    for revision in claim.triggers:
        write = await history.write(revision) if revision < before else None
        if write is None or not write.keys:
            unknown.append(revision)
        else:
            known.append([await change_of(history, write, key) for key in write.keys[:4]])
    return known, unknown


def _before_history(history: History, revisions: list[int]) -> str:
    if all(each >= history.oldest for each in revisions):
        return "The client names a trigger that is not recorded."
    return (
        f"The trigger (revision {revisions[0]}) is older than the history, which begins at revision {history.oldest}."
    )


async def _without_triggers(
    history: History, answer: Answer, step: Step, change: Change, cause: WriteCause
) -> _Next | None:
    if step.besides:
        return None
    if not cause.at:
        answer.origin = "The trigger of this write is not recorded: an earlier version of the server made it."
        return None
    if is_interactive(cause) or not (is_component(cause) or history.watched(cause)):
        certain = "Probable origin" if any(each.inferred for each in answer.chain) else "Origin"
        where = f", from {step.address}" if step.address else ""
        answer.origin = f"{certain}: {step.actor}{where}." if step.actor else ""
        return None
    if (cause.user, cause.agent) == _SERVER:
        answer.origin = "The API server made this write by itself."
        return None
    found = await _inferred(history, change, cause)
    if found is None:
        if step.kind != "hidden":
            who = actor_of(cause)
            where = f"; its request came from {step.address}" if step.address else ""
            answer.origin = f"{who[0].upper()}{who[1:]} names no trigger{where}."
        return None
    return found


async def _inferred(history: History, change: Change, cause: WriteCause) -> _Next | None:
    """Return the change that a client which names no trigger probably acted on.

    Candidates are changes of the last seconds that its watches have sent to it, of related objects: spec changes and
    deletions first, then the newest."""
    prefixes = tuple(history.watched(cause))
    if not prefixes or not cause.at:
        return None
    since = cause.at - 1000 * INFERENCE_SECONDS
    best: tuple[tuple[bool, int], Change] | None = None
    for write in await history.recent(change.write.revision, since, _INFERENCE_WRITES):
        own = write.cause is not None and (write.cause.user, write.cause.agent) == (cause.user, cause.agent)
        for key in write.keys:
            if own or not key.startswith(prefixes) or not await history.may_read(key):
                continue
            found = await change_of(history, write, key)
            if not (related(found, change) or names(change, found) or names(found, change)):
                continue
            score = order(found, change, "", "")
            candidate = (score[0] > 1, -write.revision)
            if best is None or candidate < best[0]:
                best = candidate, found
    if best is None:
        return None
    found = best[1]
    seconds = max(0, cause.at - (found.write.cause.at if found.write.cause is not None else cause.at)) / 1000
    who = actor_of(cause)
    return _Next(found, f"{who} names no trigger; its watch reported this change {seconds:.1f} s before", [])


def names(change: Change, other: Change) -> bool:
    """Return whether the object of one change selects or names the other one in its spec."""
    spec = change.obj.get("spec")
    if not isinstance(spec, dict) or change.ref.namespace != other.ref.namespace:
        return False
    if spec.get("nodeName") == other.ref.name and other.ref.plural == "nodes":
        return True
    labels = (other.obj.get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector")
    if isinstance(selector, dict):
        wanted = selector.get("matchLabels", selector)
        if isinstance(wanted, dict) and wanted and all(labels.get(name) == value for name, value in wanted.items()):
            return True
    return any(value == other.ref.name for name, value in spec.items() if name.endswith(("Name", "Ref")))


async def _deletion_request(history: History, change: Change) -> Change | None:
    """Return the write that requested the deletion which this one completes; None if it is not known."""
    newer: int = 0
    for version in await history.versions(change.key, change.write.revision, 50):
        deleting = version.obj is not None and version.obj["metadata"].get("deletionTimestamp")
        if not deleting:
            break
        newer = version.revision
    write = await history.write(newer) if newer else None
    return await change_of(history, write, change.key) if write is not None else None


async def _reconciled(history: History, change: Change, triggers: list[Change], claim: Claim) -> str:
    """Return the object that was reconciled, if it is among the objects of the write and of its triggers and their
    owners. Of an unknown controller only the name is known, and not the kind."""
    controller, path = claim.reconcile.rpartition("/")[0], claim.key
    if not path:
        return ""
    kind, name = RECONCILED_KINDS.get(controller), path.rpartition("/")[2]
    for each in (change, *triggers):
        if each.ref.path == path and kind in (None, each.ref.kind) and await history.may_read(each.key):
            return each.ref.text if kind is not None else path
    for owner in (change.obj.get("metadata") or {}).get("ownerReferences") or ():
        if owner.get("name") == name and kind in (None, owner.get("kind")):
            return f"{kind.lower()}/{name}" if kind is not None else path
    return ""


def besides_text(besides: str) -> str:
    """Return a trigger that is not a write, in words."""
    kind, _, detail = besides.partition(":")
    seconds = detail.removesuffix("s")
    match kind:
        case "":
            return ""
        case "timer":
            return f"a timer ({_rounded(seconds)} s)" if detail else "a timer"
        case "retry":
            return f"retry {detail}" if detail else "a retry"
        case "event":
            return f"cluster event {detail}" if detail else "a cluster event"
        case "silent":
            return f"{_rounded(seconds)} s without a heartbeat" if detail else "missing heartbeats"
        case "start":
            return "the start of the controller"
        case "resync":
            return "a periodic resync"
        case "relist":
            return "a new list after an interrupted watch"
        case "exit":
            return f"a container that exited with code {detail}"
        case "probe":
            return f"a probe ({detail})" if detail else "a probe"
        case "schedule":
            return f"the schedule ({detail})" if detail else "the schedule"
    return besides


def _rounded(seconds: str) -> str:
    """Return a number of seconds without meaningless decimals: `0.44`, `60.1`, `600`."""
    try:
        number = float(seconds)
    except ValueError:
        return seconds
    return f"{number:.1f}".removesuffix(".0") if number >= 10 else f"{number:.2g}"
