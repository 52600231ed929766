"""The end state of a cluster without random values: equal for two runs that converged to the same state."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from setpoint.client import Client
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj

Identity = tuple[str, str, str]
EndState = dict[str, Counter[str]]
"""The normalized objects as text, each with its count, by resource."""

_EXCLUDED = {
    "events",
    "leases",
    "componentstatuses",
    "apiservices",
    "flowschemas",
    "prioritylevelconfigurations",
    "nodes",
    "csinodes",
}
"""Resources that record history instead of state, or that controllers do not manage."""
_VOLATILE = {
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
    "generation",
    "observedGeneration",
    "generateName",
    "selfLink",
    "nodePort",
    "endpoints.kubernetes.io/last-change-trigger-time",
    "testing.setpoint.dev/touched",
}
_SCALING_ANNOTATIONS = ("deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas")
"""Annotations with the size of a Deployment when one of its ReplicaSets was last scaled.

Nothing reads them on a ReplicaSet without Pods, and their value there depends on the path taken: upstream's controller
too updates only those with Pods (scale and isScalingEvent in pkg/controller/deployment/sync.go).
"""
_CHANCE = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+Z"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b"
    r"|(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-f])"
    r"|\b[0-9a-f]{64}\b"
    r"|\bnode-\d+\b"
    r"|\bkube-api-access-[a-z0-9]{5}\b"
)
_SECONDS = re.compile(r"\b\d+(\.\d+)?m?s\b")
_ABSENT = object()
_MAX_VALUE_LENGTH = 160
_MAX_LINES = 60


def is_compared(plural: str) -> bool:
    """Return whether objects of a resource are state that controllers manage."""
    return plural not in _EXCLUDED


async def end_state(client: Client, leave_out: Collection[str] = (), only: Collection[str] | None = None) -> EndState:
    """Return every object as text, without the values that depend on randomness or time; equal objects are counted.

    `leave_out` names what else may differ: plurals (`secrets`), or fields (`teapots:status.attempts`). `only` restricts
    the result to some resources, in the form `apps/deployments`; None means all.
    """
    fields: dict[str, list[list[str]]] = {}
    for each in leave_out:
        plural, _, field = each.partition(":")
        fields.setdefault(plural, []).append(field.split(".") if field else [])
    found: dict[str, list[Obj]] = {}
    for resource in await client.discovery.resources():
        key, paths = f"{resource.group or 'core'}/{resource.plural}", fields.get(resource.plural, [])
        if "list" not in resource.verbs or resource.plural in _EXCLUDED or [] in paths:
            continue
        if only is not None and key not in only:
            continue
        try:
            items = (await client.list(resource)).items
        except ApiError:
            continue
        for path in paths:
            items = [_without(obj, path) for obj in items]
        found[key] = items
    return normalized_state(found)


def normalized_state(found: Mapping[str, list[Obj]]) -> EndState:
    """Return objects as text, by resource, without the values that depend on randomness or time."""
    if "apps/replicasets" in found:
        found = {**found, "apps/replicasets": [*map(_without_scaling_annotations, found["apps/replicasets"])]}
    text = _normalized([obj for items in found.values() for obj in items])
    return {key: Counter(text(obj) for obj in items) for key, items in found.items()}


def _normalized(objects: list[Obj]) -> Callable[[Obj], str]:
    generated = {
        obj["metadata"]["name"]: obj["metadata"]["generateName"] + "*"
        for obj in objects
        if obj["metadata"].get("generateName")
    }
    names = re.compile("|".join(sorted(map(re.escape, generated), key=len, reverse=True)) or "(?!)")

    def text(value: str) -> str:
        value = names.sub(lambda match: generated[match.group()], value)
        return _SECONDS.sub("<s>", _CHANCE.sub("<x>", value))

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            stable = {text(key): plain(each) for key, each in value.items() if key not in _VOLATILE}
            return {key: each for key, each in stable.items() if each != {}}
        if isinstance(value, list):
            return sorted((plain(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
        return text(value) if isinstance(value, str) else value

    return lambda obj: json.dumps(plain(obj), sort_keys=True)


def _without_scaling_annotations(replica_set: Obj) -> Obj:
    if replica_set["spec"].get("replicas"):
        return replica_set
    for each in _SCALING_ANNOTATIONS:
        replica_set = _without(replica_set, ["metadata", "annotations", each])
    return replica_set


def _without(obj: Obj, path: list[str]) -> Obj:
    if path[0] not in obj:
        return obj
    rest = {key: value for key, value in obj.items() if key != path[0]}
    inner = obj[path[0]]
    return {**rest, path[0]: _without(inner, path[1:])} if len(path) > 1 and isinstance(inner, dict) else rest


# -- comparing ---------------------------------------------------------------------------------------------------------


def differences(expected: EndState, found: EndState) -> str:
    """Return the differences as readable text; empty if there are none.

    Only resources that are in `found` are compared. Objects that are in both are shown by their differing fields.
    """
    wanted: Counter[str] = sum((expected.get(key, Counter()) for key in found), Counter())
    actual: Counter[str] = sum(found.values(), Counter())
    missing, extra = _by_identity(wanted - actual), _by_identity(actual - wanted)
    lines: list[str] = []
    for identity in sorted({*missing, *extra}):
        was, now = missing.get(identity, []), extra.get(identity, [])
        named = f"{identity[0]} {'/'.join(filter(None, identity[1:]))}".rstrip()
        both = min(len(was), len(now))
        for before, after in zip(was[:both], now[:both], strict=True):
            lines.append(f"differs: {named}")
            lines += [f"    {line}" for line in _changes("", before, after)]
        lines += [f"missing: {named}{_content(each)}" for each in was[both:]]
        lines += [f"too many: {named}{_content(each)}" for each in now[both:]]
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES:] = [f"... and {len(lines) - _MAX_LINES} lines more"]
    return "\n".join(lines)


def _by_identity(objects: Counter[str]) -> dict[Identity, list[Obj]]:
    found: dict[Identity, list[Obj]] = {}
    for text in sorted(objects.elements()):
        obj = json.loads(text)
        meta = obj.get("metadata") or {}
        key = (obj.get("kind", ""), meta.get("namespace", ""), meta.get("name", ""))
        found.setdefault(key, []).append(obj)
    return found


def _content(obj: Obj) -> str:
    rest = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    return f" {_shown(rest)}" if rest else ""


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 3]}..."


def _changes(path: str, was: Any, now: Any) -> Iterator[str]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted({*was, *now}):
            yield from _changes(f"{path}.{key}", was.get(key, _ABSENT), now.get(key, _ABSENT))
    elif isinstance(was, list) and isinstance(now, list) and (by := _key(was, now)):
        before, after = ({each[by]: each for each in side} for side in (was, now))
        for key in sorted({*before, *after}):
            yield from _changes(f"{path}[{key}]", before.get(key, _ABSENT), after.get(key, _ABSENT))
    elif was != now:
        yield f"{path}: {_shown(was)} -> {_shown(now)}"


def _key(*lists: list[Any]) -> str:
    """Return the field that identifies the items of all lists; empty if there is none."""
    for key in ("type", "name"):
        if all(isinstance(each, dict) and isinstance(each.get(key), str) for side in lists for each in side) and all(
            len({each[key] for each in side}) == len(side) for side in lists
        ):
            return key
    return ""
