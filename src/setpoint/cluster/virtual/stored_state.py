"""Stored objects of a cluster by resource, and the comparison of those of two clusters that ran in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import orjson

from setpoint.cluster.virtual.conditions import is_retrying
from setpoint.cluster.virtual.end_state import differences, is_compared, normalized_state
from setpoint.kinds.catalog import RESOURCES
from setpoint.meta.objects import Obj

_DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@cache
def _built_in_kinds() -> dict[str, str]:
    return {resource.storage_prefix: resource.kind for resource in RESOURCES}


def kind_of(key: str, obj: Mapping[str, Any]) -> str:
    """Return the kind of a stored object."""
    prefix = key[: key.index("/", key.index("/") + 1) + 1]
    return _built_in_kinds().get(prefix) or str(obj.get("kind") or prefix.split("/")[1])


def state_differences(
    expected: Mapping[str, bytes], found: Mapping[str, bytes], times: tuple[int, int] = (0, 0)
) -> str:
    """Return the differences between two states, objects by key, as readable text without random values and times;
    empty if there are none. Resources that only `found` has are not compared. `times` are those of the states in
    milliseconds since the epoch, if they are known."""
    wanted, actual = (_by_resource(*each) for each in zip((expected, found), times, strict=True))
    both = {*wanted} & {*actual}
    text = differences(*(normalized_state({name: each[name] for name in sorted(both)}) for each in (wanted, actual)))
    missing = [f"missing: all {each}" for each in sorted({*wanted} - both)]
    return "\n".join([*missing, *([text] if text else [])])


def _by_resource(state: Mapping[str, bytes], at: int) -> dict[str, list[Obj]]:
    found: dict[str, list[Obj]] = {}
    for key in sorted(state):
        group, plural, _ = key.split("/", 2)
        if is_compared(plural):
            obj = orjson.loads(state[key])
            if plural == "pods":
                _drop_default_tolerations(obj)
                if is_retrying(state[key], at):  # how far the attempts are depends on the moment
                    obj.pop("status")
            found.setdefault(f"{group}/{plural}", []).append({"kind": kind_of(key, obj), **obj})
    return found


def _drop_default_tolerations(pod: Obj) -> None:
    """Remove the tolerations that admission adds: their seconds depend on the pace of the recorded cluster."""
    tolerations = (pod.get("spec") or {}).get("tolerations") or ()
    kept = [each for each in tolerations if each.get("key") not in _DEFAULT_TOLERATIONS]
    if tolerations:
        pod["spec"]["tolerations"] = kept
