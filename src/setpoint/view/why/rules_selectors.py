"""Why objects do not find each other: selectors that match nothing, Pods without a controller or with another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from setpoint.meta.objects import ObjView
from setpoint.meta.selectors import Selector, SelectorError, format_labels, from_label_selector, from_map
from setpoint.view.actors import actor_of
from setpoint.view.made_anew import controller_of
from setpoint.view.why.answer import Finding
from setpoint.view.why.facts import Facts, Ref
from setpoint.view.why.moments import age
from setpoint.view.why.question import last_spec_write

_MAX_SHOWN = 3
_SIMILARITY = 0.6
"""The ratio above which the value of a label may be a misspelling of another."""


def _similar(one: str, other: str) -> bool:
    return bool(one) and SequenceMatcher(None, one.lower(), other.lower()).ratio() > _SIMILARITY


def _labels(obj: ObjView) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def selector_of(selector: Mapping[str, Any]) -> Selector | None:
    """Return a selector with `matchLabels` and `matchExpressions`; None if it is not valid."""
    try:
        return from_label_selector(selector)
    except SelectorError:
        return None


def _shown(names: Sequence[str], of: int) -> str:
    more = f" and {of - len(names)} more" if of > len(names) else ""
    return f"{', '.join(names)}{more}"


async def similar_pods(facts: Facts, wanted: Mapping[str, str], namespace: str, pods: Sequence[ObjView]) -> list[str]:
    """Return why Pods that one may have meant are not selected: those with a part of the labels or a similar value, and
    those with all of the labels in other namespaces."""
    similar: list[tuple[int, str]] = []
    for pod in pods:
        labels = _labels(pod)
        equal = sum(labels.get(name) == value for name, value in wanted.items())
        if not equal and not any(_similar(labels.get(name, ""), value) for name, value in wanted.items()):
            continue
        parts = [f"{name}={labels[name]}" for name in wanted if labels.get(name, wanted[name]) != wanted[name]]
        parts += [f"no label {name}" for name in wanted if name not in labels]
        similar.append((-equal, f"pod/{pod['metadata']['name']} has {' and '.join(parts)}"))
    found = [text for _, text in sorted(similar)[:_MAX_SHOWN]]
    if len(similar) > _MAX_SHOWN:
        found.append(f"and {len(similar) - _MAX_SHOWN} more Pods")
    everywhere = [each for each in await facts.list("", "pods") if from_map(wanted).matches(_labels(each))]
    if namespaces := sorted({str(each["metadata"].get("namespace")) for each in everywhere} - {namespace}):
        shown = _shown(namespaces[:_MAX_SHOWN], len(namespaces))
        word = "namespace" if len(namespaces) == 1 else "namespaces"
        found.append(f"Pods in {word} {shown} match, but only those of namespace {namespace} are selected")
    return found


async def network_policy(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    """Return that a NetworkPolicy selects no Pods."""
    wanted = (obj.get("spec") or {}).get("podSelector") or {}
    selector = selector_of(wanted)
    pods = await facts.list("", "pods", ref.namespace)
    if selector is None or any(selector.matches(_labels(each)) for each in pods):
        return []
    what = f"its podSelector {format_labels(wanted)}" if wanted else "its podSelector"
    text = f"NetworkPolicy {ref.name} has no effect: {what} matches no Pod in namespace {ref.namespace}."
    return [
        Finding("selects-none", text, await similar_pods(facts, wanted.get("matchLabels") or {}, ref.namespace, pods))
    ]


async def claimed_by_others(facts: Facts, ref: Ref, obj: ObjView) -> list[Finding]:
    """Return the Pods that match the selector of a workload and do not count, because another object controls them."""
    wanted, uid = (obj.get("spec") or {}).get("selector") or {}, obj["metadata"].get("uid", "")
    selector = from_map(wanted) if ref.kind == "ReplicationController" else selector_of(wanted)
    if selector is None or not wanted:
        return []
    owners: dict[str, list[str]] = {}
    for pod in await facts.list("", "pods", ref.namespace):
        controller = controller_of(pod)
        if controller is not None and controller.get("uid") != uid and selector.matches(_labels(pod)):
            owners.setdefault(_owner(controller), []).append(f"pod/{pod['metadata']['name']}")
    found = []
    for owner, names in sorted(owners.items()):
        count = f"{len(names)} Pods match" if len(names) > 1 else "1 Pod matches"
        text = f"{count} the selector of {ref.kind} {ref.name} but {'are' if len(names) > 1 else 'is'} controlled by"
        evidence = [_shown(names[:_MAX_SHOWN], len(names))]
        found.append(Finding("other-controller", f"{text} {owner}.", evidence, help=["selectors that do not overlap"]))
    return found


def _owner(reference: Mapping[str, Any]) -> str:
    return f"{str(reference.get('kind', '')).lower()}/{reference.get('name', '')}"


async def name_taken(facts: Facts, ref: Ref, obj: ObjView) -> list[Finding]:
    """Return the Pods that a StatefulSet cannot create because Pods of their names exist which are not its own."""
    spec, uid = obj.get("spec") or {}, obj["metadata"].get("uid", "")
    first, selector = (spec.get("ordinals") or {}).get("start", 0), selector_of(spec.get("selector") or {})
    for number in range(first, first + min(spec.get("replicas", 1), 100)):
        pod = await facts.get("", "pods", ref.namespace, f"{ref.name}-{number}")
        if pod is None:
            continue
        controller = controller_of(pod)
        if controller is not None and controller.get("uid") != uid:
            why = f"is controlled by {_owner(controller)}"
        elif controller is None and selector is not None and not selector.matches(_labels(pod)):
            why = f"does not match its selector {format_labels(spec.get('selector'))}"
        else:
            continue
        text = f"StatefulSet {ref.name} cannot create pod/{ref.name}-{number}: a Pod of this name exists and {why}."
        return [
            Finding("name-taken", text, help=[f"delete pod/{ref.name}-{number}, or give the StatefulSet another name"])
        ]
    return []


async def orphan(facts: Facts, ref: Ref, pod: ObjView) -> list[Finding]:
    """Return that a Pod has lost its controller; empty if it has one, or never had any as far as is known."""
    if controller_of(pod) is not None:
        return []
    change = await last_spec_write(facts, f"core/pods/{ref.namespace}/{ref.name}", "metadata.ownerReferences")
    before = controller_of(change.before) if change is not None and change.before is not None else None
    if change is None or before is None:
        return []
    cause = change.write.cause
    when = f" {age(facts, cause.at)} ago" if cause is not None and cause.at else ""
    evidence = [f"{actor_of(cause)} removed its controller {_owner(before)}{when}"]
    if reason := cause.claim.reason if cause is not None else "":
        evidence.append(f'"{reason}"')
    text = f"Pod {ref.name} has no controller any more: nothing replaces it, and nothing deletes it."
    return [Finding("orphan", text, evidence)]
